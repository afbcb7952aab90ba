"""The clients of a population in a scenario: which of them a round has, when they are available, and their speed.

    topology: {population: 100000, selected: 100}
    clients:
      selection: uniform                                    or least-available, {name: oort, alpha: 2}
      over: 30%                                             130 are asked, the round ends with 100 answers
      availability: day-and-night                           or {trace: traces/availability.csv}; default: always there
      hardware: {phone: 70%, raspberry-pi-4: 30%}           or speed: {lognormal: {median: 0.2, sigma: 0.5}}
      links: {wifi: 60%, lte: 40%}                          default: links.device-cloud, for all
      samples: {lognormal: {median: 40, sigma: 0.8}}        or data.samples_per_client

All of this is drawn from the scenario's seed (`orchestrator.population`). Without a population, files have the settings
of single nodes, and when each of them is available (`client_files`):

    clients: {file: clients.csv, availability: {trace: stays.csv}}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from netem.units import format_fraction
from orchestrator.population.availability import DayAndNight
from orchestrator.population.population import Numbers
from orchestrator.population.selection import SELECTIONS
from orchestrator.population.table import AvailabilityTable
from orchestrator.scenario.catalogue import catalogue_in
from orchestrator.scenario.choices import Named
from orchestrator.scenario.language.files import named_text
from orchestrator.scenario.language.quantities import Duration, Fraction
from orchestrator.scenario.language.strict import Strict, unknown
from orchestrator.scenario.population.client_settings import ClientSettings
from orchestrator.scenario.sections.hardware import HARDWARE

DAY_AND_NIGHT = "day-and-night"
FEWER = "; take fewer devices"  # if a file is too large


class SelectionSpec(Named):
    """How the clients of a round are selected among those that are available."""

    what: ClassVar[str] = "selection"
    entries: ClassVar[Mapping[str, Any]] = SELECTIONS


class LognormalSpec(Strict):
    """A log-normal distribution."""

    median: float = Field(gt=0, description="median")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the natural logarithm")
    low: float | None = Field(default=None, gt=0, description="minimum: smaller draws become this; default: none")
    high: float | None = Field(default=None, gt=0, description="maximum: larger draws become this; default: none")

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        normal = random.standard_normal(count)
        numbers = self.median * np.exp(self.sigma * normal)
        if self.low is None and self.high is None:
            return numbers
        return np.clip(numbers, self.low, self.high)


class UniformSpec(Strict):
    """A uniform distribution."""

    low: float = Field(gt=0, description="minimum")
    high: float = Field(gt=0, description="maximum")

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return random.uniform(self.low, self.high, count)


def _ordered(spec: Any) -> Any:
    has_both = spec.low is not None and spec.high is not None
    if has_both and spec.low > spec.high:
        raise ValueError(f"low: {spec.low:g} is above high, {spec.high:g}")
    return spec


class DistributionSpec(Strict):
    """A distribution from which each client draws a number once."""

    lognormal: Annotated[LognormalSpec, AfterValidator(_ordered)] | None = Field(
        default=None, description="log-normal distribution"
    )
    uniform: Annotated[UniformSpec, AfterValidator(_ordered)] | None = Field(
        default=None, description="uniform distribution"
    )

    @model_validator(mode="after")
    def _check_one(self) -> DistributionSpec:
        if (self.lognormal is None) == (self.uniform is None):
            raise ValueError("write one distribution: {lognormal: {median: 1, sigma: 0.5}} or {uniform: {low, high}}")
        return self

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        chosen = self.lognormal or self.uniform
        assert chosen is not None
        return chosen.draw(random, count)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


def _shares(value: dict[str, float]) -> dict[str, float]:
    total = sum(value.values())
    if value and not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ValueError(f"the shares add up to {format_fraction(round(total, 9))}, not to 100%")
    return value


def _shares_of_hardware(value: dict[str, float]) -> dict[str, float]:
    _check_names("hardware class", value, HARDWARE)
    return _shares(value)


def _shares_of_profiles(value: dict[str, float], info: ValidationInfo) -> dict[str, float]:
    _check_names("named profile", value, catalogue_in(info).profiles)
    return _shares(value)


def _check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(unknown(what, name, known))


def _hour(value: str) -> str:
    hours = value.removesuffix("h")
    try:
        if hours == value or not -24 <= float(hours) <= 24:
            raise ValueError
    except ValueError:
        raise ValueError(f"write hours east of UTC, like 8h or -5h, not '{value}'") from None
    return value


_Hours = Annotated[str, AfterValidator(_hour)]


class DayAndNightSpec(Strict):
    """Clients are available while they charge and have Wi-Fi: most of them at night by their own clock, some by day."""

    start: Duration = Field(default=DayAndNight.start, description="time of day, in UTC, at which training starts")
    time_zones: Annotated[dict[_Hours, Fraction], AfterValidator(_shares)] = Field(
        default={"-6h": 0.25, "1h": 0.35, "8h": 0.4},
        description="shares of clients per time zone, in hours east of UTC",
    )
    wifi: Fraction = Field(default=DayAndNight.wifi, description="share of clients that have Wi-Fi where they charge")
    nights: Fraction = Field(default=DayAndNight.nights, description="share of nights in which a client charges")
    bedtime: Duration = Field(
        default=DayAndNight.bedtime, description="mean local time at which a charge at night starts"
    )
    sleep: Duration = Field(default=DayAndNight.sleep, gt=0, description="mean duration of a charge at night")
    spread: Duration = Field(default=DayAndNight.spread, description="standard deviation of bedtime and sleep")
    day_charges: Fraction = Field(
        default=DayAndNight.day_charges, description="share of days on which a client also charges by day"
    )
    day_charge: Duration = Field(default=DayAndNight.day_charge, gt=0, description="mean duration of a charge by day")


class AvailabilitySpec(Strict):
    """When clients are available: by a model, or by a trace."""

    day_and_night: DayAndNightSpec | None = Field(
        default=None,
        alias=DAY_AND_NIGHT,
        description="population only: a model in which most clients are available at night",
    )
    trace: str | None = Field(
        default=None, description="CSV file with columns device, from, until, period; times in seconds"
    )
    repeat: Duration | None = Field(
        default=None, gt=0, description="trace only: it repeats after this time; default: after its last time"
    )

    _table: AvailabilityTable | None = PrivateAttr(default=None)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = super().__get_pydantic_json_schema__(core, handler)
        return {"anyOf": [{"const": DAY_AND_NIGHT}, mapping]}

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> AvailabilitySpec:
        if (self.day_and_night is None) == (self.trace is None):
            raise ValueError(f"write {DAY_AND_NIGHT}, or {{trace: FILE}}")
        if self.trace is None:
            if self.repeat is not None:
                raise ValueError("repeat: goes with trace")
            return self
        try:
            text = named_text(self.trace, info.context, FEWER)
            self._table = AvailabilityTable.read(text, self.trace, self.repeat)
        except ValueError as error:
            raise ValueError(f"trace: {error}") from None
        return self

    @property
    def table(self) -> AvailabilityTable | None:
        """The trace that was read; None for a model."""
        return self._table


def _availability(value: Any) -> Any:
    if value == DAY_AND_NIGHT:
        return {DAY_AND_NIGHT: {}}
    return value


class ClientsSpec(Strict):
    """Settings of clients. Without a population: ``file`` and ``availability``. With one: all keys."""

    file: str | None = Field(
        default=None,
        description="CSV file with columns for hardware and link, and a row for each node; in a population each "
        "client draws a row",
    )
    selection: SelectionSpec = Field(
        default=SelectionSpec(name="uniform"),
        description="population only: how the clients of a round are selected among those that are available",
    )
    over: Fraction = Field(
        default=0.0,
        description="population only: over-selection; with 30% and 100 selected, 130 clients are selected and the "
        "slowest 30 dropped",
    )
    availability: Annotated[AvailabilitySpec | None, BeforeValidator(_availability)] = Field(
        default=None,
        description="when clients are available; day-and-night: that model with its defaults; default: always",
    )
    hardware: Annotated[dict[str, Fraction], AfterValidator(_shares_of_hardware)] = Field(
        default={},
        description="population only: shares of hardware classes, in total 100%; default: hardware.device for all",
    )
    speed: DistributionSpec | None = Field(
        default=None,
        description="population only, instead of hardware: distribution of speeds, relative to a core of this host",
    )
    links: Annotated[dict[str, Fraction], AfterValidator(_shares_of_profiles)] = Field(
        default={},
        description="population only: shares of named link profiles, in total 100%; default: links.device-cloud",
    )
    samples: DistributionSpec | None = Field(
        default=None,
        description="population only: distribution of the number of training samples; default: data.samples_per_client",
    )

    _settings: ClientSettings | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> ClientsSpec:
        if self.file is not None:
            try:
                text = named_text(self.file, info.context, FEWER)
                self._settings = ClientSettings.read(text, self.file)
            except ValueError as error:
                raise ValueError(f"file: {error}") from None
        return self

    @property
    def settings(self) -> ClientSettings | None:
        """The rows of ``file``."""
        return self._settings

    @model_validator(mode="after")
    def _check_one_speed(self) -> ClientsSpec:
        if self.hardware and self.speed is not None:
            raise ValueError("speed: is given by hardware already: leave out one of them")
        return self
