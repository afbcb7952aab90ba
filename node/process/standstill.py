"""Detects standstills of this process: it was stopped (SIGSTOP, a cgroup's freezer), or the host was suspended.

A process that is late because it computes, or because it waits for a processor, is not stalled. The kernel counts
both times: clock_gettime(2) and the second number of /proc/<pid>/schedstat (Documentation/scheduler/sched-stats.rst).
Threads wait for each other, as for Python's lock, so the waits of all of them count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LEAST = 0.5  # s; shorter standstills are not reported

_THREADS = Path("/proc/self/task")


class Times(NamedTuple):
    """Times in seconds. ``clock`` continues while the host is suspended. ``processor``: processor time of all threads;
    ``own``: of this thread. ``waited``: total time in which the present threads were ready to run and had no
    processor."""

    clock: float
    processor: float
    own: float
    waited: float


def read() -> Times:
    """The present counters. Without schedstat ``waited`` is 0."""
    waited = 0
    for thread in _THREADS.glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has just ended
            fields = thread.read_text().split()
            waited += int(fields[1])
    return Times(
        clock=time.clock_gettime(time.CLOCK_BOOTTIME),
        processor=time.process_time(),
        own=time.thread_time(),
        waited=waited / 1e9,
    )


class Standstill:
    """Measures standstills. The thread of the event loop must call ``since`` at regular times."""

    def __init__(self, read: Callable[[], Times] = read) -> None:
        self._read = read
        self._last = read()

    def since(self, pause: float) -> tuple[float, float]:
        """How late this call is, and for how long of that the process was stalled at least; both in seconds.

        The caller intended to call again after ``pause`` s. Its processor time, and its wait for a processor, do not
        count as standing still: those of all threads explain as much of the whole time, and those of the event loop as
        much of the lateness. A pause of many seconds may hide the one, and threads that compute all the time the other.
        """
        before = self._last
        now = self._read()
        self._last = now
        took = now.clock - before.clock
        waited = max(0.0, now.waited - before.waited)
        processor = now.processor - before.processor
        own = now.own - before.own
        late = took - pause
        idle = took - max(pause, processor + waited)
        unexplained = late - own - waited
        return max(0.0, late), max(0.0, min(idle, unexplained))
