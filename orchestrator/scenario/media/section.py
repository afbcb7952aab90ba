"""Shared media in a scenario: channels that several links cross, and traffic of others on them.

    shared:
      cell-0:   {up: 20mbit, down: 100mbit, members: [device-0-*]}                a rate for each direction
      ap-0:     {rate: 54mbit, duplex: half, share: frames, members: [device-1-*], rates: {device-1-3: 6mbit}}
      backhaul: {rate: 100mbit, members: ["edge-* <-> cloud"]}                    each direction has the rate
      cell-1:   {profile: lte-cell, buffer: 200ms, members: [device-2-*]}         a named medium, changed
      cell-2:   {rate: 9mbit, members: [edge-2], schedule: {csv: drive.csv}}      its rate changes over time
    routes:
      device-1-* <-> edge-1: [ap-0, backhaul]                                     in order, from the lower end
    cross_traffic:
      - {on: backhaul, direction: up, kind: poisson, rate: 30mbit, at: 10s, for: 60s}
      - {on: ap-0, kind: on-off, rate: 20mbit, on_for: 2s, off_for: 5s}
      - {on: cell-0, kind: trace, csv: others.csv}

A node that is a member is in the medium with its link towards the tier above. Packets towards the cloud cross the
channel ``NAME up``, others ``NAME down``; a half-duplex medium has one channel, ``NAME``.
`orchestrator.scenario.media.routes` finds the channels of each link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, WithJsonSchema, field_validator, model_validator

from netem.errors import ProfileError, UnitError
from netem.media.conversion import channel_like, default_buffer, link_like
from netem.media.library import MEDIA
from netem.media.profile import RULES, ChannelProfile, CrossTraffic, Rule, TrafficKind
from netem.profile import FULL_FRAME, LONGEST, LinkProfile
from netem.schedules.schedule import Schedule
from netem.schedules.traces import TraceTable
from netem.units import format_duration, format_rate, parse_duration, parse_rate, parse_size
from orchestrator.scenario.language.files import named_text
from orchestrator.scenario.language.quantities import DURATION_SCHEMA, SIZE_SCHEMA, Duration, Rate
from orchestrator.scenario.language.strict import Strict, unknown
from orchestrator.scenario.sections.schedules import ScheduleSpec

Direction = Literal["up", "down"]
_PROFILE_SCHEMA = {"type": "string", "enum": sorted(MEDIA)}
_BUFFER_SCHEMA = {"anyOf": [DURATION_SCHEMA, SIZE_SCHEMA]}


def channel_names(medium: str, *, half: bool) -> tuple[str, str]:
    """The channels of a medium up and down; one that is half duplex has a single one."""
    if half:
        return medium, medium
    return f"{medium} up", f"{medium} down"


def medium_of(channel: str) -> str:
    """The medium of a channel; its name has no spaces."""
    return channel.partition(" ")[0]


def buffer_of(written: Any, rate: float) -> float:
    """The seconds of a buffer at a rate, by default too. ValueError if it is too small for a packet."""
    if written is None:
        return default_buffer(rate)
    try:
        seconds = parse_duration(written)
    except UnitError:
        seconds = parse_size(written) * 8 / rate
    if seconds * rate < FULL_FRAME * 8:
        least = _least_buffer(rate)
        raise ValueError(
            f"buffer: {written} at {format_rate(rate)} is less than one full packet: give at least {least}"
        )
    if seconds > LONGEST:
        raise ValueError(f"buffer: must be at most {format_duration(LONGEST)}, not {written}")
    return seconds


def _least_buffer(rate: float) -> str:
    """The time of a full packet at a rate, in whole milliseconds and no less."""
    seconds = FULL_FRAME * 8 / rate
    return format_duration(round(seconds + 0.0005, 3))


def buffer_values(written: Any, rate: float) -> dict[str, Any]:
    """A buffer as values of a channel. It holds a size at any rate."""
    link = LinkProfile(rate=rate).merged({"buffer": written})
    seconds = buffer_of(written, rate)
    return {"buffer": seconds, "size": link.buffer_bytes}


def slowest(channel: ChannelProfile, schedule: Schedule | None) -> ChannelProfile:
    """A channel with the lowest rate of its schedule."""
    candidates = [channel]
    if schedule is not None:
        for extreme in schedule.extremes(link_like(channel)):
            candidates.append(channel_like(channel, extreme))
    return min(candidates, key=lambda candidate: candidate.rate)


class MediumSpec(Strict):
    """A medium that several links share: a rate for both directions or one for each, a sharing rule and a buffer."""

    short: ClassVar[str | None] = "profile"

    profile: Annotated[str | None, WithJsonSchema(_PROFILE_SCHEMA)] = Field(
        default=None, description="the named medium to start from; the keys next to it change it"
    )
    rate: Rate | None = Field(
        default=None,
        description="what all members together can send, Ethernet headers included; with duplex full, each way",
    )
    up: Rate | None = Field(default=None, description="the rate towards the cloud, if the directions differ")
    down: Rate | None = Field(default=None, description="the rate away from the cloud")
    duplex: Literal["half", "full"] | None = Field(
        default=None,
        description="full: each direction has a rate of its own; half: both share one; default: full",
    )
    share: Rule | None = Field(
        default=None,
        description="how members share the rate. fair: equal bytes. fifo: one queue, the shares follow from the "
        "senders. airtime: equal time, with the rate of each member. frames: equal numbers of packets, so that a slow "
        "member slows all (802.11b); default: fair",
    )
    buffer: Annotated[Any, WithJsonSchema(_BUFFER_SCHEMA)] = Field(
        default=None,
        description="what the queues in front of the medium hold together, as a time at its rate or as a size; packets "
        "that do not fit are dropped; default: 100ms, at least 16 full packets",
    )
    rates: dict[str, Rate] = Field(
        default={},
        description="with airtime and frames: the rates of single members, by name or pattern; default: the medium's",
    )
    schedule: ScheduleSpec | None = Field(
        default=None, description="how its rate and buffer change during the run: steps, ramps or a csv with t and rate"
    )
    members: list[str] = Field(
        default=[],
        description="the nodes that are in the medium with their link to the tier above (`device-0-*`), and links "
        "(`edge-* <-> cloud`); the asterisk stands for any text",
    )

    @field_validator("profile")
    @classmethod
    def _check_name(cls, value: str | None) -> str | None:
        if value is not None and value not in MEDIA:
            raise ValueError(unknown("named medium", value, MEDIA))
        return value

    @field_validator("buffer")
    @classmethod
    def _check_buffer(cls, value: Any) -> Any:
        if value is not None:
            try:
                LinkProfile(rate=1.0).merged({"buffer": value})
            except ProfileError as error:
                raise ValueError(str(error).removeprefix("buffer: ")) from None
        return value

    @model_validator(mode="after")
    def _check_sense(self) -> MediumSpec:
        self._check_sides()
        buffer = self._settled("buffer")
        rates = []
        for rate in self.direction_rates:
            assert rate is not None, "there is one for each direction"
            buffer_of(buffer, rate)
            rates.append(rate)
        self._check_rates(min(rates))
        if self.schedule is not None:
            self._check_schedule(self.schedule)
        return self

    def _check_rates(self, most: float) -> None:
        """Check the rates of single members. ``most``: that of the medium."""
        if self.rates and not RULES[self.rule].own_rates:
            able = []
            for name, rule in RULES.items():
                if rule.own_rates:
                    able.append(f"share: {name}")
            raise ValueError(f"rates: go with {' or '.join(able)}, not with {self.rule}")
        for member, rate in self.rates.items():
            if rate > most:
                why = f"{format_rate(rate)} is more than the medium has, {format_rate(most)}"
                raise ValueError(f"rates: {member}: {why}: give the medium the rate of its fastest member")

    def _check_sides(self) -> None:
        """Check that there is a rate for both directions, or one for each."""
        has_sides = self.up is not None or self.down is not None
        if self.rate is not None and has_sides:
            raise ValueError("rate: is for both directions: give either rate, or up and down")
        if self.half and has_sides:
            raise ValueError("duplex: half has one rate for both directions: write rate instead of up and down")
        rates = self.direction_rates
        if rates == (None, None):
            raise ValueError("a medium needs a rate: write rate, or up and down, or the profile of a named medium")
        if None not in rates:
            return
        written = "down"
        missing = "up"
        if self.up is not None:
            written = "up"
            missing = "down"
        raise ValueError(f"{written}: goes with {missing}; write rate for both directions")

    def _check_schedule(self, schedule: ScheduleSpec) -> None:
        if schedule.trace is not None or schedule.handover:
            kind = "trace" if schedule.trace is not None else "handover"
            raise ValueError(f"schedule: {kind}: is for links: give a medium steps, ramps or a csv with t and rate")
        if self.half and schedule.has_sides:
            raise ValueError("schedule: up and down have no meaning for a half-duplex medium; name one file")
        channels = self.channels("medium", {})
        for name, profile in channels.items():
            base = link_like(profile)
            upward = name.endswith("up")
            timeline = schedule.of_direction(upward=upward)
            if timeline is not None:
                for extreme in timeline.extremes(base):
                    _check_extreme(base, extreme)

    def schedules(self, name: str) -> dict[str, Schedule]:
        """The schedules of the channels that have one."""
        if self.schedule is None:
            return {}
        up, down = channel_names(name, half=self.half)
        schedule_up = self.schedule.of_direction(upward=True)
        schedule_down = self.schedule.of_direction(upward=False)
        schedules = {}
        if schedule_up is not None:
            schedules[up] = schedule_up
        if schedule_down is not None:
            schedules[down] = schedule_down
        return schedules

    def _settled(self, key: str) -> Any:
        """The value of a key: its own, or that of the named medium."""
        own = getattr(self, key)
        if own is not None:
            return own
        if self.profile:
            return MEDIA[self.profile].get(key)
        return None

    @property
    def half(self) -> bool:
        duplex = self._settled("duplex")
        return bool(duplex == "half")

    @property
    def rule(self) -> Rule:
        rule: Rule = self._settled("share") or "fair"
        return rule

    @cached_property
    def direction_rates(self) -> tuple[float | None, float | None]:
        if self.rate is not None:
            return self.rate, self.rate
        return self._rate_of("up"), self._rate_of("down")

    def _rate_of(self, direction: Direction) -> float | None:
        own: float | None = getattr(self, direction)
        if own is not None:
            return own
        if not self.profile:
            return None
        named = MEDIA[self.profile]
        written = named.get(direction, named.get("rate"))
        if written is None:
            return None
        return parse_rate(written)

    def channels(self, name: str, rates: Mapping[str, float]) -> dict[str, ChannelProfile]:
        """The channels by name. ``rates``: of single members."""
        channels = {}
        names = channel_names(name, half=self.half)
        written = self._settled("buffer")
        for channel, rate in zip(names, self.direction_rates, strict=True):
            assert rate is not None, "validation has checked it"
            buffer = buffer_values(written, rate)
            channels[channel] = ChannelProfile(
                rate,
                self.rule,
                rates=dict(rates),
                **buffer,
            )
        return channels


def _check_extreme(base: LinkProfile, extreme: LinkProfile) -> None:
    """Check a profile that a schedule gives a medium. ``base``: without the schedule."""
    same = replace(
        extreme,
        rate=base.rate,
        buffer=base.buffer,
        buffer_bytes=base.buffer_bytes,
    )
    if same != base or extreme.rate is None:
        raise ValueError("schedule: a medium only has a rate and a buffer: schedule its links for the rest")
    buffer = extreme.buffer_limit or 0
    if buffer < FULL_FRAME:
        rate = format_rate(extreme.rate)
        least = _least_buffer(extreme.rate)
        raise ValueError(f"schedule: at {rate} the buffer is less than one full packet: write buffer: {least} or more")


_KEYS_BY_KIND = {
    "constant": ("rate",),
    "poisson": ("rate",),
    "on-off": ("rate", "on_for", "off_for"),
    "trace": ("csv",),
}


class CrossTrafficSpec(Strict):
    """Traffic of others on a medium: packets that occupy it and are then discarded. It does not react to losses."""

    on: str = Field(description="the medium")
    direction: Direction | None = Field(
        default=None, description="the direction of a medium with two; default: the same traffic in both"
    )
    kind: TrafficKind = Field(
        description="constant: a packet at equal times. poisson: at random times. on-off: constant, with pauses of "
        "random length. trace: the rate is that of a file"
    )
    rate: Rate | None = Field(default=None, description="its mean rate; of on-off, while it is on")
    on_for: Duration | None = Field(default=None, ge=0.001, description="on-off only: the mean time for which it is on")
    off_for: Duration | None = Field(
        default=None, ge=0.001, description="on-off only: the mean time for which it is off"
    )
    csv: str | None = Field(default=None, description="trace only: a table with the columns t and rate, 0 for none")
    at: Duration = Field(default=0.0, description="its start, after training started")
    for_: Duration | None = Field(
        default=None, alias="for", gt=0, description="its duration; default: until the run ends"
    )

    _table: TraceTable | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_sense(self, info: ValidationInfo) -> CrossTrafficSpec:
        required = _KEYS_BY_KIND[self.kind]
        for key in ("rate", "on_for", "off_for", "csv"):
            is_set = getattr(self, key) is not None
            if key in required and not is_set:
                raise ValueError(f"{key} is missing: {self.kind} takes {', '.join(required)}")
            if is_set and key not in required:
                raise ValueError(f"{key}: has no meaning for {self.kind}, which takes {', '.join(required)}")
        if self.csv is not None:
            self._table = _read_rates(self.csv, info)
        return self

    def traffic(self) -> CrossTraffic:
        """It as the switch and the simulation take it."""
        return CrossTraffic(
            self.kind,
            rate=self.rate or 0.0,
            on=self.on_for or 0.0,
            off=self.off_for or 0.0,
            rows=tuple(self._rows()),
        )

    def _rows(self) -> list[tuple[float, float]]:
        """The rates of a trace from the start of training on."""
        if self._table is None:
            return []
        rows = []
        for row in self._table.rows:
            rate = row.values.get("rate", 0.0)
            rows.append((row.at, rate))
        if rows:
            first_at, _ = rows[0]
            if first_at > 0:
                rows.insert(0, (0.0, 0.0))
        return rows

    @property
    def file(self) -> dict[str, str]:
        """The name and the hash of the trace's file, if it has one."""
        if self._table is None:
            return {}
        return {"csv": self._table.name, "sha256": self._table.sha256}

    @property
    def end(self) -> float:
        """When it ends, in seconds of training."""
        if self.for_ is None:
            return float("inf")
        return self.at + self.for_


def _read_rates(csv: str, info: ValidationInfo) -> TraceTable:
    """The table of a trace of cross traffic. ValueError if it has more than rates."""
    try:
        text = named_text(csv, info.context)
        table = TraceTable.read(text, csv)
    except ValueError as error:
        raise ValueError(f"csv: {error}") from None
    columns: set[str] = set()
    for row in table.rows:
        columns.update(row.values)
    stray = sorted(columns - {"rate"})
    if stray:
        raise ValueError(f"csv: {csv} has a column {stray[0]}: cross traffic only has t and rate")
    return table
