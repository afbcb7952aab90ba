"""Reads the sensors of this host once a second, while other work continues, and keeps the readings that are new.

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

from orchestrator.host.sensors.sensor import (
    ENERGY,
    FREQUENCY,
    MEMORY,
    POWER,
    TEMPERATURE,
    Reading,
    Sensor,
    read,
)
from orchestrator.host.sensors.sources import discover

SENSE_EVERY = 1.0  # s
PATIENCE = 5.0  # s; then the sensors are not read any more
# By quantity: what a change must be at least, as a fixed amount and as a share of the value. Of other quantities, each
# change counts.
ENOUGH = {
    TEMPERATURE: (0.5, 0.0),
    FREQUENCY: (0.0, 0.02),
    MEMORY: (0.0, 0.01),
    POWER: (0.01, 0.005),
}
T = TypeVar("T")
_Name = tuple[str, str, str]  # see `Sensor.name`


class Sensing:
    """``take`` receives the readings of each time; ``note`` receives a sentence if the sensors do not answer."""

    def __init__(
        self,
        take: Callable[[list[Reading]], None],
        note: Callable[[str], None],
        find: Callable[[], Sequence[Sensor]] = discover,
    ) -> None:
        self._take = take
        self._note = note
        self._find = lambda: Sampler(find())
        self._sampler: Sampler | None = None
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        self._sampler = await self._answer(self._find)
        await self.sense()

    async def forever(self) -> None:
        while self._sampler is not None:
            await asyncio.sleep(SENSE_EVERY)
            await self.sense()

    async def sense(self, *, everything: bool = False) -> None:
        """Read what has changed; or ``everything``, so that each curve has its end."""
        async with self._one_at_a_time:
            sampler = self._sampler
            if sampler is None:
                return
            sample = partial(sampler.sample, everything=everything)
            readings = await self._answer(sample)
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

    def settle(set_outcome: Callable[[], None]) -> None:
        if not answer.done():
            set_outcome()

    def run() -> None:
        try:
            result = work()
            set_outcome = partial(answer.set_result, result)
        except Exception as error:
            set_outcome = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(settle, set_outcome)

    thread = threading.Thread(target=run, name="sensors", daemon=True)
    thread.start()
    return await answer


class Sampler:
    """The sensors of this host. A figure stays as it was until the next reading that is kept: curves are steps."""

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        self._sensors = sensors
        self._kept: dict[_Name, Reading] = {}
        self._raw: dict[_Name, float] = {}  # J, as a counter showed it
        self._total: dict[_Name, float] = {}  # J since the first reading

    def sample(self, *, everything: bool = False) -> list[Reading]:
        """Read all sensors; return those that changed enough, or all. One that cannot be read is returned once."""
        new = []
        readings = read(self._sensors)
        for sensor, shown in zip(self._sensors, readings, strict=True):
            current = self._grown(sensor, shown)
            before = self._kept.get(sensor.name)
            readable = current.value is not None
            changed = before is None or differs(before, current)
            if changed or (everything and readable):
                self._kept[sensor.name] = current
                new.append(current)
        return new

    def unread(self, detail: str) -> list[Reading]:
        """Readings of all sensors that say why none of them can be read. Touches none of them."""
        return [Reading(*sensor.name, None, detail) for sensor in self._sensors]

    def _grown(self, sensor: Sensor, shown: Reading) -> Reading:
        """The reading, with the energy since the first reading in place of what the counter shows."""
        if sensor.quantity != ENERGY or shown.value is None:
            return shown
        before = self._raw.get(sensor.name, shown.value)
        self._raw[sensor.name] = shown.value
        total = self._total.get(sensor.name, 0.0)
        total += growth(before, shown.value, sensor.wraps_at)
        self._total[sensor.name] = total
        return shown._replace(value=total)


def growth(before: float, now: float, wraps_at: float) -> float:
    """What a counter has grown by. A counter that fell has reached ``wraps_at`` and restarted (powercap.rst,
    max_energy_range_uj). If that is not known, what it has counted since is all that is known."""
    if now >= before:
        return now - before
    if wraps_at >= before:
        return wraps_at - before + now
    return now


def differs(before: Reading, now: Reading) -> bool:
    """Whether a reading is worth a row after the one that was last kept."""
    was_readable = before.value is not None
    is_readable = now.value is not None
    if before.value is None or now.value is None:
        return was_readable != is_readable
    amount, share = ENOUGH.get(now.quantity, (0.0, 0.0))
    change = abs(now.value - before.value)
    enough = max(amount, share * abs(before.value))
    return change > 0 and change >= enough
