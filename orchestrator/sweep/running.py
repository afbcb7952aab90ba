"""Execution of a sweep: its tasks, numbered from 0, and the tables and the page of their runs.

Any number of processes can execute tasks of a sweep in one folder at the same time, each on a host of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.exports.kinds import Destination
from orchestrator.host.directory import write_whole
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.sweep.figures import Result
from orchestrator.sweep.jobs import execute_in_parallel, execute_job, task_words, write_job
from orchestrator.sweep.page import write_page
from orchestrator.sweep.reading import Sweep
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


def carry_out(
    sweep: Sweep,
    directory: Path,
    *,
    workers: int | None,
    again: bool = False,
    tell: Callable[[str], None],
    track: Sequence[Destination] = (),
) -> SweepOutcome:
    """Execute the tasks of a sweep in ``directory``, one after another. Write sweep.json and sweep.md after each,
    and sweep.html at the end.

    A combination that has a complete run with an equal plan in ``directory`` is not repeated, unless ``again``. A
    failed run does not end the sweep; an interrupted one does. ``workers`` as for `launch`; ``tell`` prints a line.
    ``track``: destinations that follow the runs. They also get the runs that are not repeated, if they lack them.
    """
    sweeper = Sweeper(sweep, directory, workers, tell, track, again=again)
    results: list[Result] = []
    for number in range(len(sweep.combinations)):
        result = sweeper.run(number)
        if not (sweeper.interrupted and result.failed):  # a run that was interrupted has not failed
            results.append(result)
        _write(sweep, directory, results)
        if sweeper.interrupted:
            break
    write_page(sweep, results, directory)
    return SweepOutcome(sweep, directory, tuple(results), sweeper.interrupted)


def carry_out_on(
    scheduler: str,
    sweep: Sweep,
    directory: Path,
    arguments: Sequence[str],
    *,
    workers: int | None,
    image: str,
    tell: Callable[[str], None],
    track: Sequence[Destination] = (),
) -> SweepOutcome:
    """Have a scheduler execute the tasks of a sweep, see `write_job`, and collect. Submits nothing if all runs are
    complete, unless ``arguments`` repeat them."""
    if _to_do(sweep, directory, arguments):
        job, file = write_job(scheduler, sweep, directory, arguments, workers=workers, image=image)
        execute_job(scheduler, sweep, job, file, tell)
    return collect(sweep, directory, tell=tell, track=track)


def carry_out_in_parallel(
    count: int,
    sweep: Sweep,
    directory: Path,
    arguments: Sequence[str],
    *,
    workers: int | None,
    tell: Callable[[str], None],
    track: Sequence[Destination] = (),
) -> SweepOutcome:
    """Like `carry_out`, for simulations, with ``count`` tasks at the same time, each in its own process. ``arguments``
    are those of `carry_out_on`. A task trains in ``workers`` processes, by default one. KeyboardInterrupt if this is
    interrupted."""
    execute_in_parallel(count, _to_do(sweep, directory, arguments), task_words(sweep, arguments, workers or 1), tell)
    return collect(sweep, directory, tell=lambda _: None, track=track)  # the tasks have printed their results


def _to_do(sweep: Sweep, directory: Path, arguments: Sequence[str]) -> list[int]:
    """The tasks without a complete run, or all tasks if ``arguments`` contain --again."""
    sweeper = Sweeper(sweep, directory, None, lambda _: None)
    results = {number: sweeper.find(number) for number in range(len(sweep.combinations))}
    return [number for number, each in results.items() if "--again" in arguments or each is None or each.failed]


def run_task(
    sweep: Sweep,
    number: int,
    directory: Path,
    *,
    workers: int | None,
    again: bool = False,
    tell: Callable[[str], None],
    track: Sequence[Destination] = (),
) -> tuple[Result, int]:
    """Execute the task with this number in ``directory``; parameters as for `carry_out`. Writes no tables. Returns its
    result and the exit code: 0 if the run is complete, whatever its checks say; 1 if it failed. RunError if the sweep
    has no such task."""
    if not 0 <= number < len(sweep.combinations):
        raise RunError(f"there is no task {number}: this sweep has the tasks 0 to {len(sweep.combinations) - 1}")
    sweeper = Sweeper(sweep, directory, workers, tell, track, again=again)
    result = sweeper.run(number)
    return result, INTERRUPTED if sweeper.interrupted and result.failed else int(result.failed)


def collect(
    sweep: Sweep, directory: Path, *, tell: Callable[[str], None], track: Sequence[Destination] = ()
) -> SweepOutcome:
    """Write the tables and the page of the runs in ``directory``. Run nothing. ``tell`` prints what is missing.
    RunError if there is no complete run."""
    sweeper = Sweeper(sweep, directory, None, tell, track)
    found = [sweeper.find(number) for number in range(len(sweep.combinations))]
    results = [each for each in found if each is not None]
    if all(result.failed for result in results):
        raise RunError(f"{directory} has no complete run of this sweep: start it without --collect")
    _write(sweep, directory, results)
    write_page(sweep, results, directory)
    return SweepOutcome(sweep, directory, tuple(results), interrupted=False)


def _write(sweep: Sweep, directory: Path, results: Sequence[Result]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / "sweep.json", json.dumps(to_json(sweep, results), indent=2) + "\n")
        write_whole(directory / "sweep.md", markdown(sweep, results))
    except OSError as error:
        raise RunError(
            f"cannot write the tables in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None
