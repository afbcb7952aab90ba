"""What the kernel knows about its clock, see adjtimex(2)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

STA_UNSYNC = 0x0040


@dataclass(frozen=True)
class Clock:
    """``synchronised``: whether a daemon keeps the clock right. ``error``: how wrong it may be at most, in seconds, as
    the kernel counts it; 16 s is the kernel's largest figure."""

    synchronised: bool
    error: float


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("microseconds", ctypes.c_long))


class _Timex(ctypes.Structure):
    """struct timex on Linux. The longs at the end are more than it holds."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # µs
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", _Time),
        ("others", ctypes.c_long * 24),
    )


def clock() -> Clock | None:
    """The clock of this host; None if the kernel does not tell."""
    found = _Timex()  # with modes 0 nothing is set
    try:
        refused = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found)) < 0
    except (OSError, AttributeError):
        return None
    return None if refused else judged(int(found.status), int(found.maxerror))


def judged(status: int, maxerror: int) -> Clock:
    """The clock by two fields of struct timex."""
    return Clock(not status & STA_UNSYNC, maxerror / 1e6)
