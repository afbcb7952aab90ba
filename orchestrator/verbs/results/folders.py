"""The folders of runs: wait until a run has ended, and remove runs."""

from __future__ import annotations

import os
import select
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.host.process import processes
from orchestrator.host.tail import follow_file
from orchestrator.record.directory import RunDirectory, is_run, known_runs
from orchestrator.record.schema import DATABASE
from orchestrator.report.judgement import exit_code
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.verbs.background import OUTPUT

LOOK_EVERY = 0.1  # s
REPORT_PATIENCE = 60.0  # s for the report of an ended run, if its process continues with other work


def follow_to_end(directory: RunDirectory) -> Iterator[str]:
    """Yield what a run in the background prints, until the run has ended and its report is written."""
    holder = directory.latest_holder()  # it may have released the lock and still write the report
    log = directory.path / OUTPUT
    if log.exists():
        yield from follow_file(log, lambda: directory.holder() is not None)
    while directory.holder() is not None:
        time.sleep(LOOK_EVERY)
    if holder is not None:
        _wait_for_report(directory, holder)


def _wait_for_report(directory: RunDirectory, holder: int) -> None:
    """Wait for the report, the last file that the process ``holder`` of an ended run writes."""
    try:
        process = os.pidfd_open(holder)
    except ProcessLookupError:
        return
    try:
        deadline = time.monotonic() + REPORT_PATIENCE
        while not _report_is_current(directory) and time.monotonic() < deadline:
            ended, _, _ = select.select([process], [], [], LOOK_EVERY)
            if ended:
                return
    finally:
        os.close(process)


def _report_is_current(directory: RunDirectory) -> bool:
    report_written = _written(directory.report)
    record_written = _written(directory.path / DATABASE)
    return report_written >= record_written


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def conclusion(directory: RunDirectory) -> tuple[dict[str, Any], int]:
    """The summary of an ended run, and its exit code. RunError if it was killed or is gone."""
    run = directory.run
    if not is_run(directory.path):
        raise RunError(f"{run} is gone: it could not be started, or was removed")
    with History.open(directory.path) as history:
        if history.outcome is None:
            raise RunError(f"{run} was killed: `resume {run}` continues it, `down {run}` removes what is left of it")
        result = summary(history)
    code = exit_code(result["ended"], result["checks"])
    return result, code


def removable(names: list[str], runs: Path) -> list[RunDirectory]:
    """The runs of these names in a folder. RunError if one of them must not be removed; then none should be."""
    directories = [_folder_of(name, runs) for name in names]
    by_path = {}
    for directory in directories:
        directory.refuse_held()
        run = directory.run
        if directory.nodes.exists() or processes.run_processes(run):
            raise RunError(f"parts of {run} are still on this host: `down {run}` first")
        by_path[directory.path] = directory
    return list(by_path.values())


def _folder_of(name: str, runs: Path) -> RunDirectory:
    place = runs.resolve()
    by_name = place / name
    by_path = Path(name).absolute()
    for path in (by_name, by_path):
        if is_run(path):
            inside = place in path.parents
            if inside and path.resolve() == path:
                return RunDirectory(path)
            raise RunError(f"{name} is not removed: it leads out of {runs}, or is a link")
    latest_runs = known_runs(runs)[-5:]
    latest = ", ".join(directory.run for directory in latest_runs)
    raise RunError(f"there is no run '{name}' in {runs}; the latest are: {latest or 'none'}")


def remove(directory: RunDirectory) -> None:
    """Remove the folder of a run. Links in it are removed, not followed. RunError if it cannot be removed."""
    with directory.held():  # no `resume` starts now
        try:
            shutil.rmtree(directory.path)
        except OSError as error:
            raise RunError(f"{directory.path} cannot be removed: {error.filename}: {error.strerror}") from None
