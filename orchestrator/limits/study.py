"""A study: two unimpaired runs of each case, then the searches along all axes, one run of each in turn.

In turn, so that a budget that ends the study early leaves a rough limit of every axis instead of a fine one of the
first. The state of a study is its runs: repeat the command after a kill, and present runs are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator import text
from orchestrator.errors import MistakeError, RunError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.limits.axes import Axis
from orchestrator.limits.bracket import next_in_bracket
from orchestrator.limits.chance import next_by_chance
from orchestrator.limits.outcome import Unimpaired, unimpaired
from orchestrator.limits.reading import Case, Study
from orchestrator.limits.runs import Made, Point, StudyEndedError, StudyRuns, Tell
from orchestrator.limits.verdict import Ask, Limit, Tried

SCALE_RUNS = 2  # without impairment
LEAST_BUDGET = 3.0  # unimpaired runs


@dataclass(frozen=True)
class Try:
    """One run of a search."""

    value: float
    position: float
    seed: int
    made: Made


@dataclass
class Search:
    """The search along one axis in one case. ``limit``: None while it continues."""

    case: Case
    axis: Axis
    repeat: int
    runs: int
    tries: list[Try] = field(default_factory=list)
    limit: Limit | None = None

    @property
    def name(self) -> str:
        return f"{self.case.name}: {self.axis.name}"

    def next(self) -> Point | None:
        """The next run; None when the limit is found."""
        tried = [Tried(one.position, one.made.judgement.survived) for one in self.tries]
        scale = self.axis.scale
        answer: Ask | Limit
        if self.axis.by_chance:
            answer = next_by_chance(scale, tried, self.runs)
        else:
            answer = next_in_bracket(scale, tried, self.repeat, self.required)
        if isinstance(answer, Limit):
            self.limit = answer
            return None
        if self.axis.by_chance:
            earlier = len(self.tries)
        else:
            earlier = sum(one.position == answer.position for one in self.tries)
        seed = self.case.scenario.seed + earlier
        return Point(self.case, seed, self.axis, scale.value(answer.position))

    def add(self, point: Point, made: Made) -> None:
        position = self.axis.scale.position(point.value)
        self.tries.append(Try(point.value, position, point.seed, made))

    @property
    def required(self) -> float | None:
        """The position that must survive, where it can be tried."""
        if self.axis.required is None:
            return None
        scale = self.axis.scale
        value = scale.value(scale.position(self.axis.required))
        return scale.position(value)

    @property
    def meets_requirement(self) -> bool | None:
        """Whether what must survive did; None without a requirement, or if that is not known yet."""
        required = self.required
        if required is None:
            return None
        limit = self.limit
        if limit is None or limit.kind == "unknown":
            return None
        if limit.kind == "none":
            return True
        return limit.kind in ("between", "chance") and limit.low is not None and limit.low >= required


@dataclass
class StudyResult:
    """What a study found. ``scales``: by case. ``ended``: None when all searches found a limit, "budget" or
    "interrupted". ``wall``: seconds of all its runs."""

    study: Study
    directory: Path
    scales: dict[str, Unimpaired] = field(default_factory=dict)
    searches: list[Search] = field(default_factory=list)
    ended: str | None = None
    wall: float = 0.0

    @property
    def missing(self) -> list[Search]:
        return [search for search in self.searches if search.limit is None]

    @property
    def missed(self) -> list[Search]:
        """The searches that do not meet their requirements."""
        return [search for search in self.searches if search.meets_requirement is False]

    @property
    def exit_code(self) -> int:
        if self.ended == "interrupted":
            return INTERRUPTED
        undecided = [search for search in self.searches if search.required is not None]
        if any(search.meets_requirement is not True for search in undecided):
            return 3
        return 0


def carry_out(
    study: Study,
    directory: Path,
    tell: Tell,
    workers: int | None = None,
    only: int | None = None,
    ended: str | None = None,
) -> StudyResult:
    """Execute a study in ``directory``. ``tell`` prints a line. ``only``: the number of the one search to make.
    ``ended``: as for `StudyRuns`: only present runs are read.
    RunError if a run without impairment does not pass, MistakeError if the budget is too small."""
    runs = StudyRuns(study, directory, workers, ended)
    result = StudyResult(study, directory)
    for case in study.cases:
        for axis in case.axes:
            search = Search(case, axis, study.repeat, study.runs)
            result.searches.append(search)
    if only is not None:
        if not 0 <= only < len(result.searches):
            raise RunError(f"there is no task {only}: this study has the tasks 0 to {len(result.searches) - 1}")
        result.searches = [result.searches[only]]
    try:
        for search in result.searches:
            if search.case.name not in result.scales:
                result.scales[search.case.name] = scale_of(study, runs, search.case, tell)
        _search(study, runs, result, tell)
    except StudyEndedError as end:
        result.ended = end.reason
    shown = []
    for search in result.searches:
        if search.axis.name in study.chosen or search.tries:
            shown.append(search)
    result.searches = shown
    result.wall = runs.wall
    return result


def scale_of(study: Study, runs: StudyRuns, case: Case, tell: Tell) -> Unimpaired:
    """The unimpaired runs of a case."""
    made = []
    for number in range(SCALE_RUNS):
        point = Point(case, case.scenario.seed + number)
        run = runs.unimpaired(point)
        rounds = f"{text.count(run.rounds, 'round')} in " if run.rounds else ""
        tell(f"{point.name}: {rounds}{text.duration(run.seconds)}")
        made.append(run)
    scale = unimpaired(made)
    if study.budget is not None and study.budget < LEAST_BUDGET * scale.wall:
        raise MistakeError(
            f"budget: {text.duration(study.budget)} is less than three runs without impairment, each of which takes "
            f"{text.duration(scale.wall)}: write more"
        )
    return scale


def _search(study: Study, runs: StudyRuns, result: StudyResult, tell: Tell) -> None:
    """Make one run of each search in turn, until all have found a limit, or no further run is made."""
    going = list(result.searches)
    while going:
        for search in list(going):
            point = search.next()
            if point is None:
                going.remove(search)
                tell(f"{search.name}: {limit_in_words(search)}")
                continue
            try:
                made = runs.impaired(point, result.scales[search.case.name])
            except StudyEndedError as end:
                going.remove(search)
                if end.reason != "left out":
                    result.ended = end.reason
                continue
            search.add(point, made)
            kind = f"{made.judgement.kind}: " if made.judgement.kind else ""
            tell(f"{point.name}: {kind}{made.judgement.why}{_time_left(study, runs, going)}")


def _time_left(study: Study, runs: StudyRuns, going: Sequence[Search]) -> str:
    if study.budget is None:
        return f" ({text.count(len(going), 'search', 'searches')} to go)"
    return f" ({text.duration(max(0.0, study.budget - runs.wall))} of the budget left)"


def how_it_ended(result: StudyResult) -> str:
    """Why a study has searches without a limit, in a sentence; empty if none is missing."""
    match result.ended:
        case "budget":
            return f"The budget of {text.duration(result.study.budget)} was used up. "
        case "interrupted":
            return "The study was interrupted: repeat the command to continue. "
        case _:
            return ""


def limit_in_words(search: Search) -> str:
    """The limit of a search in a sentence."""
    limit = search.limit
    axis = search.axis
    if limit is None:
        return _so_far(search)

    def at(position: float | None) -> str:
        return axis.written(axis.scale.value(position or 0.0))

    match limit.kind:
        case "between":
            words = f"survives {at(limit.low)}, fails at {at(limit.high)}"
        case "chance":
            words = f"half of the runs survive {at(limit.middle)} (95 %: {at(limit.low)} to {at(limit.high)})"
        case "none":
            way = "down to" if axis.scale.severe < axis.scale.mild else "up to"
            words = f"no limit {way} {axis.written(axis.scale.severe)}"
        case "all":
            words = f"fails already at {axis.written(axis.scale.mild)}"
        case "not monotone":
            words = f"not monotone: fails at {at(limit.low)} and survives {at(limit.high)}, each twice"
        case "unknown":
            words = "unknown: no run counts"
    if limit.unknown and limit.kind != "unknown":
        words += f"; {text.count(limit.unknown, 'run')} did not count"
    return words


def _so_far(search: Search) -> str:
    survivors = [one.position for one in search.tries if one.made.judgement.survived]
    failures = [one.position for one in search.tries if one.made.judgement.survived is False]
    words = "not finished"
    written = search.axis.written
    value = search.axis.scale.value
    if survivors:
        words += f"; survived {written(value(max(survivors)))}"
    if failures:
        words += f"; failed at {written(value(min(failures)))}"
    return words
