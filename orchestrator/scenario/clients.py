"""The clients of a population in a scenario: who takes part in a round, when clients are there, how fast they are.

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
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from netem.library import PROFILES
from netem.units import format_fraction
from orchestrator.population.availability import DayAndNight
from orchestrator.population.selection import SELECTIONS
from orchestrator.population.table import AvailabilityTable
from orchestrator.scenario.catalogue import Named
from orchestrator.scenario.client_settings import ClientSettings
from orchestrator.scenario.files import named_text
from orchestrator.scenario.hardware import HARDWARE
from orchestrator.scenario.quantities import Duration, Fraction
from orchestrator.scenario.strict import Strict, unknown

DAY_AND_NIGHT = "day-and-night"
FEWER = "; take fewer devices"  # if a file is too large


class SelectionSpec(Named):
    """Who takes part in a round, of the clients that are there."""

    what: ClassVar[str] = "selection"
    entries: ClassVar[Mapping[str, Any]] = SELECTIONS


class LognormalSpec(Strict):
    """exp of a normal distribution; draws outside ``low`` to ``high`` take these values."""

    median: float = Field(gt=0)
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")
    low: float | None = Field(default=None, gt=0)
    high: float | None = Field(default=None, gt=0)


class UniformSpec(Strict):
    """The same chance for all numbers from ``low`` to ``high``."""

    low: float = Field(gt=0)
    high: float = Field(gt=0)


def _ordered(spec: Any) -> Any:
    if spec.low is not None and spec.high is not None and spec.low > spec.high:
        raise ValueError(f"low: {spec.low:g} is above high, {spec.high:g}")
    return spec


class DistributionSpec(Strict):
    """A distribution that each client draws from once."""

    lognormal: Annotated[LognormalSpec, AfterValidator(_ordered)] | None = None
    uniform: Annotated[UniformSpec, AfterValidator(_ordered)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> DistributionSpec:
        if (self.lognormal is None) == (self.uniform is None):
            raise ValueError("write one distribution: {lognormal: {median: 1, sigma: 0.5}} or {uniform: {low, high}}")
        return self


def _shares(value: dict[str, float]) -> dict[str, float]:
    if value and not math.isclose(sum(value.values()), 1.0, abs_tol=1e-9):
        raise ValueError(f"the shares add up to {format_fraction(round(sum(value.values()), 9))}, not to 100%")
    return value


def _shares_of(what: str, known: Mapping[str, object]) -> AfterValidator:
    def check(value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in known:
                raise ValueError(unknown(what, name, known))
        return _shares(value)

    return AfterValidator(check)


def _hour(value: str) -> str:
    hours = value.removesuffix("h")
    try:
        if hours == value or not -24 <= float(hours) <= 24:
            raise ValueError
    except ValueError:
        raise ValueError(f"write hours east of UTC, like 8h or -5h, not '{value}'") from None
    return value


class DayAndNightSpec(Strict):
    """Clients are there while they are plugged in and on Wi-Fi: most at night, by their own clock, some by day."""

    start: Duration = Field(default=DayAndNight.start, description="time of day in UTC at which the training begins")
    time_zones: Annotated[dict[Annotated[str, AfterValidator(_hour)], Fraction], AfterValidator(_shares)] = Field(
        default={"-6h": 0.25, "1h": 0.35, "8h": 0.4}, description="shares of clients by hours east of UTC"
    )
    wifi: Fraction = Field(default=DayAndNight.wifi, description="share of clients that have Wi-Fi where they charge")
    nights: Fraction = Field(default=DayAndNight.nights, description="share of nights in which a client is plugged in")
    bedtime: Duration = Field(
        default=DayAndNight.bedtime, description="mean time of day at which a client is plugged in"
    )
    sleep: Duration = Field(default=DayAndNight.sleep, gt=0, description="mean time that it stays plugged in")
    spread: Duration = Field(default=DayAndNight.spread, description="standard deviation of both")
    day_charges: Fraction = Field(default=DayAndNight.day_charges, description="share of days with a short charge")
    day_charge: Duration = Field(default=DayAndNight.day_charge, gt=0, description="mean length of a short charge")


class AvailabilitySpec(Strict):
    """When clients are there: by a model, or by a trace that they take their places in."""

    day_and_night: DayAndNightSpec | None = Field(default=None, alias=DAY_AND_NIGHT)
    trace: str | None = Field(default=None, description="CSV: device,from,until,period in seconds")
    repeat: Duration | None = Field(default=None, gt=0, description="a trace begins anew after this; default: its end")

    _table: AvailabilityTable | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> AvailabilitySpec:
        if (self.day_and_night is None) == (self.trace is None):
            raise ValueError(f"write {DAY_AND_NIGHT}, or {{trace: FILE}}")
        if self.trace is None:
            if self.repeat is not None:
                raise ValueError("repeat: goes with trace")
            return self
        try:
            self._table = AvailabilityTable.read(named_text(self.trace, info.context, FEWER), self.trace, self.repeat)
        except ValueError as error:
            raise ValueError(f"trace: {error}") from None
        return self

    @property
    def table(self) -> AvailabilityTable | None:
        """The trace that was read; None for a model."""
        return self._table


def _availability(value: Any) -> Any:
    return {DAY_AND_NIGHT: {}} if value == DAY_AND_NIGHT else value


class ClientsSpec(Strict):
    """The clients of a population, and who of them takes part in a round; or what files say of single nodes."""

    file: str | None = Field(default=None, description="CSV: hardware and links of single nodes, without a population")
    selection: SelectionSpec = SelectionSpec(name="uniform")
    over: Fraction = Field(default=0.0, description="share of further clients to ask; the slowest of all are dropped")
    availability: Annotated[AvailabilitySpec | None, BeforeValidator(_availability)] = Field(
        default=None, description="default: all clients are always there"
    )
    hardware: Annotated[dict[str, Fraction], _shares_of("hardware class", HARDWARE)] = Field(
        default={}, description="shares of hardware classes; default: hardware.device for all"
    )
    speed: DistributionSpec | None = Field(default=None, description="relative to a host core, instead of hardware")
    links: Annotated[dict[str, Fraction], _shares_of("named profile", PROFILES)] = Field(
        default={}, description="shares of named profiles; default: links.device-cloud for all"
    )
    samples: DistributionSpec | None = Field(default=None, description="training samples of each client")

    _settings: ClientSettings | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> ClientsSpec:
        if self.file is not None:
            try:
                self._settings = ClientSettings.read(named_text(self.file, info.context, FEWER), self.file)
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
