"""What arrives when, in one process: one timer of the event loop serves all lines, however many there are."""

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
        """Be there: it is the time of the next arrival."""


class Arrivals:
    """Calls ``arrive`` at the times that were added, the earliest first, and of one time in the order of adding.

    A message to thousands of receivers over equal links is one entry of the heap."""

    def __init__(self) -> None:
        self._times: list[float] = []  # a heap
        self._due: dict[float, deque[tuple[Arriving, int]]] = {}  # what arrives at each of them, with its plan
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf  # when the timer ends; no time is earlier while arrivals happen

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs at the first use. The loop is asked for the time of each message, and to look for
        it takes longer than its answer."""
        return asyncio.get_running_loop()

    def add(self, time: float, what: Arriving) -> None:
        due = self._due.get(time)
        if due is None:
            due = self._due[time] = deque()
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
            due = self._due[self._times[0]]
            while due and due[0][0].plan != due[0][1]:
                due.popleft()
            if due:
                return self._times[0]
            del self._due[heappop(self._times)]
        return math.inf

    def _happen(self) -> None:
        times = self._times
        now = self.loop.time()
        until = now + max(TOGETHER, math.ulp(now))  # `ulp`: after 194 days, the other is less than a float can add
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
