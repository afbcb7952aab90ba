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
    """The runs in a folder that have ended by themselves, by the digest of their plans, oldest first. Each is read
    once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_plan: dict[bytes, list[KnownRun]] = {}
        self._read: set[Path] = set()

    def of(self, plan: Mapping[str, Any]) -> list[KnownRun]:
        """The runs with this plan. Other processes may add some at any time."""
        for listed in known_runs(self._folder):
            if listed.path in self._read:
                continue
            known = read_run(listed.path)
            if known is not None and known[1].ended_by_itself:
                self._by_plan.setdefault(known[0], []).append(known[1])
                self._read.add(listed.path)
        return list(self._by_plan.get(digest(plan), ()))


def read_run(run: Path) -> tuple[bytes, KnownRun] | None:
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
