"""The searches of a study in processes of their own, for simulations: each is a task, as of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.limits.reading import Study
from orchestrator.limits.runs import StudyRuns, Tell, ignore
from orchestrator.limits.study import StudyResult, carry_out, scale_of
from orchestrator.sweep.jobs import execute_in_parallel


def carry_out_in_parallel(
    count: int,
    study: Study,
    directory: Path,
    tell: Tell,
    arguments: Sequence[str],
    workers: int | None,
) -> StudyResult:
    """Make the unimpaired runs, then ``count`` searches at the same time, and read the results. ``arguments``: those
    of the command line that all tasks have."""
    runs = StudyRuns(study, directory, workers)
    for case in study.cases:
        scale_of(study, runs, case, tell)
    words = ["limits", str(study.file), *arguments, "--workers", str(workers or 1)]
    complete = execute_in_parallel(count, range(study.searches), words, tell, ignore)
    ended = None if complete else "interrupted"
    return carry_out(study, directory, ignore, workers, ended=ended)
