"""Execution of a sweep: run the combinations that have no complete run, and write the tables after every run."""

from __future__ import annotations

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
    """Run every combination of a sweep in ``directory``, one after another; write sweep.json and sweep.md after each.

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
    return SweepOutcome(sweep, directory, tuple(results), sweeper.interrupted)


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
        complete: Mapping[str, Path],
        tell: Callable[[str], None],
        track: Sequence[Destination],
    ) -> None:
        self._sweep, self._directory, self._workers = sweep, directory, workers
        self._complete, self._tell, self._track = complete, tell, track
        self.interrupted = False

    def run(self, combination: Combination) -> Result:
        """Run a combination, or find its complete run."""
        try:
            with placed(self._sweep.scenario, combination.overrides):
                plan = prepared_plan(combination.scenario, self._sweep.scenario)
            if (known := self._complete.get(json.dumps(plan.recorded))) is not None:
                with tracked(RunDirectory(known), self._track):
                    pass
                return self._judged(combination, known, "run before")
            return self._fresh(combination, plan)
        except OrchestratorError as error:
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


def complete_runs(directory: Path) -> dict[str, Path]:
    """The complete runs in a folder, by the content of their plan.json."""
    found = {}
    for run in known_runs(directory):
        try:
            with History.open(run.path) as history:
                outcome = history.outcome
                if outcome is not None and outcome.ended in COMPLETE:
                    found[json.dumps(history.plan)] = run.path
        except OrchestratorError:
            continue  # an unreadable run is repeated
    return found


def _in_words(found: Figures) -> str:
    accuracy = next((found[name] for name in ("final.global", "final.clients", "final.edges") if name in found), None)
    rounds = text.count(int(found["rounds"]), "round")
    return f"{text.percent(accuracy)} after {rounds} in {text.duration(found['seconds'])}"
