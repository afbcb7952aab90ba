"""What the kernel knows about its clock, see adjtimex(2)."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

STA_UNSYNC = 0x0040


@dataclass(frozen=True)
class Clock:
    """``synchronised``: whether a daemon keeps the clock right. ``error``: how wrong it may be at most, in seconds, as
    the kernel counts it; 16 s is the kernel's largest figure."""

    synchronised: bool
    error: float


_FIELDS = struct.Struct("@Illlli")
"""The first fields of struct timex: modes, offset, freq, maxerror (µs), esterror and status."""
_SIZE = 512  # bytes; struct timex has about 200


def clock() -> Clock | None:
    """The clock of this host; None if the kernel does not show it."""
    timex = ctypes.create_string_buffer(_SIZE)  # with modes 0 nothing is set
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        refused = libc.adjtimex(timex) < 0
    except (OSError, AttributeError):
        return None
    if refused:
        return None
    _modes, _offset, _freq, maxerror, _esterror, status = _FIELDS.unpack_from(timex)
    return clock_of(status, maxerror)


def clock_of(status: int, maxerror: int) -> Clock:
    """The clock by two fields of struct timex."""
    synchronised = not status & STA_UNSYNC
    return Clock(synchronised, maxerror / 1e6)
