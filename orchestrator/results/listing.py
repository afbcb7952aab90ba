"""The runs in a folder, one row each, in plain JSON values.

A row is read again only when the files of its run have changed, so that a folder of a thousand runs is listed at once.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from node.files import read_untrusted
from orchestrator.errors import OrchestratorError, RecordError, RunError
from orchestrator.record.damage import DAMAGE
from orchestrator.record.directory import RunDirectory, is_run, paths_in
from orchestrator.record.schema import DATABASE, LONGEST_DOCUMENT
from orchestrator.results.checks.verdicts import WORST_FIRST

Row = dict[str, Any]
Signature = tuple[tuple[int, int] | None, ...]
TEXTS = {"run", "name", "sweep", "algorithm", "driver", "status", "verdict", "ended", "error"}
FILES = (DATABASE, f"{DATABASE}-wal", "summary.json")


class Listing:
    """The runs of a folder, and of the folders of sweeps in it. Not for several threads at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[Signature, Row]] = {}

    def rows(self) -> list[Row]:
        """One row for each run: those that are running first, then the latest first."""
        rows = {}
        for name, path in run_paths(self.folder):
            rows[name] = self._row(name, RunDirectory(path))
        self._read = {name: self._read[name] for name in rows}
        return sorted(rows.values(), key=_order)

    def _row(self, name: str, directory: RunDirectory) -> Row:
        now = signature(directory)
        signed, row = self._read.get(name, (None, {}))
        if signed == now and row["status"] != "running":
            return row
        if signed != now or not is_held(directory):
            row = run_row(name, directory)
            self._read[name] = now, row
        return row


def _order(row: Row) -> tuple[bool, float, str]:
    return row["status"] != "running", -row["began"], row["run"]


def run_paths(folder: Path) -> Iterator[tuple[str, Path]]:
    """The name of each run below the folder, and its directory. The name of a run of a sweep is ``sweep/run``."""
    for path in paths_in(folder):
        if is_run(path):
            yield path.name, path
        else:
            with contextlib.suppress(RunError):  # another user's folder
                for run in paths_in(path):
                    if is_run(run):
                        yield f"{path.name}/{run.name}", run


def find(folder: Path, name: str) -> RunDirectory:
    """The run of this name. RecordError if the folder has none. No name leads out of the folder."""
    parts = name.split("/")
    leads_out = {"", ".", ".."} & set(parts)
    stays_inside = len(parts) <= 2 and not leads_out
    if stays_inside:
        path = folder.joinpath(*parts)
        if is_run(path):
            return RunDirectory(path)
    raise RecordError(f"there is no run '{name}' in {folder}")


def signature(directory: RunDirectory) -> Signature:
    """Changes whenever the record or the summary of a run is written: time and size of their files."""
    return tuple(_stamp(directory.path / name) for name in FILES)


def run_row(name: str, directory: RunDirectory) -> Row:
    """One run. What cannot be read of it is None, and ``error`` says why. run (its name), name (of its scenario),
    sweep, algorithm, driver, seed, status, verdict, ended, accuracy (fraction), rounds, rounds_planned, seconds, began
    (s since the epoch), error."""
    sweep, _, _ = name.rpartition("/")
    row: Row = {
        "run": name,
        "name": directory.run,
        "sweep": sweep or None,
        "status": "finished",
        "algorithm": None,
        "driver": None,
        "seed": None,
        "verdict": None,
        "ended": None,
        "accuracy": None,
        "rounds": None,
        "rounds_planned": None,
        "seconds": None,
        "began": directory.began,
        "error": None,
    }
    try:
        summary = current_summary(directory)
        if summary is None:
            return _plain(row | _from_record(directory))
        effective = _document(directory.path / "effective.json") or {}
        return _plain(row | _from_summary(summary, effective))
    except OrchestratorError as error:
        return {**row, "status": "unreadable", "error": str(error)}
    except (*DAMAGE, OSError) as error:
        return {**row, "status": "unreadable", "error": f"the run directory is damaged ({error})"}


def _plain(row: Row) -> Row:
    """The row. ValueError or TypeError if it has a value that the page cannot show."""
    for name, value in row.items():
        expected = str if name in TEXTS else int | float
        if value is not None and not isinstance(value, expected):
            raise TypeError(f"{name} is a {type(value).__name__}")
    if row["verdict"] not in (None, *WORST_FIRST):
        raise ValueError(f"the verdict is {row['verdict'][:40]!r}")
    json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    return row


def _from_record(directory: RunDirectory) -> Row:
    """The facts of a run that continues, was cut short, or has no summary. Checks are made of an ended run only."""
    # Loaded only here, since most runs have a summary: a list of these is shown much sooner.
    from orchestrator.results.checks.registry import checks, overall
    from orchestrator.results.evaluation.targets import accuracy_series
    from orchestrator.results.history import History

    with History.open(directory.path) as history:
        plan = history.plan
        algorithm = plan.get("algorithm") or {}
        outcome = history.outcome
        status = history.status
        series = accuracy_series(history, "global")
        accuracy = series[-1].value if series else None
        if accuracy is not None and not math.isfinite(accuracy):
            accuracy = None
        verdict = None
        if status == "finished":
            verdict = overall(checks(history))
        elif status == "crashed":
            verdict = "fail"
        return {
            "name": str(plan.get("name", history.run)),
            "algorithm": algorithm.get("name"),
            "driver": history.driver,
            "seed": plan.get("seed"),
            "status": status,
            "verdict": verdict,
            "ended": outcome.ended if outcome else None,
            "accuracy": accuracy,
            "rounds": history.rounds_done(),
            "rounds_planned": history.rounds_planned,
            "seconds": round(history.seconds, 3),
        }


def _from_summary(summary: Row, effective: Row) -> Row:
    algorithm = effective.get("algorithm")
    stop = effective.get("stop")
    accuracy = summary.get("accuracy") or {}
    return {
        "name": summary.get("name"),
        "driver": summary.get("driver"),
        "verdict": summary.get("verdict"),
        "ended": summary.get("ended"),
        "rounds": summary.get("rounds"),
        "seconds": summary.get("seconds"),
        "algorithm": algorithm.get("name") if isinstance(algorithm, dict) else None,
        "seed": effective.get("seed"),
        "accuracy": accuracy.get("global"),
        "rounds_planned": stop.get("rounds") if isinstance(stop, dict) else None,
    }


def current_summary(directory: RunDirectory) -> Row | None:
    """The summary of an ended run; None if there is none, or if the record was written after it."""
    record, pending, summary = signature(directory)
    if record is None or summary is None:
        return None
    record_written, _ = record
    summary_written, _ = summary
    if summary_written < record_written:
        return None
    if pending is not None:
        _, size = pending
        if size > 0:
            return None
    document = _document(directory.summary)
    if document is not None and document.get("ended") and not is_held(directory):
        return document
    return None


def is_held(directory: RunDirectory) -> bool:
    """Whether the run is going on, as far as its lock shows."""
    try:
        return directory.holder() is not None
    except OrchestratorError:
        return False


def _document(path: Path) -> Row | None:
    try:
        document = json.loads(read_untrusted(path, LONGEST_DOCUMENT))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(document, dict):
        return document
    return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
