"""The report of a run: one self-contained HTML page, which needs no network and no other file."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import RecordError
from orchestrator.host.directory import write_whole
from orchestrator.report.page import render
from orchestrator.results.record.history import History

__all__ = ["render", "write_report"]


def write_report(history: History, path: Path) -> None:
    """Write the report of a run, complete or not. Raises RecordError if the file cannot be written."""
    page = render(history)
    try:
        write_whole(path, page)
    except OSError as error:
        raise RecordError(
            f"the report {path} cannot be written ({error.strerror}): free space, then `report`"
        ) from error
