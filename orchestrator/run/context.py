"""What the steps of one run share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Plan
from orchestrator.results.record import Record
from orchestrator.run.resume import NOTHING, Past
from orchestrator.run.view import View


class RunClock:
    """Seconds since the run began. Of a run that is continued, it stands still until all is set up again: then the
    times in its record are those of a run without a gap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, past: Past | None) -> None:
        self._loop = loop
        self._before = past.seconds if past else 0.0
        self._since = None if past else loop.time()

    def __call__(self) -> float:
        return self._before + (self._loop.time() - self._since if self._since is not None else 0.0)

    def start(self) -> None:
        """It goes from now on, if it did not yet."""
        if self._since is None:
            self._since = self._loop.time()


@dataclass(frozen=True)
class RunContext:
    """One run: what is to be done, where it is written down, and who is told.

    ``clock`` gives seconds since the run began. ``past`` is what a run has behind it that is continued.
    """

    plan: Plan
    directory: RunDirectory
    record: Record
    clock: Callable[[], float]
    view: View
    past: Past = NOTHING

    def note(self, event: str, data: dict[str, object]) -> None:
        """Write an event of the run into the record, now."""
        self.record.event(self.clock(), None, event, None, data)
