"""The pace of a simulated run: how fast its virtual time passes on this host. Results do not depend on it.

10x      10 virtual seconds in each second of the host
free     as fast as the work allows
pause    pause
step     continue until the next round starts, then pause
"""

from __future__ import annotations

import asyncio
import math
import re

from node.runtime.clock import VirtualLoop

FREE = "free"
PAUSE = "pause"
STEP = "step"
WORDS = "a speed like 10x, pause, step or free"
_SPEED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)x")


def speed_of(pace: str) -> float | None:
    """The virtual seconds in a second of the host; None for a pace without a speed. ValueError if it is no pace."""
    if pace in (FREE, PAUSE, STEP):
        return None
    match = _SPEED.fullmatch(pace)
    speed = float(match[1]) if match else math.nan
    if not speed > 0:
        raise ValueError(f"{pace!r} is no pace: write {WORDS}")
    return speed


class Pacing:
    """Sets the pace of a run's clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._step: asyncio.Future[int] | None = None  # waits for a round to start

    @property
    def ahead(self) -> float:
        """The seconds from the last event to the virtual time that is due now."""
        return self._loop.ahead

    def set(self, pace: str) -> asyncio.Future[int] | None:
        """Change the pace. For a step, returns the round at which the run pauses. ValueError if it is no pace."""
        speed = speed_of(pace)
        if pace in (PAUSE, STEP):
            rate = self._loop.pace.rate
        else:
            rate = speed
        self._loop.set_pace(rate, held=pace == PAUSE)
        self._drop_step()
        if pace == STEP:
            self._step = self._loop.create_future()
        return self._step

    def round_began(self, round: int) -> None:
        """Note that a round of the run starts."""
        if self._step is not None:
            self._loop.set_pace(self._loop.pace.rate, held=True)
            self._step.set_result(round)
            self._step = None

    def end(self, _: object = None) -> None:
        """Let the run end as fast as it can."""
        self._drop_step()
        self._loop.set_pace(None)

    def _drop_step(self) -> None:
        if self._step is not None:
            self._step.cancel()
            self._step = None
