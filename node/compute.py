"""Where heavy work runs: one worker thread per node, each step stretched to the node's hardware.

A step that took c seconds of processor time lasts c / s on a node of speed s. If the host was too busy to keep this,
that is told as an *overrun*; a step is never silently slower.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

from node.assignment import Hardware
from node.control import Reporter

Mode = Literal["train", "classifier", "evaluate", "other"]  # "classifier": training of nothing but it

OVERRUN_SHARE = 0.1  # of a step's time that it may be late
TURN = 0.04  # s
OVERRUN_SECONDS = 0.02  # and beside it, for the host's own scheduling


class Compute(Protocol):
    """Runs a step of heavy work. ``samples``: how many samples it processes, for whoever models its time instead."""

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        """The result of ``fn(*args)``; what it raises is raised here."""

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        """Do ``fn(*args)``, something of the runtime's own such as writing to disk, in no time of the node's."""


class WorkerCompute:
    """Runs steps one after the other in a thread. ``slow`` is a factor on the speed that faults may set."""

    def __init__(self, hardware: Hardware, reporter: Reporter) -> None:
        self.slow = 1.0
        self._frozen = 0
        self._speed = hardware.speed
        self._reporter = reporter
        self._pool = ThreadPoolExecutor(1, "compute", initializer=take_long_turns)

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        frozen = self._frozen
        result, processor, taken = await asyncio.get_running_loop().run_in_executor(self._pool, _measured, fn, args)
        asked = stretched(processor, self._speed, self.slow)
        if asked is not None:
            if asked > taken:
                await asyncio.sleep(asked - taken)
            elif is_overrun(asked, taken) and frozen == self._frozen:
                self._reporter.event("overrun", asked=asked, taken=taken, mode=mode)
        return result

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        await asyncio.to_thread(fn, *args)

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


def take_long_turns() -> None:
    """Ask the scheduler to let this thread compute for `TURN` s at a time, where the default is about 3 ms: many nodes
    on few processors otherwise push each other's data out of the caches, a sixth of the time of some training loops.

    A thread with shorter turns, such as one that moves messages, still comes first when it wakes. Linux 6.12 and later
    (sched_setattr(2), ``sched_runtime`` of SCHED_OTHER); elsewhere nothing changes.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if sys.platform == "linux" and number is not None:
        size, policy, flags, nice, priority = 48, os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0
        runtime, deadline, period = int(TURN * 1e9), 0, 0
        attributes = struct.pack("=IIQiIQQQ", size, policy, flags, nice, priority, runtime, deadline, period)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def _measured(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, float, float]:
    """The result, and the processor's and the clock's seconds it took."""
    processor, clock = time.thread_time(), time.perf_counter()
    result = fn(*args)
    return result, time.thread_time() - processor, time.perf_counter() - clock
