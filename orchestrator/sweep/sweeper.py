"""One combination of a sweep: its plan, its complete run, or a fresh one, and the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.errors import OrchestratorError
from orchestrator.exports.kinds import Destination
from orchestrator.host.directory import RunDirectory, known_runs
from orchestrator.host.process.signals import INTERRUPTED, interrupted
from orchestrator.planning.plan import Plan
from orchestrator.results.checks.registry import checks, overall
from orchestrator.results.record.history import History
from orchestrator.results.record.rows import COMPLETE
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.judgement import judge
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.options import Origin, RunOptions
from orchestrator.run.remote import begun
from orchestrator.run.trackers import tracked
from orchestrator.scenario.reading import placed
from orchestrator.sweep.figures import Figures, Result, figures
from orchestrator.sweep.reading import Combination, Sweep


class Sweeper:
    """Runs the combinations of a sweep in ``directory``, see `orchestrator.sweep.running.carry_out`. ``complete``: the
    complete runs there, by the digest of their plan."""

    def __init__(
        self,
        sweep: Sweep,
        directory: Path,
        workers: int | None,
        complete: Mapping[bytes, Path],
        tell: Callable[[str], None],
        track: Sequence[Destination],
    ) -> None:
        self._sweep, self._directory, self._workers = sweep, directory, workers
        self._complete, self._tell, self._track = complete, tell, track
        self.interrupted = False

    def run(self, combination: Combination) -> Result:
        """Run a combination, or find its complete run."""
        try:
            plan = self.plan(combination)
            return self.known(combination, plan) or self._fresh(combination, plan)
        except OrchestratorError as error:
            return self.failed(combination, error)

    def find(self, combination: Combination) -> Result | None:
        """Find the complete run of a combination; None if there is none."""
        try:
            found = self.known(combination, self.plan(combination))
        except OrchestratorError as error:
            return self.failed(combination, error)
        if found is None:
            self.say(combination, "not run yet")
        return found

    def plan(self, combination: Combination) -> Plan:
        """The plan of a combination. OrchestratorError if there is none."""
        with placed(self._sweep.scenario, combination.overrides, self._sweep.text):
            return prepared_plan(combination.scenario, self._sweep.scenario)

    def known(self, combination: Combination, plan: Plan) -> Result | None:
        """The result of the complete run of a plan; None if there is none."""
        known = self._complete.get(_digest(plan.recorded))
        if known is None:
            return None
        with tracked(RunDirectory(known), self._track):
            pass
        return self._judged(combination, known, "run before")

    def failed(self, combination: Combination, error: OrchestratorError | str) -> Result:
        """The result of a combination without a run."""
        self.say(combination, f"failed: {error}")
        return Result(combination, None, None, str(error), {})

    def begin(self, combination: Combination, plan: Plan) -> RunDirectory:
        """Begin a run that is carried out elsewhere."""
        return begun(plan, self._origin(combination), self._directory)

    def came_back(self, combination: Combination, directory: RunDirectory, how: str) -> Result:
        """Judge a run that was carried out elsewhere, ``how`` in words."""
        summary = judge(directory)
        with tracked(directory, self._track):
            pass
        return self._concluded(combination, summary, directory.path, how)

    def _origin(self, combination: Combination) -> Origin:
        sweep, meta = self._sweep, self._meta(combination)
        return Origin(combination.scenario, sweep.scenario, combination.overrides, sweep.text, meta)

    def _fresh(self, combination: Combination, plan: Plan) -> Result:
        outcome, directory = launch(
            plan,
            self._origin(combination),
            self._directory,
            lambda _: Glimpse(self._name(combination)),
            RunOptions(self._workers, track=self._track),
        )
        self.interrupted = outcome.exit_code == INTERRUPTED or interrupted()
        return self._concluded(combination, outcome.summary, directory.path, "done")

    def _concluded(self, combination: Combination, summary: Mapping[str, Any], run: Path, how: str) -> Result:
        if summary["ended"] not in COMPLETE:
            error = summary["error"] or summary["ended"]
            self.say(combination, f"{error if self.interrupted else f'failed: {error}'}; see {run}")
            return Result(combination, run, None, error, {})
        return self._judged(combination, run, how)

    def _judged(self, combination: Combination, run: Path, how: str) -> Result:
        with History.open(run) as history:
            found = figures(history, self._sweep.target)
            verdict = overall(checks(history))
        self.say(combination, f"{how}, {_in_words(found)}{'' if verdict == 'pass' else f', checks: {verdict}'}")
        return Result(combination, run, verdict, None, found)

    def _meta(self, combination: Combination) -> dict[str, str]:
        return {"sweep": self._sweep.name, "case": combination.case}

    def say(self, combination: Combination, what: str) -> None:
        """Tell something about a combination."""
        self._tell(f"{self._name(combination)}: {what}")

    def _name(self, combination: Combination) -> str:
        place = self._sweep.combinations.index(combination) + 1
        return f"[{place}/{len(self._sweep.combinations)}] {combination.case}, seed {combination.seed}"


def complete_runs(directory: Path) -> dict[bytes, Path]:
    """The complete runs in a folder, by the digest of their plan.json."""
    found = {}
    for run in known_runs(directory):
        try:
            with History.open(run.path) as history:
                outcome = history.outcome
                if outcome is not None and outcome.ended in COMPLETE:
                    found[_digest(history.plan)] = run.path
        except OrchestratorError:
            continue  # an unreadable run is repeated
    return found


def _digest(plan: Mapping[str, Any]) -> bytes:
    """A plan can have megabytes, and a sweep thousands of runs."""
    return hashlib.sha256(json.dumps(plan).encode()).digest()


def _in_words(found: Figures) -> str:
    accuracy = next((found[name] for name in ("final.global", "final.clients", "final.edges") if name in found), None)
    rounds = text.count(int(found["rounds"]), "round")
    return f"{text.percent(accuracy)} after {rounds} in {text.duration(found['seconds'])}"
