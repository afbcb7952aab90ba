"""The system calls that a node may make: a filter in the kernel (seccomp(2)), as container engines set one.

The filter is a program for the kernel's packet filter over ``struct seccomp_data``. It refuses calls that an attacker
needs and a node does not: creating and entering namespaces, mounts, access to other processes, loading code into the
kernel, keys, clocks, and the calls in which most of the kernel's vulnerabilities were found. The list is the one that
Docker's default profile denies to containers without capabilities. For a node, calls newer than `NEWEST` do not exist.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

NEWEST = 466
"""removexattrat, of Linux 6.13: the newest call that this list considers. Numbers above 423 are the same on every
processor."""

DENIED: dict[str, tuple[int | None, int | None]] = {
    # the numbers on x86_64 and on aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listmount": (458, 458),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}

_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_SECCOMP = (317, 277)
_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16
_NETLINK_ROUTE = 0

# Column of the numbers, and AUDIT_ARCH_* of audit.h.
_PROCESSORS = {
    "x86_64": (0, 0xC000003E),
    "aarch64": (1, 0xC00000B7),
}

_LOAD = 0x20
_EQUAL = 0x15
_GREATER = 0x25
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_SET_MODE_FILTER = 1
_NO_SLOWDOWN = 4  # SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it some kernels slow the process down

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Filter:
    """The filter for one kind of processor."""

    program: bytes
    call: int  # the number of seccomp(2)

    def set(self) -> str | None:
        """Filter this process's calls from now on, for ever. Return why it is impossible, else None.

        The process needs no_new_privs.
        """
        size = len(self.program)
        held = ctypes.create_string_buffer(self.program, size)
        argument = struct.pack("@HP", size // 8, ctypes.addressof(held))
        for flags in (_NO_SLOWDOWN, 0):  # Linux knows the flag since 4.17
            result = _libc.syscall(self.call, _SET_MODE_FILTER, flags, argument)
            if result == 0:
                return None
        reason = os.strerror(ctypes.get_errno())
        return f"this kernel has no seccomp filters ({reason})"


def filter_for(machine: str) -> Filter | None:
    """The filter for a processor, named as in uname(2). None if this module does not list its calls."""
    if machine not in _PROCESSORS:
        return None
    column, architecture = _PROCESSORS[machine]
    denied = [numbers[column] for numbers in DENIED.values()]
    program = _program(denied, column, architecture)
    return Filter(program, _SECCOMP[column])


def _program(denied: Iterable[int | None], column: int, architecture: int) -> bytes:
    numbers = sorted(number for number in denied if number is not None)
    refuse = _ERRNO | errno.EPERM
    unknown = _ERRNO | errno.ENOSYS
    lines = [
        (_LOAD, 0, 0, 4),  # offset in struct seccomp_data: 4 is the architecture, 0 the number of the call
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, unknown),  # calls of another architecture, such as 32 bits
        (_LOAD, 0, 0, 0),
        (_GREATER, 0, 1, NEWEST),  # includes the calls of x32
        (_RETURN, 0, 0, unknown),
        (_EQUAL, 0, 1, _CLONE3[column]),  # a filter cannot see its flags, which are in memory: libraries then use clone
        (_RETURN, 0, 0, unknown),
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _argument(0)),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 9, _SOCKET[column]),
        (_LOAD, 0, 0, _argument(0)),
        (_EQUAL, 5, 0, _AF_UNIX),
        (_EQUAL, 4, 0, _AF_INET),
        (_EQUAL, 3, 0, _AF_INET6),
        (_EQUAL, 0, 3, _AF_NETLINK),
        (_LOAD, 0, 0, _argument(2)),
        (_EQUAL, 0, 1, _NETLINK_ROUTE),  # libraries list interfaces with it
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),  # vsock, for example, bypasses network namespaces
    ]
    for place, number in enumerate(numbers):
        to_the_end = len(numbers) - place
        lines.append((_EQUAL, to_the_end, 0, number))
    lines.append((_RETURN, 0, 0, _ALLOW))
    lines.append((_RETURN, 0, 0, refuse))
    packed = [struct.pack("=HBBI", *line) for line in lines]
    return b"".join(packed)


def _argument(place: int) -> int:
    """The offset of the low half of an argument. Both processors are little-endian."""
    return 16 + 8 * place
