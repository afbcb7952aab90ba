"""The runs in a folder, found by their plans: what a sweep or a study need not execute again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import OrchestratorError
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.rows import COMPLETE
from orchestrator.results.history import History


class KnownRun(NamedTuple):
    """A run in the folder of a sweep, and how it ended: None if it was killed or still runs."""

    path: Path
    ended: str | None
    error: str | None

    @property
    def complete(self) -> bool:
        return self.ended in COMPLETE

    @property
    def ended_by_itself(self) -> bool:
        """Whether it was neither killed nor interrupted: a failure counts as an end."""
        return self.ended is not None and self.ended != "interrupted"


class KnownRuns:
    """The runs in a folder, by the digest of their plans. Complete ones are read once; others may be continued by other
    processes, which may also add some at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complete: dict[bytes, list[KnownRun]] = {}
        self._read: set[Path] = set()  # the complete ones

    def forget(self) -> None:
        """Look at all runs again: a complete run may have a later one."""
        self._complete.clear()
        self._read.clear()

    def best(self, plan: Mapping[str, Any]) -> KnownRun | None:
        """A complete run of a plan, or else the latest; None if there is none."""
        wanted = digest(plan)
        others: list[KnownRun] = []
        if wanted not in self._complete:
            others = self._look(wanted)
        runs = self._complete.get(wanted) or others
        return runs[-1] if runs else None

    def ended_by_themselves(self, plan: Mapping[str, Any]) -> list[KnownRun]:
        """The runs of a plan that were neither killed nor interrupted, complete ones first."""
        wanted = digest(plan)
        others = self._look(wanted)
        failed = [run for run in others if run.ended_by_itself]
        return [*self._complete.get(wanted, ()), *failed]

    def _look(self, wanted: bytes) -> list[KnownRun]:
        """Read the runs that are not known to be complete. Returns those of this plan that are not, oldest first."""
        others = []
        for listed in known_runs(self._folder):
            if listed.path in self._read:
                continue
            known = _read_run(listed.path)
            if known is None:
                continue
            digest_of_run, run = known
            if run.complete:
                self._complete.setdefault(digest_of_run, []).append(run)
                self._read.add(run.path)
            elif digest_of_run == wanted:
                others.append(run)
        return others


def _read_run(run: Path) -> tuple[bytes, KnownRun] | None:
    """The digest of a run's plan.json, and the run; None if it cannot be read, so that it is repeated."""
    try:
        with History.open(run) as history:
            outcome = history.outcome
            plan = digest(history.plan)
    except OrchestratorError:
        return None
    if outcome is None:
        return plan, KnownRun(run, None, None)
    return plan, KnownRun(run, outcome.ended, outcome.error)


def state_in_words(run: KnownRun | None) -> str:
    """The state of a run that is not complete."""
    if run is None:
        return "no run"
    if run.ended is None:
        if RunDirectory(run.path).holder() is None:
            return "it was killed"
        return "it is running"
    return f"it was {run.ended}"


def digest(plan: Mapping[str, Any]) -> bytes:
    """A plan can have megabytes, and a sweep thousands of runs."""
    plan_text = json.dumps(plan)
    return hashlib.sha256(plan_text.encode()).digest()
