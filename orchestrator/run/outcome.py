"""The end of a run, wherever it is executed: its outcome is recorded once, in order or at once after a signal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from orchestrator.errors import RecordError
from orchestrator.host.process.signals import Interruption
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.down import clear
from orchestrator.run.resume import Past
from orchestrator.run.tasks import Ending

INTERRUPTION = Ending("interrupted")


async def until_outcome(
    directory: RunDirectory,
    record: Record,
    interruption: Interruption,
    holding: contextlib.ExitStack,
    past: Past | None,
    clock: Callable[[], float],
    work: Callable[[], Coroutine[Any, Any, Ending]],
    end_in_order: Callable[[], object],
    after_outcome: Callable[[], object] = lambda: None,
) -> Ending:
    """Await ``work``, and record how the run ended. A first signal calls ``end_in_order``; a second one removes
    everything of the run and judges it. ``holding`` and ``record`` are closed after ``after_outcome``."""
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    past_wall = past.wall_seconds if past else 0.0

    def write_outcome(ending: Ending) -> None:
        wall = past_wall + time.monotonic() - started
        facts = {"ended": ending.reason, "error": ending.error, "wall_seconds": wall}
        record.outcome(clock(), facts)

    def end_at_once() -> None:
        clear(directory.run, directory, trackers=False)  # they continue until this process has ended
        with contextlib.suppress(RecordError):
            write_outcome(INTERRUPTION)
            record.close()
        from orchestrator.report.judgement import judge

        judge(directory)

    with interruption.handled_by(loop, end_in_order, end_at_once):
        try:
            with holding, contextlib.closing(record):
                ending = await work()
                if interruption.asked and ending.reason == "failed":  # a job's end signals all its processes
                    ending = INTERRUPTION
                write_outcome(ending)
                after_outcome()
        except RecordError as error:
            ending = Ending("failed", str(error))
    return ending
