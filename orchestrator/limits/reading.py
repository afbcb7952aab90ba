"""The file of a study of limits: a scenario, what survival means, and the axes along which it is tried.

    scenario: ../flower.yaml
    survives: {rounds: 10, within: 5x, accuracy: -2 points}
    axes:
      latency: {links: device-cloud, from: 10ms, to: 30s}
      loss: {links: device-cloud, direction: up}
      outage: {fault: {node: device-1, action: disconnect, round: 3}, for: {from: 1s, to: 20min}}
      absent: {clients: {from: 0%, to: 95%}, round: 3}
    cases: {default: {}, patient: {stack.device.syn_retries: 20}}
    require: {latency: 2s, outage: 60s}
    budget: 45min

A plain scenario is a study too: of all axes that apply to it, with their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from netem.units import parse_duration
from orchestrator import text as text_of
from orchestrator.errors import Problem, ScenarioError
from orchestrator.limits.axes import Axis, device_names, first_leader, link_classes
from orchestrator.limits.chance import RUNS
from orchestrator.limits.faults import FaultsSection
from orchestrator.limits.scale import Scale, Unit
from orchestrator.scenario import reading
from orchestrator.scenario.language import document
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.quantities import Duration, Fraction, Rate
from orchestrator.scenario.language.strict import Strict, unknown, validated
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import Name, dotted, name_from
from orchestrator.scenario.schema import Scenario
from orchestrator.sweep.reading import assignment, override_places, problems_in_case, rounds_of

COPY = ".limits.yaml"
"""The study's file as it was read, in the folder of its runs."""
LONGEST = 100.0  # times the unimpaired training that `within` may be

_TIMES = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*x\s*")
_POINTS = re.compile(r"\s*-\s*([0-9]*\.?[0-9]+)\s*points?\s*")


@dataclass(frozen=True)
class Within:
    """The time that a surviving run may take: a ``factor`` of the unimpaired training, or ``seconds``."""

    factor: float | None = None
    seconds: float | None = None

    def allowed(self, unimpaired: float) -> float:
        if self.factor is not None:
            return self.factor * unimpaired
        return self.seconds or 0.0


def _read_within(value: Any) -> Within:
    if isinstance(value, Within):
        return value
    match = _TIMES.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        try:
            return Within(seconds=parse_duration(value))
        except ValueError:
            raise ValueError("write how many times as long, like 5x, or a duration, like 10min") from None
    factor = float(match[1])
    if not 1 < factor <= LONGEST:
        raise ValueError(f"must be above 1x and at most {LONGEST:.0f}x, not {value}")
    return Within(factor=factor)


def _read_points(value: Any) -> float:
    match = _POINTS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write how much accuracy may be lost, like -2 points")
    return float(match[1]) / 100


class Survives(Strict):
    """What a run must reach to survive, next to the unimpaired runs."""

    rounds: int | None = Field(
        default=None, ge=1, description="finished rounds; default: as many as the unimpaired runs"
    )
    within: Annotated[
        Within, BeforeValidator(_read_within), WithJsonSchema({"type": "string", "examples": ["5x", "10min"]})
    ] = Field(
        default=Within(factor=5.0),
        description="time of the training: times that of the unimpaired runs, or a duration; the duration of an "
        "outage, a pause or a restart is added",
    )
    accuracy: (
        Annotated[float, BeforeValidator(_read_points), WithJsonSchema({"type": "string", "examples": ["-2 points"]})]
        | None
    ) = Field(
        default=None, description="accuracy that may be lost to the unimpaired runs, like -2 points; default: any"
    )


class _LinkAxis(Strict):
    """An axis of link settings."""

    short: ClassVar[str | None] = "links"

    links: str = Field(default="", description="the class or the pair of links; default: those nearest to the devices")
    direction: Literal["up", "down"] | None = Field(default=None, description="one direction; default: both")


class LatencyAxis(_LinkAxis):
    """The delay of each packet, one way."""

    from_: Duration = Field(default=0.01, alias="from", gt=0, description="the mildest value")
    to: Duration = Field(default=30.0, gt=0, description="the most severe value")


class JitterAxis(_LinkAxis):
    """The standard deviation of the delay. The links need a latency."""

    from_: Duration = Field(default=0.001, alias="from", gt=0, description="the mildest value")
    to: Duration = Field(default=2.0, gt=0, description="the most severe value")


class LossAxis(_LinkAxis):
    """The share of packets that are lost. Chance decides, so this takes more runs."""

    from_: Fraction = Field(default=0.0, alias="from", description="the mildest value")
    to: Fraction = Field(default=0.8, description="the most severe value")


class RateAxis(_LinkAxis):
    """The bandwidth."""

    from_: Rate = Field(default=100e6, alias="from", description="the mildest value")
    to: Rate = Field(default=10e3, description="the most severe value")


class Durations(Strict):
    """From which duration to which."""

    from_: Duration = Field(default=1.0, alias="from", gt=0, description="the mildest value")
    to: Duration = Field(default=120.0, gt=0, description="the most severe value")


class FaultAxis(Strict):
    """A fault of growing duration."""

    fault: dict[str, Any] = Field(
        default={},
        description="the keys of the fault without `for`; default: the first device, after a third of the training",
    )
    for_: Durations = Field(default=Durations(), alias="for", description="its duration")


class Shares(Strict):
    """From which share to which."""

    from_: Fraction = Field(default=0.0, alias="from", description="the mildest value")
    to: Fraction = Field(default=0.95, description="the most severe value")


class AbsentAxis(Strict):
    """A growing number of devices without links until the run ends."""

    clients: Shares = Field(default=Shares(), description="the share of the devices")
    round: int | None = Field(default=None, ge=1, description="from this round on")
    at: Duration | None = Field(
        default=None, description="from this time of the training on; default: after a third of it"
    )


class Axes(Strict):
    """What is made worse, each on its own."""

    latency: LatencyAxis | None = Field(default=None, description="the delay of each packet, one way")
    jitter: JitterAxis | None = Field(default=None, description="the variation of the delay")
    loss: LossAxis | None = Field(default=None, description="the share of lost packets")
    rate: RateAxis | None = Field(default=None, description="the bandwidth")
    outage: FaultAxis | None = Field(default=None, description="links are cut for some time")
    pause: FaultAxis | None = Field(default=None, description="a node is stopped for some time, and continues")
    restart: FaultAxis | None = Field(default=None, description="a node is killed, and starts again after some time")
    absent: AbsentAxis | None = Field(default=None, description="devices are gone for good")


class Require(Strict):
    """Values that must survive; otherwise the exit code is 3."""

    latency: Duration | None = Field(default=None, description="as the axis of this name")
    jitter: Duration | None = Field(default=None, description="as the axis of this name")
    loss: Fraction | None = Field(default=None, description="as the axis of this name")
    rate: Rate | None = Field(default=None, description="as the axis of this name")
    outage: Duration | None = Field(default=None, description="as the axis of this name")
    pause: Duration | None = Field(default=None, description="as the axis of this name")
    restart: Duration | None = Field(default=None, description="as the axis of this name")
    absent: Fraction | None = Field(default=None, description="as the axis of this name")


class StudyFile(Strict):
    """The keys of a study of limits."""

    name: Name = Field(description="name of the study; default: the name of the file")
    scenario: str = Field(description="file of the scenario, relative to the study's file")
    survives: Survives = Field(default=Survives(), description="what a run must reach to survive")
    axes: Axes = Field(default=Axes(), description="what is made worse, each on its own")
    faults: FaultsSection | None = Field(default=None, description="how `limits --faults` tries thirteen faults")
    repeat: int = Field(
        default=1, ge=1, le=20, description="runs that confirm each end of an interval, each with another seed"
    )
    runs: int = Field(default=RUNS, ge=5, le=1000, description="runs of an axis on which chance decides")
    cases: dict[str, dict[str, Any]] = Field(
        default={}, description="changes of the scenario, by the name of a case; each has limits of its own"
    )
    require: Require = Field(default=Require(), description="values that must survive; otherwise the exit code is 3")
    budget: Duration | None = Field(default=None, gt=0, description="time of all runs together; default: any")


AXES = tuple(Axes.model_fields)
_ACTIONS = {"outage": "disconnect", "pause": "pause", "restart": "crash"}
"""The default action of each axis of faults."""


@dataclass(frozen=True)
class Case:
    """A case of a study: the overrides that all its runs have, the scenario with them, ``data``, the same as it is
    written, and its axes. Cases have axes of their own, since one may have more devices to lose than another."""

    name: str
    overrides: tuple[str, ...]
    scenario: Scenario
    data: Mapping[str, Any]
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Study:
    """A study after reading. ``chosen``: the axes to try; of the others, only present runs are read.
    ``has_faults``: whether it says how to try the thirteen faults. ``text``: the scenario as it was read, ``source``:
    the study's file."""

    name: str
    file: Path
    scenario: Path
    survives: Survives
    cases: tuple[Case, ...]
    chosen: tuple[str, ...]
    repeat: int
    runs: int
    budget: float | None
    has_faults: bool
    text: str
    source: str

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes as the first case has them; others have the same names."""
        return self.cases[0].axes

    @property
    def searches(self) -> int:
        """The number of searches: one for each case and axis."""
        return len(self.cases) * len(self.axes)

    def scenario_with(self, overrides: Sequence[str]) -> Scenario:
        """The scenario of a run. ScenarioError if these overrides are wrong."""
        return reading.parse(self.text, str(self.scenario), overrides)


def load(
    file: Path,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Study:
    """Read a study, or a scenario as a study. ``overrides`` apply to all runs. ``only``: the axes to try, by default
    all. ScenarioError lists every problem with file, line and path."""
    return parse(reading.scenario_text(file), file, overrides, only)


def parse(
    text: str,
    file: Path,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Study:
    """Like `load`, from text. ``file`` stands for the file in messages."""
    source = document.read(text, str(file))
    data = source.data
    if "scenario" in data:
        scenario_file = file.parent / str(data["scenario"])
        scenario = reading.scenario_text(scenario_file, source.place(("scenario",)), "scenario")
    else:
        scenario_file = file
        scenario = text
        base = reading.parse(scenario, str(scenario_file), overrides)
        axes: dict[str, Any] = {name: {} for name in _applicable(base)}
        data = {"scenario": file.name, "axes": axes}
    defaults = {"name": name_from(file.stem, "limits")}
    read = validated(StudyFile, source, defaults | data)
    problems: list[Problem] = []
    cases = tuple(_cases(read, source, scenario_file, scenario, overrides, problems))
    if not problems:
        _check_chosen(only, cases[0].axes)
        problems += _refused_values(source, scenario_file, scenario, cases)
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))
    return Study(
        name=read.name,
        file=file,
        scenario=scenario_file,
        survives=read.survives,
        cases=cases,
        chosen=tuple(only) or tuple(axis.name for axis in cases[0].axes),
        repeat=read.repeat,
        runs=read.runs,
        budget=read.budget,
        has_faults=read.faults is not None,
        text=scenario,
        source=text,
    )


def _check_chosen(chosen: Sequence[str], axes: Sequence[Axis]) -> None:
    """ScenarioError if the command line names an axis that the study does not have."""
    known = [axis.name for axis in axes]
    for name in chosen:
        if name not in known:
            raise ScenarioError([Problem(f"--axis {name}", "", unknown("axis of this study", name, known))])


def _applicable(scenario: Scenario) -> list[str]:
    """The axes of a plain scenario: those of its links, an outage and a pause of a device."""
    names = ["latency", "loss", "rate", "outage", "pause"]
    if len(device_names(scenario)) > 1:
        names.append("absent")
    return names


def _axes(
    read: StudyFile,
    source: Document,
    scenario: Scenario,
    problems: list[Problem],
) -> tuple[Axis, ...]:
    """The axes of a study. Adds a problem for each that makes no sense."""

    def problem(path: KeyPath, message: str) -> None:
        problems.append(Problem(source.place(path), dotted(path), message))

    axes = []
    for name in AXES:
        section = getattr(read.axes, name)
        if section is None:
            continue
        required = getattr(read.require, name)
        if isinstance(section, FaultAxis):
            axis = _of_fault(name, section, scenario)
            ends: KeyPath = ("axes", name, "for")
        elif isinstance(section, AbsentAxis):
            axis = _of_absent(section, scenario)
            ends = ("axes", name, "clients")
            if required is not None:
                required = round(required * len(device_names(scenario)))
        else:
            axis = _of_links(name, section, scenario)
            ends = ("axes", name)
            classes = link_classes(scenario)
            is_class = "-" in axis.links and ">" not in axis.links
            if is_class and axis.links not in classes:
                message = unknown("class of links of this scenario", axis.links, classes)
                problem(("axes", name, "links"), message)
        if axis.scale.mild == axis.scale.severe:
            if axis.absent:
                devices = text_of.count(len(device_names(scenario)), "device")
                problem(ends, f"of {devices}, from and to are the same number: write other shares, or more devices")
            else:
                problem(ends, f"from and to are the same, {axis.scale.written(axis.scale.mild)}: write two values")
            continue
        if axis.fault.get("for") is not None:
            problem(("axes", name, "fault"), "leave out `for`, which is the value that is tried")
        if required is not None:
            axis = replace(axis, required=required)
            if not 0 <= axis.scale.position(required) <= 1:
                written = axis.written(required)
                mild = axis.written(axis.scale.mild)
                severe = axis.written(axis.scale.severe)
                message = f"{written} is not between {mild} and {severe}, from and to of this axis: change one of them"
                problem(("require", name), message)
        axes.append(axis)
    if not axes and not problems and read.faults is None:
        problem(("axes",), f"name at least one axis: {', '.join(AXES)}")
    for name in AXES:
        if getattr(read.require, name) is not None and getattr(read.axes, name) is None:
            problem(("require", name), "this study has no axis of this name")
    return tuple(axes)


def _of_links(name: str, section: Any, scenario: Scenario) -> Axis:
    unit: Unit = "duration"
    if name == "rate":
        unit = "rate"
    elif name == "loss":
        unit = "fraction"
    links = section.links or link_classes(scenario)[0]
    return Axis(
        name,
        Scale(section.from_, section.to, unit),
        key=name,
        links=links,
        direction=section.direction,
        by_chance=name == "loss",
    )


def _of_fault(name: str, section: FaultAxis, scenario: Scenario) -> Axis:
    node = device_names(scenario)[0]
    if name == "restart":
        node = first_leader(scenario)
    fault: dict[str, Any] = {"action": _ACTIONS[name], **section.fault}
    places = ("node", "nodes", "of", "between", "medium")
    if not fault.keys() & set(places):
        fault = {"node": node, **fault}
    start: dict[str, Any] = {}
    for key in ("at", "round"):
        if key in fault:
            start[key] = fault.pop(key)
    scale = Scale(section.for_.from_, section.for_.to, "duration")
    return Axis(name, scale, fault=fault, start=start)


def _of_absent(section: AbsentAxis, scenario: Scenario) -> Axis:
    devices = len(device_names(scenario))
    mild = round(section.clients.from_ * devices)
    severe = int(section.clients.to * devices)
    start: dict[str, Any] = {}
    if section.round is not None:
        start = {"round": section.round}
    elif section.at is not None:
        start = {"at": f"{section.at}s"}
    return Axis("absent", Scale(mild, severe, "clients"), absent=True, start=start)


def _cases(
    read: StudyFile,
    source: Document,
    file: Path,
    text: str,
    common: Sequence[str],
    problems: list[Problem],
) -> Iterator[Case]:
    """The cases of a study. Adds a problem for each mistake in them."""
    rounds = rounds_of(text, str(file))
    for name, changes in (read.cases or {"default": {}}).items():
        places = override_places(source, ("cases", name), changes, rounds)
        overrides = (*places, *common)
        try:
            scenario = reading.parse(text, str(file), overrides)
        except ScenarioError as error:
            problems += problems_in_case(error, name, places)
            continue
        data = reading.overridden(text, str(file), overrides).data
        axes = _axes(read, source, scenario, problems)
        yield Case(name, overrides, scenario, data, axes)


def _refused_values(
    source: Document,
    file: Path,
    text: str,
    cases: Sequence[Case],
) -> list[Problem]:
    """A problem for each axis of which the scenario refuses the mildest or the most severe value."""
    problems: dict[str, Problem] = {}
    for case in cases:
        for axis in case.axes:
            for value in (axis.scale.mild, axis.scale.severe):
                changes = axis.changes(value, case.data, unimpaired=60.0)
                added = [assignment(path, changed) for path, changed in changes.items()]
                try:
                    reading.parse(text, str(file), (*case.overrides, *added))
                except ScenarioError as error:
                    path: KeyPath = ("axes", axis.name)
                    first = error.problems[0]
                    message = f"the scenario refuses {axis.written(value)}: {first.path}: {first.message}"
                    problems.setdefault(axis.name, Problem(source.place(path), dotted(path), message))
    return list(problems.values())
