"""The command `export`: the results of runs, in the forms of other tools."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node.files import read_untrusted
from orchestrator.errors import RecordError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.destinations import Destination
from orchestrator.record.directory import RunDirectory, find_run
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.results.history import History
from orchestrator.scenario.exporters import EXPORTERS, ExporterKind


def find_runs(names: Sequence[str], runs: Path) -> list[RunDirectory]:
    """The named runs, each once. A name may also be that of a sweep, which stands for the runs in its table. Without
    names, the latest run. RunError if there is no such run, RecordError if the table of a sweep cannot be read."""
    if not names:
        return _runs_named(None, runs)
    directories: list[RunDirectory] = []
    for name in names:
        directories.extend(_runs_named(name, runs))
    return list(dict.fromkeys(directories))


def _runs_named(name: str | None, runs: Path) -> list[RunDirectory]:
    table = find_table(name, runs)
    if table is None:
        return [find_run(name, runs)]
    directories = []
    for path in _runs_of(table):
        directories.append(RunDirectory(path.resolve()))
    return directories


def find_table(name: str | None, runs: Path) -> Path | None:
    """The sweep.json of the sweep with this name or folder; None if there is none."""
    if name is None:
        return None
    for folder in (runs / name, Path(name)):
        table = folder / "sweep.json"
        if os.path.exists(table):
            return table
    return None


def read_table(table: Path) -> dict[str, Any]:
    """The content of a sweep.json. RecordError if it cannot be read."""
    try:
        content = read_untrusted(table, LONGEST_DOCUMENT)
        return dict(json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _unreadable(table, error) from None


def _runs_of(table: Path) -> list[Path]:
    """The runs in the table of a sweep. They lie next to the table, which may have been moved."""
    paths = []
    try:
        for case in read_table(table)["cases"]:
            for row in case["runs"]:
                if row["run"]:
                    run = Path(row["run"]).name
                    paths.append(table.parent / run)
    except (LookupError, TypeError) as error:
        raise _unreadable(table, error) from None
    return paths


def _unreadable(table: Path, error: Exception) -> RecordError:
    return RecordError(f"{table} cannot be read ({error}): write it again with `sweep`")


def exporters_with(name: str) -> Mapping[str, ExporterKind]:
    """The formats of edgebed; with those of installed plug-ins, if ``name`` is none of edgebed's."""
    if name in EXPORTERS:
        return EXPORTERS
    from orchestrator.scenario.catalogue import installed_exporters

    return installed_exporters()


def export(directories: Sequence[RunDirectory], destination: Destination) -> dict[str, str]:
    """Write the results of runs to a destination. Returns where those of each run lie. If one of the runs is already
    at the destination, nothing is written.

    AlreadyThereError names that run. PlaceError if nothing can be written there, RunError if a package is missing or if
    a plug-in fails."""
    exporters = exporters_with(destination.kind)
    destination.check(exporters)
    store = destination.open(exporters)
    for directory in directories:
        with History.open(directory.path) as history:
            place = store.find(history)
            if place is not None:
                raise AlreadyThereError(history.run, place)
    exported = {}
    for directory in directories:
        with History.open(directory.path) as history:
            exported[history.run] = store.write(history)
    return exported
