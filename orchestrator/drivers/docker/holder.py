"""The program that holds a node's network and processes open while the containers of its programs come and go.

It is 250 bytes of machine code for the Linux kernel, so that it runs in any image, even in one without a shell. It asks
the kernel to forget ended processes that have lost their parent. Then it reads its standard input, and ends at the end
of that: when the orchestrator lets go of it, or is gone. The kernel ends the processes of the node with it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from orchestrator.errors import HostError

_BASE = 0x400000
_FILE_HEADER = 64  # bytes (elf(5))
_SEGMENT_HEADER = 56
_HEADERS = _FILE_HEADER + _SEGMENT_HEADER

# rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8); while read(0, stack, 1) > 0; exit(0)    (syscalls(2))
_CODE = {
    "x86_64": (
        62,
        bytes.fromhex(
            "b80d000000 bf11000000 488d3527000000"  # mov eax, 13; mov edi, 17; lea rsi, [rip + 39]
            "31d2 41ba08000000 0f05"  # xor edx, edx; mov r10d, 8; syscall
            "31c0 31ff 488d7424f8"  # xor eax, eax; xor edi, edi; lea rsi, [rsp - 8]
            "ba01000000 0f05"  # mov edx, 1; syscall
            "85c0 7fec"  # test eax, eax; jg back
            "b83c000000 31ff 0f05"  # mov eax, 60; xor edi, edi; syscall
        ),
    ),
    "aarch64": (
        183,
        struct.pack(
            "<17I",
            *(0xD2800220, 0x10000201, 0xD2800002, 0xD2800103),  # mov x0, 17; adr x1, + 64; mov x2, 0; mov x3, 8
            *(0xD28010C8, 0xD4000001),  # mov x8, 134; svc 0
            *(0xD2800000, 0x910003E1, 0xD1004021, 0xD2800022),  # mov x0, 0; mov x1, sp; sub x1, x1, 16; mov x2, 1
            *(0xD28007E8, 0xD4000001, 0xF100001F, 0x54FFFF2C),  # mov x8, 63; svc 0; cmp x0, 0; b.gt back
            *(0xD2800000, 0xD2800BA8, 0xD4000001),  # mov x0, 0; mov x8, 93; svc 0
        ),
    ),
}
"""For each machine: its number in ELF files, and the code, which the action that it passes on follows."""

_ACTION = struct.pack("<5Q", 1, 0, 0, 0, 0)  # SIG_IGN, without flags


def executable(machine: str) -> bytes:
    """The ELF file for this machine, by the kernel's name for it. HostError for another machine."""
    if machine not in _CODE:
        known = " or ".join(_CODE)
        raise HostError(f"programs in containers need a host of {known}, this is {machine}")
    number, code = _CODE[machine]
    size = _HEADERS + len(code) + len(_ACTION)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF" + bytes([2, 1, 1]) + bytes(9),  # 64 bits, little-endian
        2,  # an executable
        number,
        1,  # version
        _BASE + _HEADERS,  # where the code starts
        _FILE_HEADER,  # the place of the header of the segment
        0,  # no sections
        0,  # no flags
        _FILE_HEADER,
        _SEGMENT_HEADER,
        1,  # segment
        0,
        0,
        0,
    )
    segment = struct.pack(
        "<IIQQQQQQ",
        1,  # loaded
        5,  # readable and executable
        0,  # from the start of the file
        _BASE,
        _BASE,
        size,
        size,
        0x1000,  # alignment
    )
    return header + segment + code + _ACTION


def write(path: Path) -> None:
    """Write the executable for this host."""
    machine = os.uname().machine
    path.write_bytes(executable(machine))
    path.chmod(0o755)
