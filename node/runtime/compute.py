"""Heavy work: one worker thread per node, and each step stretched to the speed of the node's hardware.

A step that took c seconds of processor time lasts c / s seconds on a node of speed s. If the host was too busy for
this, the node reports an *overrun*. A step is never slower without a report.

In virtual time computing takes no time, so a node with the cost of its model takes the time that this gives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

from node.assignment import Hardware
from node.messaging.control import Reporter
from node.runtime.turns import TURN, Turn, take_long_turns

Mode = Literal["train", "classifier", "evaluate", "other"]  # "classifier": training of the classifier only
Cost = Callable[[int, Mode], float]  # (samples, mode) -> seconds on a core of speed 1

OVERRUN_SHARE = 0.1  # fraction of a step's time by which it may be late
OVERRUN_SECONDS = 0.02  # further seconds by which it may be late, for the host's scheduling
SLICE = 0.02  # s of modelled time in which the process may be frozen: it then counts once


class Compute(Protocol):
    """Runs steps of heavy work. ``samples``: the samples that a step processes, for implementations that model time."""

    async def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        samples: int,
        mode: Mode,
    ) -> Any:
        """Run ``fn(*args)``. Return its result or raise its error."""

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        """Run ``fn(*args)``, work of the runtime such as writing to disk. It takes none of the node's modelled time."""


class WorkerCompute:
    """Runs steps one after the other in a thread. With a ``turn``, each step waits for this node's turn.

    ``slow`` is a factor on the speed, which faults may set. ``cost``: the model of a step's time, if it is not
    measured.
    """

    def __init__(self, hardware: Hardware, reporter: Reporter, turn: Turn | None = None) -> None:
        self.slow = 1.0
        self.cost: Cost | None = None
        self._frozen = 0
        self._speed = hardware.speed
        self._reporter = reporter
        self._turn = turn
        self._pool = ThreadPoolExecutor(1, "compute", initializer=take_long_turns)

    async def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        samples: int,
        mode: Mode,
    ) -> Any:
        frozen = self._frozen
        turn = self._turn or nullcontext()
        loop = asyncio.get_running_loop()
        sharing = asyncio.create_task(self._share())
        try:
            result, processor, taken = await loop.run_in_executor(self._pool, _measured, fn, args, turn)
        finally:
            sharing.cancel()
        if self.cost is not None:
            speed = (self._speed or 1.0) * self.slow
            await _pass(self.cost(samples, mode) / speed)
            return result
        planned = stretched(processor, self._speed, self.slow)
        if planned is None:
            return result
        if planned > taken:
            await asyncio.sleep(planned - taken)
        elif is_overrun(planned, taken) and frozen == self._frozen:
            self._reporter.event("overrun", asked=planned, taken=taken, mode=mode)
        return result

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        await asyncio.to_thread(fn, *args)

    async def prepare(self, fn: Callable[..., object], *args: Any) -> None:
        """Run ``fn(*args)`` in the thread of the steps. It does not count as the node's time."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, fn, *args)

    async def _share(self) -> None:
        """Give back the turn of a step that lasts longer than a turn. The step continues without it."""
        while self._turn is not None:
            await asyncio.sleep(TURN)
            self._turn.give_back(after=TURN)

    def thaw(self) -> None:
        """Note that the process was frozen until now (SIGCONT): the current step is late, but the host is not slow."""
        self._frozen += 1

    def close(self) -> None:
        """Close without waiting for a step that still runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def stretched(processor: float, speed: float | None, slow: float) -> float | None:
    """The seconds that a step of ``processor`` seconds must last. None for the host's own speed."""
    if speed is None and slow == 1.0:
        return None
    return processor / ((speed or 1.0) * slow)


async def _pass(seconds: float) -> None:
    """Let ``seconds`` pass in which this process is not frozen: a slice that took longer counts as one slice."""
    while seconds > 0:
        slice = min(seconds, SLICE)
        await asyncio.sleep(slice)
        seconds -= slice


def is_overrun(planned: float, taken: float) -> bool:
    return taken > (1 + OVERRUN_SHARE) * planned + OVERRUN_SECONDS


def _measured(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    turn: AbstractContextManager[None],
) -> tuple[Any, float, float]:
    """The result, its processor seconds, and its wall-clock seconds with the wait for the turn."""
    processor = time.thread_time()
    clock = time.perf_counter()
    with turn:
        result = fn(*args)
    used = time.thread_time() - processor
    taken = time.perf_counter() - clock
    return result, used, taken
