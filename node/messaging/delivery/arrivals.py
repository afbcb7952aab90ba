"""What arrives when, in one process: one timer of the event loop serves all lines, however many there are."""

from __future__ import annotations

import asyncio
import itertools
import math
from functools import cached_property
from heapq import heappop, heappush
from typing import Protocol

TOGETHER = 1e-9  # s; asyncio, too, calls timers that are this close at one time


class Arriving(Protocol):
    """Something on its way. Arrivals that were added under an earlier ``plan`` do not happen."""

    plan: int

    def arrive(self) -> None:
        """Be there: it is the time of the next arrival."""


class Arrivals:
    """Calls ``arrive`` at the times that were added, the earliest first, and of one time in the order of adding."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Arriving, int]] = []  # a heap: time, number, what arrives, its plan
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf  # when the timer ends; no time is earlier while arrivals happen

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs at the first use. The loop is asked for the time of each message, and to look for
        it takes longer than its answer."""
        return asyncio.get_running_loop()

    def add(self, time: float, what: Arriving) -> None:
        heappush(self._due, (time, next(self._numbers), what, what.plan))
        if time < self._next:
            self._wait()

    def _wait(self) -> None:
        """Set the timer for the first arrival that will happen."""
        due = self._due
        while due and due[0][2].plan != due[0][3]:
            heappop(due)
        if self._timer is not None:
            self._timer.cancel()
        self._next = due[0][0] if due else math.inf
        self._timer = self.loop.call_at(self._next, self._happen) if due else None

    def _happen(self) -> None:
        due, until = self._due, self.loop.time() + TOGETHER
        self._next = -math.inf
        try:
            while due and due[0][0] < until:
                _, _, what, plan = heappop(due)
                if what.plan == plan:
                    what.arrive()
        finally:
            self._timer = None
            self._wait()
