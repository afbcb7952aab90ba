"""Execution of a sweep: its tasks, numbered from 0, and the tables and the page of their runs.

Any number of processes can execute tasks of a sweep in one folder at the same time, each on a host of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.record.directory import write_whole
from orchestrator.sweep.jobs import execute_in_parallel, execute_job, task_words, write_job
from orchestrator.sweep.page import write_page
from orchestrator.sweep.quantities import Result
from orchestrator.sweep.reading import COPY, Sweep
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import latex, markdown, to_json

PAGE_SHARE = 0.1  # of the time of a sweep that its page may take before the end


@dataclass(frozen=True)
class SweepOutcome:
    """The outcome of a sweep, with its exit code."""

    sweep: Sweep
    directory: Path
    results: tuple[Result, ...]
    interrupted: bool
    again: bool = False

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if len(self.results) < len(self.sweep.combinations):
            return 1
        if any(result.failed for result in self.results):
            return 1
        if any(result.verdict == "fail" for result in self.results):
            return 3
        return 0

    @property
    def how_to_continue(self) -> str:
        """What is complete, and how to continue, in a sentence; empty if the sweep was not interrupted."""
        if not self.interrupted:
            return ""
        complete = sum(not result.failed for result in self.results)
        planned = text.count(len(self.sweep.combinations), "run")
        without = " without --again" if self.again else ""
        return f"interrupted: {complete} of {planned} complete; repeat the command{without} to continue"

    def to_json(self) -> dict[str, Any]:
        return to_json(self.sweep, self.results)


def carry_out(sweeper: Sweeper) -> SweepOutcome:
    """Execute the tasks of a sweep, one after another. Write the tables and the page after each. A failed run does not
    end the sweep; an interrupted one does."""
    results: list[Result] = []
    output = Output(sweeper.sweep, sweeper.directory)
    try:
        for number in range(len(sweeper.sweep.combinations)):
            result = sweeper.run(number)
            run_was_interrupted = sweeper.interrupted and result.failed
            if not run_was_interrupted:
                results.append(result)
            output.write(results)
            if sweeper.interrupted:
                break
    except KeyboardInterrupt:  # between two runs
        sweeper.interrupted = True
    return _finished(sweeper, results)


def carry_out_on(
    scheduler: str,
    sweeper: Sweeper,
    arguments: Sequence[str],
    image: str,
) -> SweepOutcome:
    """Have a scheduler execute the tasks of a sweep, see `write_job`, and collect. Submits nothing if no task is to
    do."""
    if sweeper.to_do():
        job, file = write_job(
            scheduler,
            sweeper.sweep,
            sweeper.directory,
            arguments,
            workers=sweeper.workers,
            image=image,
        )
        execute_job(scheduler, sweeper.sweep, job, file, sweeper.tell)
    return collect(sweeper)


def carry_out_in_parallel(count: int, sweeper: Sweeper, arguments: Sequence[str]) -> SweepOutcome:
    """Like `carry_out`, for simulations, with ``count`` tasks at the same time, each in its own process. A task trains
    in one process, unless the sweeper has another number of ``workers``."""
    sweep = sweeper.sweep
    print_line = sweeper.tell
    words = task_words(sweep, arguments, sweeper.workers or 1)
    output = Output(sweep, sweeper.directory)
    to_do = sweeper.to_do()
    sweeper.tell = lambda _: None  # the tasks print their results
    results: dict[int, Result] = {}

    def take(number: int) -> None:
        result = sweeper.find(number)
        if result is not None:
            results[number] = result

    def ended(number: int) -> None:
        if sweeper.again:
            sweeper.known.forget()
        take(number)
        output.write(_in_order(results))

    numbers = set(range(len(sweep.combinations)))
    for number in numbers - set(to_do):
        take(number)
    sweeper.interrupted = not execute_in_parallel(count, to_do, words, print_line, ended)
    if not sweeper.interrupted:
        return collect(sweeper)
    if not sweeper.again:
        for number in to_do:  # some have ended
            take(number)
    complete = [result for result in _in_order(results) if not result.failed]
    return _finished(sweeper, complete)


def _in_order(results: Mapping[int, Result]) -> list[Result]:
    """The results by the number of their tasks."""
    return [result for _, result in sorted(results.items())]


def run_task(sweeper: Sweeper, number: int) -> tuple[Result, int]:
    """Execute the task with this number. Writes no tables. Returns its result and the exit code: 0 if the run is
    complete, whatever the verdicts of its checks; 1 if it failed. RunError if the sweep has no such task."""
    tasks = len(sweeper.sweep.combinations)
    if not 0 <= number < tasks:
        raise RunError(f"there is no task {number}: this sweep has the tasks 0 to {tasks - 1}")
    result = sweeper.run(number)
    if not result.failed:
        return result, 0
    return result, INTERRUPTED if sweeper.interrupted else 1


def collect(sweeper: Sweeper) -> SweepOutcome:
    """Write the tables and the page of the complete runs. Run nothing. The sweeper prints what is missing.
    RunError if there is no complete run."""
    results = []
    for number in range(len(sweeper.sweep.combinations)):
        result = sweeper.find(number)
        if result is not None:
            results.append(result)
    if all(result.failed for result in results):
        raise RunError(f"{sweeper.directory} has no complete run of this sweep: start it without --collect")
    return _finished(sweeper, results)


def _finished(sweeper: Sweeper, results: Sequence[Result]) -> SweepOutcome:
    write_tables(sweeper.sweep, results, sweeper.directory)
    write_page(sweeper.sweep, results, sweeper.directory, with_figures=True)
    return SweepOutcome(
        sweeper.sweep,
        sweeper.directory,
        results=tuple(results),
        interrupted=sweeper.interrupted,
        again=sweeper.again,
    )


class Output:
    """The files of a sweep that runs: its tables after every run, and its page, as long as it takes little time."""

    def __init__(self, sweep: Sweep, directory: Path) -> None:
        self._sweep = sweep
        self._directory = directory
        self._next_page = 0.0  # on the monotonic clock

    def write(self, results: Sequence[Result]) -> None:
        write_tables(self._sweep, results, self._directory)
        began = time.monotonic()
        if began < self._next_page:
            return
        write_page(self._sweep, results, self._directory)
        ended = time.monotonic()
        self._next_page = ended + (ended - began) / PAGE_SHARE


def write_tables(sweep: Sweep, results: Sequence[Result], directory: Path) -> None:
    """Write sweep.json, sweep.md and sweep.tex. RunError if there is no room."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / COPY, sweep.source)
        facts = json.dumps(to_json(sweep, results), indent=2)
        write_whole(directory / "sweep.json", facts + "\n")
        write_whole(directory / "sweep.md", markdown(sweep, results))
        write_whole(directory / "sweep.tex", latex(sweep, results))
    except OSError as error:
        raise RunError(
            f"cannot write the tables in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None
