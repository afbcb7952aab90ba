"""Where heavy work runs: one worker thread per node, each step stretched to the node's hardware.

A step that took c seconds of processor time lasts c / s on a node of speed s. If the host was too busy to keep this,
that is told as an *overrun*; a step is never silently slower.
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

Mode = Literal["train", "classifier", "evaluate", "other"]  # "classifier": training of nothing but it

OVERRUN_SHARE = 0.1  # of a step's time that it may be late
OVERRUN_SECONDS = 0.02  # and beside it, for the host's own scheduling


class Compute(Protocol):
    """Runs a step of heavy work. ``samples``: how many samples it processes, for whoever models its time instead."""

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        """The result of ``fn(*args)``; what it raises is raised here."""

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        """Do ``fn(*args)``, something of the runtime's own such as writing to disk, in no time of the node's."""


class WorkerCompute:
    """Runs steps one after the other in a thread, each when it is this node's ``turn``, where nodes take turns.

    ``slow`` is a factor on the speed that faults may set.
    """

    def __init__(self, hardware: Hardware, reporter: Reporter, turn: Turn | None = None) -> None:
        self.slow = 1.0
        self._frozen = 0
        self._speed = hardware.speed
        self._reporter = reporter
        self._turn = turn
        self._pool = ThreadPoolExecutor(1, "compute", initializer=take_long_turns)

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        frozen = self._frozen
        sharing = asyncio.create_task(self._share())
        try:
            result, processor, taken = await asyncio.get_running_loop().run_in_executor(
                self._pool, _measured, fn, args, self._turn or nullcontext()
            )
        finally:
            sharing.cancel()
        asked = stretched(processor, self._speed, self.slow)
        if asked is not None:
            if asked > taken:
                await asyncio.sleep(asked - taken)
            elif is_overrun(asked, taken) and frozen == self._frozen:
                self._reporter.event("overrun", asked=asked, taken=taken, mode=mode)
        return result

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        await asyncio.to_thread(fn, *args)

    async def _share(self) -> None:
        """Beside a step: should it last longer than a turn, it goes on without."""
        while self._turn is not None:
            await asyncio.sleep(TURN)
            self._turn.give_back(after=TURN)

    def thaw(self) -> None:
        """The process was frozen until now (SIGCONT): the step under way is late through no fault of the host."""
        self._frozen += 1

    def close(self) -> None:
        """End without waiting for a step that still runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def stretched(processor: float, speed: float | None, slow: float) -> float | None:
    """Seconds that a step of ``processor`` seconds shall last; None if the host's own time is right."""
    if speed is None and slow == 1.0:
        return None
    return processor / ((speed or 1.0) * slow)


def is_overrun(asked: float, taken: float) -> bool:
    return taken > (1 + OVERRUN_SHARE) * asked + OVERRUN_SECONDS


def _measured(
    fn: Callable[..., Any], args: tuple[Any, ...], turn: AbstractContextManager[None]
) -> tuple[Any, float, float]:
    """The result, and the processor's and the clock's seconds it took; waiting for the turn is among the latter."""
    processor, clock = time.thread_time(), time.perf_counter()
    with turn:
        result = fn(*args)
    return result, time.thread_time() - processor, time.perf_counter() - clock
