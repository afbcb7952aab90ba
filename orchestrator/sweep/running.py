"""Execution of a sweep: run the combinations that have no complete run, and write the tables and the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.errors import OrchestratorError, RunError
from orchestrator.exports.kinds import Destination
from orchestrator.host.directory import RunDirectory, known_runs
from orchestrator.host.signals import INTERRUPTED, interrupted
from orchestrator.planning.plan import Plan
from orchestrator.results.checks import checks, overall
from orchestrator.results.history import History
from orchestrator.results.rows import COMPLETE
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.progress_line import Glimpse
from orchestrator.run.tracking import tracked
from orchestrator.scenario.reading import placed
from orchestrator.sweep.figures import Figures, Result, figures
from orchestrator.sweep.page import write_page
from orchestrator.sweep.reading import Combination, Sweep
from orchestrator.sweep.tables import markdown, to_json


@dataclass(frozen=True)
class SweepOutcome:
    """The outcome of a sweep, with its exit code."""

    sweep: Sweep
    directory: Path
    results: tuple[Result, ...]
    interrupted: bool

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if any(result.failed for result in self.results):
            return 1
        return 3 if any(result.verdict == "fail" for result in self.results) else 0

    def to_json(self) -> dict[str, Any]:
        return to_json(self.sweep, self.results)


def carry_out(
    sweep: Sweep,
    directory: Path,
    *,
    workers: int | None,
    again: bool = False,
    tell: Callable[[str], None],
    track: Sequence[Destination] = (),
) -> SweepOutcome:
    """Run every combination of a sweep in ``directory``, one after another. Write sweep.json and sweep.md after each,
    and sweep.html at the end.

    A combination that has a complete run with an equal plan in ``directory`` is not repeated, unless ``again``. A
    failed run does not end the sweep; an interrupted one does. ``workers`` as for `launch`; ``tell`` prints a line.
    ``track``: destinations that follow the runs. They also get the runs that are not repeated, if they lack them.
    """
    sweeper = _Sweeper(sweep, directory, workers, {} if again else complete_runs(directory), tell, track)
    results: list[Result] = []
    for combination in sweep.combinations:
        results.append(sweeper.run(combination))
        _write(sweep, directory, results)
        if sweeper.interrupted:
            break
    write_page(sweep, results, directory)
    return SweepOutcome(sweep, directory, tuple(results), sweeper.interrupted)


def draw(sweep: Sweep, directory: Path, *, tell: Callable[[str], None]) -> SweepOutcome:
    """Write sweep.html from the complete runs in ``directory``. Run nothing, and write nothing else.

    RunError if there is no complete run.
    """
    sweeper = _Sweeper(sweep, directory, None, complete_runs(directory), tell, ())
    results = [result for each in sweep.combinations if (result := sweeper.find(each)) is not None]
    if all(result.failed for result in results):
        raise RunError(f"{directory} has no complete run of this sweep: start it without --page")
    write_page(sweep, results, directory)
    return SweepOutcome(sweep, directory, tuple(results), interrupted=False)


def _write(sweep: Sweep, directory: Path, results: Sequence[Result]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "sweep.json").write_text(json.dumps(to_json(sweep, results), indent=2) + "\n", encoding="utf-8")
        (directory / "sweep.md").write_text(markdown(sweep, results), encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"cannot write the tables in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None


class _Sweeper:
    """Runs the combinations, see `carry_out`."""

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
            plan = self._plan(combination)
            return self._known(combination, plan) or self._fresh(combination, plan)
        except OrchestratorError as error:
            return self._failed(combination, error)

    def find(self, combination: Combination) -> Result | None:
        """Find the complete run of a combination; None if there is none."""
        try:
            found = self._known(combination, self._plan(combination))
        except OrchestratorError as error:
            return self._failed(combination, error)
        if found is None:
            self._say(combination, "not run yet")
        return found

    def _plan(self, combination: Combination) -> Plan:
        with placed(self._sweep.scenario, combination.overrides, self._sweep.text):
            return prepared_plan(combination.scenario, self._sweep.scenario)

    def _known(self, combination: Combination, plan: Plan) -> Result | None:
        known = self._complete.get(_digest(plan.recorded))
        if known is None:
            return None
        with tracked(RunDirectory(known), self._track):
            pass
        return self._judged(combination, known, "run before")

    def _failed(self, combination: Combination, error: OrchestratorError) -> Result:
        self._say(combination, f"failed: {error}")
        return Result(combination, None, None, str(error), {})

    def _fresh(self, combination: Combination, plan: Plan) -> Result:
        outcome, directory = launch(
            plan,
            combination.scenario,
            self._sweep.scenario,
            combination.overrides,
            self._directory,
            lambda _: Glimpse(self._name(combination)),
            workers=self._workers,
            meta={"sweep": self._sweep.name, "case": combination.case},
            text=self._sweep.text,
            track=self._track,
        )
        self.interrupted = outcome.exit_code == INTERRUPTED or interrupted()
        if outcome.summary["ended"] not in COMPLETE:
            error = outcome.summary["error"] or outcome.summary["ended"]
            self._say(combination, f"failed: {error}; see {directory.path}")
            return Result(combination, directory.path, None, error, {})
        return self._judged(combination, directory.path, "done")

    def _judged(self, combination: Combination, run: Path, how: str) -> Result:
        with History.open(run) as history:
            found = figures(history, self._sweep.target)
            verdict = overall(checks(history))
        self._say(combination, f"{how}, {_in_words(found)}{'' if verdict == 'pass' else f', checks: {verdict}'}")
        return Result(combination, run, verdict, None, found)

    def _say(self, combination: Combination, what: str) -> None:
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
