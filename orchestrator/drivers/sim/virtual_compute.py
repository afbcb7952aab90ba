"""The work of simulated nodes: a few workers really do it, and its time on the virtual clock is computed.

The duration of a step is known in advance (`node.learning.counted_operations`). So a worker gets the step
immediately, and the simulation processes events up to the virtual time of its end. Only then it waits for the result:
conservative parallel simulation (K. M. Chandy, J. Misra, IEEE Transactions on Software Engineering SE-5, 1979). Results
and their order do not depend on the number of workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from node.runtime.compute import Mode

INTERRUPTED_STEP = 0.5  # s of virtual time between two looks at a result, after a signal to end the run

CostFunction = Callable[[int, Mode], float]  # (samples, mode) -> seconds on a core of speed 1


class Work(Protocol):
    """A submitted step."""

    def result(self) -> Any:
        """Wait for the step, and return its result or raise its error. InterruptedError if a signal asks the run to
        end; the result may be requested again."""

    def cancel(self) -> object:
        """Declare that the result is not needed."""


class Pool(Protocol):
    """Runs steps in parallel to the simulation: `orchestrator.drivers.sim.workers`, or any Python executor."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Work: ...


class ModelledCompute:
    """The `Compute` of one simulated node. ``slow`` is a factor on the speed, which faults may set."""

    def __init__(self, workers: Pool, cost: CostFunction, speed: float | None) -> None:
        self.slow = 1.0
        self._workers = workers
        self._cost = cost
        self._speed = speed or 1.0
        self._turn = asyncio.Lock()  # a node does one step at a time
        self._running = asyncio.Event()
        self._running.set()
        self._frozen = 0.0  # s that the node has been frozen so far
        self._frozen_since = 0.0

    async def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        samples: int,
        mode: Mode,
    ) -> Any:
        speed = self._speed * self.slow
        seconds = self._cost(samples, mode) / speed
        if seconds == 0:
            return fn(*args)
        async with self._turn:
            work = self._workers.submit(fn, *args)
            try:
                await self._pass(seconds)
            except asyncio.CancelledError:
                work.cancel()
                raise
            while True:
                try:
                    return work.result()
                except InterruptedError:
                    await asyncio.sleep(INTERRUPTED_STEP)  # the run ends in this time

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        fn(*args)

    def freeze(self, frozen: bool) -> None:
        """Freeze the node or let it continue. While a node is frozen, its steps are paused."""
        now = asyncio.get_running_loop().time()
        if frozen:
            self._frozen_since = now
            self._running.clear()
        else:
            self._frozen += now - self._frozen_since
            self._running.set()

    async def _pass(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        frozen = self._frozen
        while True:
            remaining = end - loop.time()
            await asyncio.sleep(remaining)
            await self._running.wait()
            end = end + self._frozen - frozen
            frozen = self._frozen
            if loop.time() >= end:
                return
