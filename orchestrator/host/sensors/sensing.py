"""Reads the sensors of this host once a second, while other work goes on.

A thread reads them, because some answer slowly: a chip on an I2C bus, the command of a board. One that does not
answer at all must not hold up that work, so nothing waits for such a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from orchestrator.host.sensors.sampler import Sampler
from orchestrator.host.sensors.sensor import Reading, Sensor
from orchestrator.host.sensors.sources import discover

SENSE_EVERY = 1.0  # s
PATIENCE = 5.0  # s; then the sensors are not read any more
T = TypeVar("T")


class Sensing:
    """``take`` receives the readings of each time; ``note`` receives a sentence if the sensors do not answer."""

    def __init__(
        self,
        take: Callable[[list[Reading]], None],
        note: Callable[[str], None],
        find: Callable[[], Sequence[Sensor]] = discover,
    ) -> None:
        self._take, self._note = take, note
        self._find: Callable[[], Sampler] = lambda: Sampler(find())
        self._sampler: Sampler | None = None
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        """Find the sensors, and read each of them once."""
        self._sampler = await self._answer(self._find)
        await self.sense()

    async def forever(self) -> None:
        while self._sampler is not None:
            await asyncio.sleep(SENSE_EVERY)
            await self.sense()

    async def sense(self, *, everything: bool = False) -> None:
        """Read what has changed; or ``everything``, so that each curve has its end."""
        async with self._one_at_a_time:
            if (sampler := self._sampler) is None:
                return
            readings = await self._answer(partial(sampler.sample, everything=everything))
            if readings is None:
                self._sampler = None
                readings = sampler.unread(f"no answer within {PATIENCE:.0f} s, so it is not read any more")
            self._take(readings)

    async def _answer(self, work: Callable[[], T]) -> T | None:
        """The result of ``work``; None, and a note, if it takes too long."""
        try:
            async with asyncio.timeout(PATIENCE):  # not wait_for, which in Python 3.11 may swallow a cancellation
                return await _aside(work)
        except TimeoutError:
            self._note(f"The sensors of this host did not answer within {PATIENCE:.0f} s: they are not read any more.")
            return None


async def _aside(work: Callable[[], T]) -> T:
    """The result of ``work`` in a thread of its own. The process can end while the thread hangs."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def carry_out() -> None:
        try:
            settle = partial(answer.set_result, work())
        except Exception as error:
            settle = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if answer.done() else settle())

    threading.Thread(target=carry_out, name="sensors", daemon=True).start()
    return await answer
