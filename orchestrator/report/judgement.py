"""The judgement of a run from its record alone: its summary, its report and its exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from node.catalogue.json_text import strict_json
from orchestrator.errors import RecordError, RunError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.record.directory import RunDirectory, write_whole
from orchestrator.report.page import write_report
from orchestrator.results.checks.registry import Check, overall
from orchestrator.results.history import History
from orchestrator.results.summary import summary

EXIT_CODE_OF_VERDICT = {"pass": 0, "unknown": 0, "fail": 3}


@dataclass(frozen=True)
class Conclusion:
    """The object that `up --json` prints, and the exit code. ``unwritten``: why the report could not be written."""

    summary: dict[str, Any]
    exit_code: int
    unwritten: str | None = None

    @property
    def error(self) -> str | None:
        """What went wrong, in a sentence."""
        return self.summary["error"] or self.unwritten


def judged(directory: RunDirectory, reason: str, error: str | None) -> Conclusion:
    """The conclusion of a run that has just ended, with the reason of its end. It has the verdict even if the report
    cannot be written."""
    unwritten = None
    try:
        with contextlib.closing(History.open(directory.path)) as history:
            result = summary(history)
            if result["ended"] is None:  # the disk had no room even for the outcome
                result["ended"] = reason
                result["error"] = error
            try:
                _write_down(directory, history, result)
            except RecordError as refusal:
                unwritten = str(refusal)
    except RecordError as damage:
        raise RunError(error or str(damage)) from damage
    code = exit_code(reason, result["checks"])
    if unwritten is not None and code != INTERRUPTED:
        code = 1
    return Conclusion(result, code, unwritten)


def exit_code(reason: str, checks: Sequence[Check]) -> int:
    """The exit code of a run, from the reason of its end and from its checks."""
    if reason == "interrupted":
        return INTERRUPTED
    if reason == "failed":
        return 1
    return EXIT_CODE_OF_VERDICT[overall(checks)]


def judge(directory: RunDirectory) -> dict[str, Any]:
    """Write summary.json and report.html from a run's record; return the summary. Can be repeated at any time."""
    with History.open(directory.path) as history:
        result = summary(history)
        _write_down(directory, history, result)
    return result


def _write_down(directory: RunDirectory, history: History, result: dict[str, Any]) -> None:
    """Write summary.json and report.html. RecordError if there is no room for them."""
    text = strict_json(result, indent=2) + "\n"
    try:
        write_whole(directory.summary, text)
    except OSError as error:
        raise RecordError(
            f"{directory.summary} cannot be written ({error.strerror}): free space, then `report {directory.run}`"
        ) from None
    write_report(history, directory.report)
