"""Arrivals in one process: one timer of the event loop serves all lines, however many there are."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import cached_property
from heapq import heappop, heappush
from typing import Protocol

TOGETHER = 1e-9  # s; asyncio, too, calls timers that are this close at one time


class Arriving(Protocol):
    """Something on its way. Arrivals that were added under an earlier ``plan`` do not happen."""

    plan: int

    def arrive(self) -> None:
        """Handle the arrival that is due now."""


class Arrivals:
    """Calls ``arrive`` at the times that were added, the earliest first, and of one time in the order of adding.

    A message to thousands of receivers over equal links is one entry of the heap."""

    def __init__(self) -> None:
        self._times: list[float] = []  # a heap
        self._due: dict[float, deque[tuple[Arriving, int]]] = {}  # the arrivals of each of these times, with their plan
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf  # when the timer ends; no time is earlier while arrivals happen

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs at the first use. The time of the loop is read for each message, and to look the
        loop up takes longer than to read its time."""
        return asyncio.get_running_loop()

    def add(self, time: float, what: Arriving) -> None:
        due = self._due.get(time)
        if due is None:
            due = deque()
            self._due[time] = due
            heappush(self._times, time)
        due.append((what, what.plan))
        if time < self._next:
            self._wait()

    def _wait(self) -> None:
        """Set the timer for the first arrival that will happen."""
        if self._timer is not None:
            self._timer.cancel()
        self._next = self._first()
        if self._times:
            self._timer = self.loop.call_at(self._next, self._happen)
        else:
            self._timer = None

    def _first(self) -> float:
        """The time of the first arrival that will happen; infinity without one."""
        while self._times:
            first = self._times[0]
            due = self._due[first]
            while due:
                what, plan = due[0]
                if what.plan == plan:
                    return first
                due.popleft()
            heappop(self._times)
            del self._due[first]
        return math.inf

    def _happen(self) -> None:
        times = self._times
        now = self.loop.time()
        # `ulp`: after 194 days, TOGETHER is less than a float can add.
        until = now + max(TOGETHER, math.ulp(now))
        self._next = -math.inf
        try:
            while times and times[0] < until:
                due = self._due[times[0]]
                what, plan = due.popleft()
                if not due:
                    del self._due[heappop(times)]
                if what.plan == plan:
                    what.arrive()
        finally:
            self._timer = None
            self._wait()
