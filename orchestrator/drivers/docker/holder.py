"""The program that holds a node's network and processes open while the containers of its programs come and go.

It is 200 bytes of machine code for the Linux kernel, so that it runs in any image, even in one without a shell. It asks
the kernel to forget ended processes that have lost their parent, and waits for ever: SIGKILL ends it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from orchestrator.errors import HostError

_BASE = 0x400000
_HEADERS = 64 + 56  # bytes of the two headers (elf(5))

# rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8), then pause() or ppoll(NULL, 0, NULL, NULL) in a loop (syscalls(2))
_CODE = {
    "x86_64": (
        62,
        bytes.fromhex(
            "b80d000000 bf11000000 488d3513000000"  # mov eax, 13; mov edi, 17; lea rsi, [rip + 19]
            "31d2 41ba08000000 0f05"  # xor edx, edx; mov r10d, 8; syscall
            "b822000000 0f05 ebf7"  # mov eax, 34; syscall; jmp back
        ),
    ),
    "aarch64": (
        183,
        struct.pack(
            "<13I",
            *(0xD2800220, 0x10000181, 0xD2800002, 0xD2800103),  # mov x0, 17; adr x1, + 48; mov x2, 0; mov x3, 8
            *(0xD28010C8, 0xD4000001),  # mov x8, 134; svc 0
            *(0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003),  # mov x0 to x3, 0
            *(0xD2800928, 0xD4000001, 0x17FFFFFA),  # mov x8, 73; svc 0; b back
        ),
    ),
}
"""For each machine: its number in ELF files, and the code, which the action that it passes on follows."""

_ACTION = struct.pack("<5Q", 1, 0, 0, 0, 0)  # SIG_IGN, without flags


def executable(machine: str) -> bytes:
    """The ELF file for this machine, by the kernel's name for it. HostError for another machine."""
    if machine not in _CODE:
        raise HostError(f"programs in containers need a host of {' or '.join(_CODE)}, this is {machine}")
    number, code = _CODE[machine]
    size = _HEADERS + len(code) + len(_ACTION)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)  # loaded, readable and executable
    return header + segment + code + _ACTION


def write(path: Path) -> None:
    """Write the executable for this host."""
    path.write_bytes(executable(os.uname().machine))
    path.chmod(0o755)
