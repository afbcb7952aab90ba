"""The runs of a study: each is executed once, also over several calls of the command, and read from its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.host.process.signals import INTERRUPTED, interrupted
from orchestrator.limits.axes import Axis
from orchestrator.limits.outcome import Facts, Judgement, Unimpaired, facts, judge
from orchestrator.limits.reading import Case, Study
from orchestrator.results.history import History
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.links.earlier_measurements import EarlierMeasurements
from orchestrator.run.options import Origin, RunOptions
from orchestrator.scenario.reading import placed
from orchestrator.sweep.known_runs import KnownRuns
from orchestrator.sweep.reading import assignment

ATTEMPTS = 2  # of a run that does not count, because its host was busy


@dataclass(frozen=True)
class Point:
    """One run to make: a case, an axis with a value or none, and a seed."""

    case: Case
    seed: int
    axis: Axis | None = None
    value: float = 0.0

    @property
    def name(self) -> str:
        """The point for readers."""
        if self.axis is None:
            return f"{self.case.name}: unimpaired, seed {self.seed}"
        return f"{self.case.name}: {self.axis.name} {self.axis.written(self.value)}"


@dataclass(frozen=True)
class Made:
    """A run that was made, and its judgement."""

    facts: Facts
    judgement: Judgement


class StudyEndedError(Exception):
    """No further run is made. ``reason``: "budget", "interrupted", or "left out" of an axis that is not to be tried."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StudyRuns:
    """Makes the runs of a study in ``directory``. ``workers`` as for `launch`. ``ended``: why no further run is made,
    "interrupted" or "left out"; present runs are read even so."""

    def __init__(
        self,
        study: Study,
        directory: Path,
        workers: int | None,
        ended: str | None = None,
    ) -> None:
        self._study = study
        self._directory = directory
        self._workers = workers
        self._known = KnownRuns(directory)
        self._measured = EarlierMeasurements()
        self._wall: dict[Path, float] = {}
        self.ended = ended

    @property
    def wall(self) -> float:
        """The seconds that all runs of the study took which this process has made or read."""
        return sum(self._wall.values())

    def unimpaired(self, point: Point) -> Facts:
        """The facts of a run without impairment. RunError if it is no scale for others."""
        made = self._made(point, None)
        run = made.facts
        if not run.finished or run.failed:
            reasons = list(run.failed) or [run.error or run.ended]
            raise RunError(
                f"the run without impairment does not pass, so nothing can be compared with it: {reasons[0]}; "
                f"see {run.run}, and remove it to make it again"
            )
        return run

    def impaired(self, point: Point, scale: Unimpaired) -> Made:
        """A run at a point of an axis. One that does not count is made once more."""
        return self._made(point, scale)

    def _made(self, point: Point, scale: Unimpaired | None) -> Made:
        overrides = self._overrides(point, scale)
        scenario = self._study.scenario_with(overrides)
        with placed(self._study.scenario, overrides, self._study.text):
            plan = prepared_plan(scenario, self._study.scenario)
        known = [run.path for run in self._known.ended_by_themselves(plan.recorded)]
        made = None
        for attempt in range(ATTEMPTS):
            if attempt < len(known):
                path = known[attempt]
            else:
                origin = Origin(
                    scenario,
                    file=self._study.scenario,
                    overrides=overrides,
                    text=self._study.text,
                    meta=self._meta(point),
                )
                path = self._launched(plan, origin, point)
            made = self._read(path, point, scale)
            if made.judgement.survived is not None:
                return made
        assert made is not None
        return made

    def _launched(self, plan: Any, origin: Origin, point: Point) -> Path:
        reason = self._why_no_more(point)
        if reason is not None:
            raise StudyEndedError(reason)
        options = RunOptions(self._workers, measured=self._measured)
        outcome, directory = launch(plan, origin, self._directory, lambda _: Glimpse(point.name), options)
        if outcome.exit_code == INTERRUPTED or interrupted():
            self.ended = "interrupted"
            raise StudyEndedError(self.ended)
        return directory.path

    def _why_no_more(self, point: Point) -> str | None:
        """Why this run is not made; None if it is."""
        axis = point.axis
        if self.ended is not None:
            return self.ended
        if axis is None:
            return None
        if axis.name not in self._study.chosen:
            return "left out"
        budget = self._study.budget
        if budget is not None and self.wall >= budget:
            return "budget"
        return None

    def _read(
        self,
        path: Path,
        point: Point,
        scale: Unimpaired | None,
    ) -> Made:
        with History.open(path) as history:
            run = facts(history)
            self._wall[path] = run.wall
            if scale is None:
                survived = None if run.doubts else True
                return Made(run, Judgement(survived, ""))
            allowed = self._allowed(point, scale)
            return Made(run, judge(run, history, self._study.survives, scale, allowed))

    def _overrides(self, point: Point, scale: Unimpaired | None) -> Sequence[str]:
        """The overrides of a point, each in the form of `--set`."""
        overrides = [*point.case.overrides, assignment("seed", point.seed)]
        if point.axis is None or scale is None:
            return overrides
        changes = point.axis.changes(point.value, point.case.data, scale.seconds)
        if not scale.by_time:
            changes["stop.after"] = self._deadline(point, scale)
        overrides += [assignment(path, value) for path, value in changes.items()]
        return overrides

    def _allowed(self, point: Point, scale: Unimpaired) -> float:
        """The seconds of training that a surviving run may take. Those of its fault do not count against it."""
        allowed = self._study.survives.within.allowed(scale.seconds)
        if point.axis is not None and point.axis.lasts:
            allowed += point.value
        return allowed

    def _deadline(self, point: Point, scale: Unimpaired) -> str:
        """When a run is ended, in training: what survives has finished by then. A stop of the scenario stays."""
        allowed = self._allowed(point, scale)
        own = point.case.scenario.stop.after
        if own is not None:
            allowed = min(allowed, own)
        return f"{max(0.1, round(allowed, 1))}s"

    def _meta(self, point: Point) -> dict[str, Any]:
        meta = {"limits": self._study.name, "case": point.case.name}
        if point.axis is not None:
            meta |= {"axis": point.axis.name, "value": point.axis.scale.written(point.value)}
        return meta


Tell = Callable[[str], None]


def ignore(_: object) -> None:
    """For a caller that needs no lines, or no word of the end of a task."""
