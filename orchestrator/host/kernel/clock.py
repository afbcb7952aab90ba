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
    """The clock of this host; None if the kernel does not tell."""
    timex = ctypes.create_string_buffer(_SIZE)  # with modes 0 nothing is set
    try:
        refused = ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0
    except (OSError, AttributeError):
        return None
    *_, maxerror, _, status = _FIELDS.unpack_from(timex)
    return None if refused else clock_of(status, maxerror)


def clock_of(status: int, maxerror: int) -> Clock:
    """The clock by two fields of struct timex."""
    return Clock(not status & STA_UNSYNC, maxerror / 1e6)
