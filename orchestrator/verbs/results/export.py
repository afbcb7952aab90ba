"""The command `export`: the results of runs, in the forms of other tools."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from node.files import read_untrusted
from orchestrator.errors import RecordError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.kinds import Destination
from orchestrator.record.directory import RunDirectory, find_run
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.results.history import History


def find_runs(names: Sequence[str], runs: Path) -> list[RunDirectory]:
    """The named runs, each once. A name may also be that of a sweep, which stands for the runs in its table. Without
    names, the latest run. RunError if there is no such run, RecordError if the table of a sweep cannot be read."""
    found = [directory for name in names or (None,) for directory in _found(name, runs)]
    return list(dict.fromkeys(found))


def _found(name: str | None, runs: Path) -> list[RunDirectory]:
    table = find_table(name, runs)
    if table is not None:
        return [RunDirectory(path.resolve()) for path in _runs_of(table)]
    return [find_run(name, runs)]


def find_table(name: str | None, runs: Path) -> Path | None:
    """The sweep.json of the sweep with this name or folder; None if there is none."""
    places = () if name is None else (runs / name / "sweep.json", Path(name) / "sweep.json")
    return next(filter(os.path.exists, places), None)


def read_table(table: Path) -> dict[str, Any]:
    """The content of a sweep.json. RecordError if it cannot be read."""
    try:
        return dict(json.loads(read_untrusted(table, LONGEST_DOCUMENT)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"{table} cannot be read ({error}): write it again with `sweep`") from None


def _runs_of(table: Path) -> list[Path]:
    """The runs in the table of a sweep. They lie next to the table, which may have been moved."""
    try:
        cases = read_table(table)["cases"]
        return [table.parent / Path(each["run"]).name for case in cases for each in case["runs"] if each["run"]]
    except (LookupError, TypeError) as error:
        raise RecordError(f"{table} cannot be read ({error}): write it again with `sweep`") from None


def export(directories: Sequence[RunDirectory], destination: Destination) -> dict[str, str]:
    """Write the results of runs to a destination. Returns where those of each run lie. If one of the runs is there
    already, nothing is written.

    AlreadyThereError names that run. PlaceError if nothing can be written there, RunError if a package is missing."""
    destination.check()
    store = destination.open()
    for directory in directories:
        with History.open(directory.path) as history:
            there = store.find(history)
            if there is not None:
                raise AlreadyThereError(history.run, there)
    exported = {}
    for directory in directories:
        with History.open(directory.path) as history:
            exported[history.run] = store.write(history)
    return exported
