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

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from netem.schedule import PACE, Schedule, Step, Steps
from netem.traces import WINDOW, Table, TableForm, Trace
from orchestrator.scenario.files import named_text
from orchestrator.scenario.profiles import LinkKeys
from orchestrator.scenario.quantities import Duration
from orchestrator.scenario.strict import Strict

Column = Literal["t", "latency", "rate", "loss", "jitter"]


class StepSpec(LinkKeys):
    """Settings that hold from ``at`` on; the other settings stay as before."""

    short: ClassVar[str | None] = None

    at: Duration

    @model_validator(mode="after")
    def _check_change(self) -> StepSpec:
        if not self.changes():
            raise ValueError("changes nothing: give it a profile or keys of one, e.g. rate: 5mbit")
        return self


class RampSpec(Strict):
    """A gradual change to the numbers in ``to``, of duration ``over``."""

    at: Duration
    over: Duration = Field(gt=0)
    to: LinkKeys
    from_: LinkKeys | None = Field(default=None, alias="from", description="default: what holds at the time")
    step: Duration = Field(default=PACE, ge=0.001, description="time from one small change to the next")

    @model_validator(mode="after")
    def _check_change(self) -> RampSpec:
        if not self.to.changes():
            raise ValueError("to: give it a profile or keys of one, e.g. to: {rate: 5mbit}")
        return self


class HandoverSpec(LinkKeys):
    """An interruption, during which no packet crosses the link; after it these settings hold, if any."""

    short: ClassVar[str | None] = None

    at: Duration
    interruption: Duration = Field(gt=0)


class FilesSpec(Strict):
    """One file for both directions, or one for each."""

    short: ClassVar[str | None] = "file"

    file: str | None = Field(default=None, description="relative to the scenario's")
    up: str | None = Field(default=None, description="towards the cloud")
    down: str | None = None

    @model_validator(mode="after")
    def _check_sense(self) -> FilesSpec:
        if (self.file is None) == (self.up is None and self.down is None):
            raise ValueError("name one file, or files for up and down: {up: up.txt, down: down.txt}")
        return self

    def given(self) -> Iterator[tuple[str, str]]:
        """Each given key with its file."""
        for key in ("file", "up", "down"):
            if (path := getattr(self, key)) is not None:
                yield key, path


class ScheduleSpec(Strict):
    """How a link changes over time, given in one of three ways: as listed changes, a trace, or a table."""

    steps: list[StepSpec] = Field(default=[], description="from a time on, other settings")
    ramp: list[RampSpec] = Field(default=[], description="little by little to other settings")
    handover: list[HandoverSpec] = Field(default=[], description="an interruption, and other settings after it")
    trace: FilesSpec | None = Field(default=None, description="packet-delivery traces of Mahimahi")
    csv: FilesSpec | None = Field(default=None, description="columns t, latency, rate, loss, jitter")
    columns: dict[Column, str] = Field(default={}, description="of a csv: the names of its columns")
    units: dict[Column | Literal["half_rtt"], str] = Field(default={}, description="of a csv: of plain numbers")
    half_rtt: str | None = Field(default=None, description="of a csv: the column whose half is the latency")
    start: Literal["first-row", "training"] | None = Field(default=None, description="of a csv: when t is 0")
    window: Duration | None = Field(default=None, description=f"of a trace, default {WINDOW * 1000:.0f}ms")
    repeat: Duration | None = Field(default=None, gt=0, description="begin anew after this; traces do by themselves")

    _files: dict[str, Schedule] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> ScheduleSpec:
        written = bool(self.steps or self.ramp or self.handover)
        if sum((written, self.trace is not None, self.csv is not None)) != 1:
            raise ValueError("say how the link changes: either steps, ramp and handover, or a trace, or a csv")
        form = TableForm(_plain(self.columns), _plain(self.units), self.half_rtt, self.start)
        if form != TableForm() and self.csv is None:
            raise ValueError("columns, units, half_rtt and start go with csv")
        if self.window is not None and self.trace is None:
            raise ValueError("window: goes with trace")
        if self.repeat is not None and self.trace is not None:
            raise ValueError("repeat: a trace begins anew by itself when it ends")
        if written:
            self._written(upward=False)
        for kind in ("trace", "csv"):
            files: FilesSpec | None = getattr(self, kind)
            for key, path in files.given() if files is not None else ():
                try:
                    text = named_text(path, info.context, "; take a part of it, traces repeat")
                    self._files[key] = (
                        Trace.read(text, path, WINDOW if self.window is None else self.window)
                        if kind == "trace"
                        else Table.read(text, path, self.repeat, form)
                    )
                except ValueError as error:
                    inside = str(error).startswith(("window: ", "repeat: "))
                    place = "" if inside else f"{kind}: " if key == "file" else f"{kind}: {key}: "
                    raise ValueError(f"{place}{error}") from None
        return self

    @property
    def has_sides(self) -> bool:
        """Whether it has separate files for up or down."""
        return bool({"up", "down"} & self._files.keys())

    def made(self, *, upward: bool) -> Schedule | None:
        """The schedule of one direction; ``upward``: the one towards the cloud."""
        if self._files:
            return self._files.get("up" if upward else "down", self._files.get("file"))
        return self._written(upward=upward)

    def _written(self, *, upward: bool) -> Steps:
        steps = [Step(at=each.at, settings=each.changes(upward=upward)) for each in self.steps]
        steps += [
            Step(
                at=each.at,
                over=each.over,
                pace=each.step,
                start={} if each.from_ is None else each.from_.changes(upward=upward),
                settings=each.to.changes(upward=upward),
            )
            for each in self.ramp
        ]
        steps += [
            Step(at=each.at, interruption=each.interruption, settings=each.changes(upward=upward))
            for each in self.handover
        ]
        return Steps(tuple(steps), self.repeat)


def _plain(named: Mapping[Any, str]) -> dict[str, str]:
    return dict(named)
