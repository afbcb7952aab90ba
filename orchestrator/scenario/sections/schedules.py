"""Schedules in a scenario: how a link changes during the run, as its normal behaviour and not as a fault.

    schedule: {steps: [{at: 10s, rate: 5mbit}, {at: 20s, loss: 5%}]}            one on top of the other
    schedule: {ramp: [{at: 10s, over: 30s, to: {rate: 1mbit}}]}                 gradually, every 100 ms
    schedule: {handover: [{at: 15s, interruption: 300ms, profile: 5g}]}         nothing crosses, then another profile
    schedule: {steps: [...], handover: [...], repeat: 60s}                      together, again every minute
    schedule: {trace: {up: up.txt, down: down.txt}, window: 200ms}              rates by traces of Mahimahi
    schedule: {csv: drive.csv}                                                  t, latency, rate, loss, jitter by rows
    schedule: {csv: log.csv, columns: {t: time, rate: speed}, units: {t: s, rate: mbit}, start: first-row}

Times count from the start of training, like those of faults. File paths are relative to the scenario's folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from netem.schedules.schedule import PACE, Schedule, Step, Steps
from netem.schedules.traces import WINDOW, TableForm, Trace, TraceTable
from orchestrator.scenario.language.files import named_text
from orchestrator.scenario.language.quantities import Duration
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.sections.profiles import LinkKeys

_TAKE_A_PART = "; take a part of it, traces repeat"  # if a file is too large
Column = Literal["t", "latency", "rate", "loss", "jitter"]


class StepSpec(LinkKeys):
    """Settings of a link from a time on; the other settings stay as they were."""

    short: ClassVar[str | None] = None

    at: Duration = Field(description="time of the change, after training started")

    @model_validator(mode="after")
    def _check_change(self) -> StepSpec:
        if not self.changes():
            raise ValueError("changes nothing: give it a profile or keys of one, e.g. rate: 5mbit")
        return self


class RampSpec(Strict):
    """A gradual, linear change of a link's settings."""

    at: Duration = Field(description="start of the change, after training started")
    over: Duration = Field(gt=0, description="duration of the change")
    to: LinkKeys = Field(description="the settings at its end")
    from_: LinkKeys | None = Field(
        default=None, alias="from", description="the settings at its start; default: those in force at that time"
    )
    step: Duration = Field(default=PACE, ge=0.001, description="time between two small changes")

    @model_validator(mode="after")
    def _check_change(self) -> RampSpec:
        if not self.to.changes():
            raise ValueError("to: give it a profile or keys of one, e.g. to: {rate: 5mbit}")
        return self


class HandoverSpec(LinkKeys):
    """An interruption of a link, and its settings afterwards; without any, those from before."""

    short: ClassVar[str | None] = None

    at: Duration = Field(description="start of the interruption, after training started")
    interruption: Duration = Field(gt=0, description="its duration; no packet crosses the link in this time")


class FilesSpec(Strict):
    """One file for both directions of a link, or one for each. Paths are relative to the scenario's file."""

    short: ClassVar[str | None] = "file"

    file: str | None = Field(default=None, description="the file for both directions")
    up: str | None = Field(default=None, description="the file for the direction towards the cloud")
    down: str | None = Field(default=None, description="the file for the direction away from the cloud")

    @model_validator(mode="after")
    def _check_sense(self) -> FilesSpec:
        has_one = self.file is not None
        has_sides = self.up is not None or self.down is not None
        if has_one == has_sides:
            raise ValueError("name one file, or files for up and down: {up: up.txt, down: down.txt}")
        return self

    def given(self) -> Iterator[tuple[str, str]]:
        """Each given key with its file."""
        for key in ("file", "up", "down"):
            path = getattr(self, key)
            if path is not None:
                yield key, path


class ScheduleSpec(Strict):
    """How a link changes during the run, in one of three forms: a list of changes (``steps``, ``ramp``, ``handover``),
    a ``trace``, or a table (``csv``). Times count from the start of training."""

    steps: list[StepSpec] = Field(default=[], description="sudden changes of settings")
    ramp: list[RampSpec] = Field(default=[], description="gradual changes of settings")
    handover: list[HandoverSpec] = Field(default=[], description="interruptions, with other settings afterwards")
    trace: FilesSpec | None = Field(
        default=None, description="packet-delivery trace of Mahimahi, which sets the rate; it repeats when it ends"
    )
    csv: FilesSpec | None = Field(
        default=None, description="table with a column t and one or more of latency, rate, loss and jitter"
    )
    columns: dict[Column, str] = Field(
        default={}, description="csv only: the names of the columns in the file, by their meaning: {rate: speed}"
    )
    units: dict[Column | Literal["half_rtt"], str] = Field(
        default={}, description="csv only: the units of columns with plain numbers: {t: s, rate: mbit}"
    )
    half_rtt: str | None = Field(
        default=None, description="csv only: a column of round-trip times; half of each is the latency"
    )
    start: Literal["first-row", "training"] | None = Field(
        default=None,
        description="csv only: whether t counts from the first row or from the start of training (default: training; "
        "required if the first row is late)",
    )
    window: Duration | None = Field(
        default=None,
        description=f"trace only: time over which packets are counted to get a rate; default: {WINDOW * 1000:.0f}ms",
    )
    repeat: Duration | None = Field(
        default=None, gt=0, description="the schedule restarts after this time; default: once (a trace always repeats)"
    )

    _files: dict[str, Schedule] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> ScheduleSpec:
        written = bool(self.steps or self.ramp or self.handover)
        forms = (written, self.trace is not None, self.csv is not None)
        if sum(forms) != 1:
            raise ValueError("say how the link changes: either steps, ramp and handover, or a trace, or a csv")
        table_form = TableForm(
            _plain(self.columns),
            _plain(self.units),
            self.half_rtt,
            self.start,
        )
        if table_form != TableForm() and self.csv is None:
            raise ValueError("columns, units, half_rtt and start go with csv")
        if self.window is not None and self.trace is None:
            raise ValueError("window: goes with trace")
        if self.repeat is not None and self.trace is not None:
            raise ValueError("repeat: a trace repeats by itself when it ends")
        if written:
            self._written(upward=False)
        if self.trace is not None:
            window = WINDOW if self.window is None else self.window
            for key, path in self.trace.given():
                with _in_file("trace", key):
                    text = named_text(path, info.context, _TAKE_A_PART)
                    self._files[key] = Trace.read(text, path, window)
        if self.csv is not None:
            for key, path in self.csv.given():
                with _in_file("csv", key):
                    text = named_text(path, info.context, _TAKE_A_PART)
                    self._files[key] = TraceTable.read(text, path, self.repeat, table_form)
        return self

    @property
    def has_sides(self) -> bool:
        """Whether it has separate files for up or down."""
        return bool({"up", "down"} & self._files.keys())

    def of_direction(self, *, upward: bool) -> Schedule | None:
        """The schedule of one direction; ``upward``: the one towards the cloud."""
        if not self._files:
            return self._written(upward=upward)
        side = "up" if upward else "down"
        for_both = self._files.get("file")
        return self._files.get(side, for_both)

    def _written(self, *, upward: bool) -> Steps:
        steps = []
        for step in self.steps:
            settings = step.changes(upward=upward)
            steps.append(Step(at=step.at, settings=settings))
        for ramp in self.ramp:
            start = {} if ramp.from_ is None else ramp.from_.changes(upward=upward)
            steps.append(
                Step(
                    at=ramp.at,
                    over=ramp.over,
                    pace=ramp.step,
                    start=start,
                    settings=ramp.to.changes(upward=upward),
                )
            )
        for handover in self.handover:
            settings = handover.changes(upward=upward)
            steps.append(Step(at=handover.at, interruption=handover.interruption, settings=settings))
        return Steps(tuple(steps), self.repeat)


@contextlib.contextmanager
def _in_file(kind: str, key: str) -> Iterator[None]:
    """Add the keys that name a file to a ValueError, unless it is about another key."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        if message.startswith(("window: ", "repeat: ")):
            place = ""
        elif key == "file":
            place = f"{kind}: "
        else:
            place = f"{kind}: {key}: "
        raise ValueError(f"{place}{message}") from None


def _plain(named: Mapping[Any, str]) -> dict[str, str]:
    return dict(named)
