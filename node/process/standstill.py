"""Tells that this process stood still: stopped (SIGSTOP, a cgroup's freezer) or on a host that was suspended.

A process that is late because it computes, or because it waits for a processor, does not stand still. The kernel counts
both: clock_gettime(2) and the second number of /proc/<pid>/schedstat (Documentation/scheduler/sched-stats.rst).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LEAST = 0.5  # s; shorter standstills are not told

_SCHEDSTAT = Path("/proc/self/schedstat")


class Times(NamedTuple):
    """Seconds: the clock, which goes on while the host is suspended; processor time of all threads; time for which the
    main thread was ready to run and had no processor."""

    clock: float
    processor: float
    waited: float


def read() -> Times:
    """The counters of now. Without schedstat the main thread seems never to have waited."""
    try:
        waited = int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        waited = 0.0
    return Times(time.clock_gettime(time.CLOCK_BOOTTIME), time.process_time(), waited)


class Standstill:
    """Asked at regular times by the thread that runs the event loop."""

    def __init__(self, read: Callable[[], Times] = read) -> None:
        self._read = read
        self._last = read()

    def since(self, pause: float) -> tuple[float, float]:
        """For a caller that meant to ask again after ``pause`` s: how late it is, and for how long of that it stood
        still at least; seconds. What it did meanwhile, and what it waited for, is not counted as standing still."""
        before, self._last = self._last, self._read()
        took = self._last.clock - before.clock
        busy = self._last.processor - before.processor + self._last.waited - before.waited
        return max(0.0, took - pause), max(0.0, took - max(pause, busy))
