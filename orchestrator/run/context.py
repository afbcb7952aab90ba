"""The clock and the context that the steps of one run share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.run import Note
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.run.display.snapshot import View
from orchestrator.run.resume import NOTHING, Past


class RunClock:
    """Seconds since the run started. In a continued run the clock is paused during setup, so the record has no gap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, past: Past | None) -> None:
        self._loop = loop
        self._before = past.seconds if past else 0.0
        self._since = None if past else loop.time()

    def __call__(self) -> float:
        elapsed = 0.0
        if self._since is not None:
            elapsed = self._loop.time() - self._since
        return self._before + elapsed

    def start(self) -> None:
        """Start the clock if it is paused."""
        if self._since is None:
            self._since = self._loop.time()


@dataclass(frozen=True)
class RunContext:
    """One run: its plan, its directory and record, its clock and its view. ``clock`` gives seconds since the start of
    the run. ``past`` is the past of a continued run, otherwise `NOTHING`."""

    plan: Plan
    directory: RunDirectory
    record: Record
    clock: Callable[[], float]
    view: View
    past: Past = NOTHING

    @cached_property
    def story(self) -> Story:
        """The run so far: the past in its record, and each row that is recorded from now on."""
        self.record.flush()
        planned = self.plan.to_json()
        if self.plan.driver_kind.simulated:  # its links are not checked, and may be very many
            planned["links"] = []
        with History.open(self.directory.path, planned) as history:
            story = Story.to_continue(history)
        self.record.subscribers.append(story.add_row)
        return story

    def record_event(self, event: RecordedEvent) -> None:
        """Record an event of the run with the present time."""
        self.record.add_event(self.clock(), event)

    def note(self, sentence: str) -> None:
        """Record a sentence for anyone who reads the results."""
        self.record_event(Note(sentence))
