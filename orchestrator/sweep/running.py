"""Execution of a sweep: its tasks, numbered from 0, and the tables and the page of their runs.

Any number of processes can execute tasks of a sweep in one folder at the same time, each on a host of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.host.directory import write_whole
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.sweep.figures import Result
from orchestrator.sweep.jobs import execute_in_parallel, execute_job, task_words, write_job
from orchestrator.sweep.page import write_page
from orchestrator.sweep.reading import COPY, Sweep
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import markdown, to_json


@dataclass(frozen=True)
class SweepOutcome:
    """The outcome of a sweep, with its exit code."""

    sweep: Sweep
    directory: Path
    results: tuple[Result, ...]
    interrupted: bool

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if len(self.results) < len(self.sweep.combinations) or any(result.failed for result in self.results):
            return 1
        return 3 if any(result.verdict == "fail" for result in self.results) else 0

    def to_json(self) -> dict[str, Any]:
        return to_json(self.sweep, self.results)


def carry_out(sweeper: Sweeper) -> SweepOutcome:
    """Execute the tasks of a sweep, one after another. Write sweep.json and sweep.md after each, and sweep.html at the
    end. A failed run does not end the sweep; an interrupted one does."""
    results: list[Result] = []
    for number in range(len(sweeper.sweep.combinations)):
        result = sweeper.run(number)
        if not (sweeper.interrupted and result.failed):  # a run that was interrupted has not failed
            results.append(result)
        _write_tables(sweeper, results)
        if sweeper.interrupted:
            break
    return _finished(sweeper, results)


def carry_out_on(scheduler: str, sweeper: Sweeper, arguments: Sequence[str], image: str) -> SweepOutcome:
    """Have a scheduler execute the tasks of a sweep, see `write_job`, and collect. Submits nothing if no task is to
    do."""
    if sweeper.to_do():
        job, file = write_job(
            scheduler, sweeper.sweep, sweeper.directory, arguments, workers=sweeper.workers, image=image
        )
        execute_job(scheduler, sweeper.sweep, job, file, sweeper.tell)
    return collect(sweeper)


def carry_out_in_parallel(count: int, sweeper: Sweeper, arguments: Sequence[str]) -> SweepOutcome:
    """Like `carry_out`, for simulations, with ``count`` tasks at the same time, each in its own process. A task trains
    in one process, unless the sweeper has another number of ``workers``. KeyboardInterrupt if this is interrupted."""
    words = task_words(sweeper.sweep, arguments, sweeper.workers or 1)
    execute_in_parallel(count, sweeper.to_do(), words, sweeper.tell)
    sweeper.tell = lambda _: None  # the tasks have printed their results
    return collect(sweeper)


def run_task(sweeper: Sweeper, number: int) -> tuple[Result, int]:
    """Execute the task with this number. Writes no tables. Returns its result and the exit code: 0 if the run is
    complete, whatever its checks say; 1 if it failed. RunError if the sweep has no such task."""
    tasks = len(sweeper.sweep.combinations)
    if not 0 <= number < tasks:
        raise RunError(f"there is no task {number}: this sweep has the tasks 0 to {tasks - 1}")
    result = sweeper.run(number)
    return result, INTERRUPTED if sweeper.interrupted and result.failed else int(result.failed)


def collect(sweeper: Sweeper) -> SweepOutcome:
    """Write the tables and the page of the runs that there are. Run nothing. The sweeper prints what is missing.
    RunError if there is no complete run."""
    found = map(sweeper.find, range(len(sweeper.sweep.combinations)))
    results = [each for each in found if each is not None]
    if all(result.failed for result in results):
        raise RunError(f"{sweeper.directory} has no complete run of this sweep: start it without --collect")
    _write_tables(sweeper, results)
    return _finished(sweeper, results)


def _finished(sweeper: Sweeper, results: Sequence[Result]) -> SweepOutcome:
    write_page(sweeper.sweep, results, sweeper.directory)
    return SweepOutcome(sweeper.sweep, sweeper.directory, tuple(results), sweeper.interrupted)


def _write_tables(sweeper: Sweeper, results: Sequence[Result]) -> None:
    sweep, directory = sweeper.sweep, sweeper.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / COPY, sweep.source)
        write_whole(directory / "sweep.json", json.dumps(to_json(sweep, results), indent=2) + "\n")
        write_whole(directory / "sweep.md", markdown(sweep, results))
    except OSError as error:
        raise RunError(
            f"cannot write the tables in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None
