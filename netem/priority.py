"""Asking the kernel to run this process promptly, for the work that must happen at its time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct

SLICE = 100_000  # nanoseconds, the shortest the kernel takes
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # system call numbers; glibc has a function only from 2.41

# struct sched_attr of sched_setattr(2): size, policy, flags, nice, priority, runtime, deadline, period
ATTRIBUTES = struct.Struct("=IIQiIQQQ")


def run_promptly() -> str:
    """Be scheduled before the nodes' computations, as far as this user may; says what was got.

    "round-robin": real-time scheduling, which wants CAP_SYS_NICE. Beside two busy processes on two processors, wake-ups
    came 0.04 ms late at the 99th percentile, against 4 to 7 ms with nothing done.
    "short slice": SCHED_OTHER with a slice of 0.1 ms, which anybody may ask for since Linux 6.12 (older kernels ignore
    it), in a session of its own, as autogroup scheduling (sched(7)) shares the processors between sessions first.
    Beside the same load the median stayed right, which it did not with nothing done, and the 99th percentile came down
    to 3 ms.
    "default": neither could be asked for.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return "round-robin"
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    return "short slice" if _set_slice(os.getpriority(os.PRIO_PROCESS, 0)) else "default"


def _set_slice(nice: int) -> bool:
    number = SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    attributes = ATTRIBUTES.pack(ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE, 0, 0)
    refused: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return not refused
