"""The files of claims: one for each paper, with a row for each table, figure and headline of its evaluation.

paper: PHE-FL
page: phefl.md
size: {paper: 600 images per device, ours: 60}
claims:
  phefl-d2:
    place: Table V, D2
    says: PHE-FL lies between OnlyEdge and EdgeCloud.
    sweep: ../sweeps/phefl.yaml
    metric: best.edges
    figures:
      onlyedge: {case: "D2, algorithm.name=onlyedge", paper: 84.06, ours: 84.7 ± 1.2}
      phe-fl: {case: "D2, algorithm.name=phe-fl", paper: 81.65, ours: [80.2, 81.1, 81.7]}
    holds: [onlyedge >= phe-fl]
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from orchestrator.claims.relations import Relation, parse
from orchestrator.errors import PlaceError, Problem, ScenarioError
from orchestrator.scenario.language import document
from orchestrator.scenario.language.strict import Strict, unknown, validated
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import Name, dotted
from orchestrator.scenario.reading import scenario_text
from orchestrator.verbs import examples

FOLDER = examples.FOLDER / "papers/claims"
CHEAP = 5.0  # minutes

State = Literal["reproduced at full size", "in direction", "partly", "contradicted at this size", "not tried"]
STATES: tuple[State, ...] = get_args(State)
UNITS = {
    "%": 100.0,
    "points": 100.0,
    "kB": 1e-3,
    "MB": 1e-6,
    "GB": 1e-9,
}
"""Factors from a figure of a sweep to the unit of a claim; 1 for other units."""

_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Measured:
    """A figure: as it is written, its mean, and its value by seed where that is known. Infinity: never reached, as far
    as is recorded."""

    written: str
    mean: float
    by_seed: Mapping[int, float]


def measured(by_seed: Mapping[int, float], censored: int = 0) -> Measured:
    """The mean of a figure over seeds, written with its standard deviation. ``censored``: how many of them never
    reached the target; then the mean is a lower bound."""
    values = [*by_seed.values()]
    if not values:
        return Measured("–", math.inf, {})
    mean = statistics.fmean(values)
    decimals = _decimals(values)
    written = f"{mean:,.{decimals}f}"
    if len(values) > 1:
        deviation = statistics.stdev(values)
        written += f" ± {deviation:.{decimals}f}"
    if censored:
        reached = len(values) - censored
        written = f"≥ {written} ({reached} of {len(values)})"
    return Measured(written.replace("-", "−"), mean, by_seed)


def _decimals(values: Sequence[float]) -> int:
    largest = max(map(abs, values))
    if largest >= 1000:
        return 0
    return 1 if largest >= 1 else 3


class PaperSize(Strict):
    paper: str
    ours: str


class ClaimFigure(Strict):
    """One figure of a claim: the paper's, and edgebed's last one, as its page writes it or by seed."""

    case: str | None = None
    metric: str | None = None  # default: that of the claim
    paper: str | float | None = None
    ours: list[float] | str | float | None = None

    @property
    def recorded(self) -> Measured | None:
        """The last figure of edgebed; None if there is none. ``–`` means never reached."""
        if self.ours is None:
            return None
        if isinstance(self.ours, list):
            return measured(dict(enumerate(self.ours, start=1)))
        figure = written(self.ours)
        return Measured(figure, number(figure), {})


class Recorded(Strict):
    """How the last figures were made."""

    seeds: str = ""
    minutes: float | None = Field(default=None, gt=0)
    driver: str = "sim"
    version: str = ""


class Claim(Strict):
    """One table, figure or headline of a paper, and whether it was reproduced. docs/guides/reproduce.md explains the
    keys."""

    place: str
    says: str
    section: str = ""
    size: str = ""
    full_size: bool = False
    any_data: bool = False
    sweep: str | None = None
    command: str | None = None
    metric: str = "final.global"
    unit: str = "%"
    figures: dict[str, ClaimFigure] = Field(default={})
    holds: list[str] = Field(default=[])
    each_seed: bool = False
    floor: str = ""
    ceiling: str = ""
    recorded: Recorded = Recorded()
    state: State | None = None
    note: str = ""
    cost: str = ""

    @property
    def relations(self) -> list[Relation]:
        return [parse(text, self.figures) for text in self.holds]

    @property
    def known(self) -> dict[str, Measured]:
        known = {}
        for name, figure in self.figures.items():
            recorded = figure.recorded
            if recorded is not None:
                known[name] = recorded
        return known

    @property
    def cheap(self) -> bool:
        """Whether its runs take less than five minutes."""
        minutes = self.recorded.minutes or CHEAP
        return self.sweep is not None and minutes < CHEAP


class ClaimFile(Strict):
    """The claims of a paper."""

    paper: str
    page: str
    size: PaperSize
    claims: dict[Name, Claim] = Field(min_length=1)


@dataclass(frozen=True)
class Paper:
    """A file of claims after reading."""

    file: Path
    source: document.Document
    read: ClaimFile

    def problem(self, path: KeyPath, message: str) -> Problem:
        place = self.source.place(path)
        return Problem(place, dotted(path), message)


def written(figure: str | float | None) -> str:
    """A figure of a claim as a page shows it."""
    if figure is None:
        return "–"
    if isinstance(figure, str):
        return figure
    return f"{figure:,.10g}"


def number(text: str) -> float:
    """The first number of a figure as a page writes it, such as 76.1 of "76.1 ± 1.3"; infinity without one."""
    match = _NUMBER.search(text)
    if not match:
        return math.inf
    digits = match[0].replace(",", "")
    return float(digits.replace("−", "-"))


def load(folder: Path = FOLDER) -> list[Paper]:
    """Read all claims in a folder, in the order of its files' names. ScenarioError lists every problem with its place,
    PlaceError if there is no file."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise PlaceError(f"{folder} has no claims: name a folder with YAML files like those in {FOLDER}")
    papers = [_load(file) for file in files]
    first_paper: dict[str, Paper] = {}  # by the name of a claim
    for paper in papers:
        for name in paper.read.claims:
            other = first_paper.setdefault(name, paper)
            if other is not paper:
                problem = paper.problem(("claims", name), f"{other.file} has this claim: rename one")
                raise ScenarioError([problem])
    return papers


def find(papers: list[Paper], name: str) -> Paper:
    """The paper with the claim ``name``. PlaceError if there is none."""
    names: list[str] = []
    for paper in papers:
        if name in paper.read.claims:
            return paper
        names += paper.read.claims
    raise PlaceError(unknown("claim", name, names))


def _load(file: Path) -> Paper:
    text = scenario_text(file)
    source = document.read(text, str(file))
    claims = validated(ClaimFile, source, source.data)
    paper = Paper(file, source, claims)
    problems = []
    for path, message in _contradictions(claims):
        problems.append(paper.problem(path, message))
    if problems:
        raise ScenarioError(problems)
    return paper


def _contradictions(read: ClaimFile) -> Iterator[tuple[KeyPath, str]]:
    """Problems of well-formed claims that make no sense."""
    for name, claim in read.claims.items():
        path: KeyPath = ("claims", name)
        used: set[str] = set()
        for place, text in enumerate(claim.holds):
            try:
                used.update(parse(text, claim.figures).names)
            except ValueError as error:
                yield (*path, "holds", place), str(error)
        for key, figure in claim.figures.items():
            here: KeyPath = (*path, "figures", key)
            if figure.case is not None and claim.sweep is None:
                yield (*here, "case"), "name the `sweep` that has the case"
            if isinstance(figure.ours, str) and not _is_figure(figure.ours):
                yield (*here, "ours"), "write a number like '76.1 ± 1.3', or '–' if it was never reached"
        if claim.sweep is not None and not claim.holds:
            yield (*path, "sweep"), "give the relations that its figures must fulfil as `holds`"
        has_case = any(figure.case for figure in claim.figures.values())
        if claim.sweep is not None and not has_case:
            yield (*path, "sweep"), "name the `case` of a figure"
        complete = bool(claim.holds) and _all_have_figures(claim, used)
        if complete and claim.state is not None:
            yield (*path, "state"), "leave it out: it follows from the figures and `holds`"
        elif not complete and claim.state is None:
            yield path, "give `holds` and a figure `ours` for each of its names, or the `state`"
        if claim.state is not None and not claim.note:
            yield path, "give the reason of the state as `note`"
        if claim.state == "not tried" and not claim.cost:
            yield path, "give the `cost` of trying it"


def _all_have_figures(claim: Claim, names: Iterable[str]) -> bool:
    """Whether each figure with one of these names has a last figure of edgebed."""
    for name in names:
        figure = claim.figures.get(name)
        if figure is not None and figure.ours is None:
            return False
    return True


def _is_figure(text: str) -> bool:
    """Whether a text has a number, or means that the figure was never reached."""
    return text == "–" or _NUMBER.search(text) is not None
