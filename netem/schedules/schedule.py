"""Schedules: how a link's profile changes during a run.

A schedule is independent of any link: applied to a base profile, it yields the states of the link in order of time.

    Steps     a list of changes: immediate, gradual (a ramp), or after an interruption (a handover); may repeat
    Trace     the rate from a packet-delivery trace of Mahimahi (netem.schedules.traces)
    Table     latency, rate, loss and jitter from the rows of a CSV file (netem.schedules.traces)

Times are seconds from the schedule's beginning. A `Change` is the complete state, not a difference, so that a caller
that is late may skip all but the latest. Schedules are deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Protocol, Self, runtime_checkable

from netem.errors import ProfileError, ScheduleError
from netem.profile import FRACTIONS, KEYS, GilbertElliott, LinkProfile
from netem.units import format_duration, parse_duration

RAMPED = ("latency", "jitter", "loss", "rate", *FRACTIONS)
PACE = 0.1  # s from one step of a ramp to the next, by default
MOST_STEPS = 100_000  # of one ramp
SHORTEST_REPEAT = 0.01  # s
DIGITS = 9  # times are multiples of a nanosecond, so that sums of them compare equal


@dataclass(frozen=True)
class Change:
    """From ``at`` (seconds) on, the link has ``profile``. If ``cut``, it delivers nothing."""

    at: float
    profile: LinkProfile
    cut: bool = False


@runtime_checkable
class Schedule(Protocol):
    """How a link changes over time."""

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        """The states of a link with the initial profile ``base``, in order of time; endless if the schedule repeats.

        Successive states may be equal. Raises ProfileError if settings are incompatible, see `extremes`.
        """

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        """A few profiles that bound all others: a plan for these covers the schedule. Traces count with their mean.

        Raises ProfileError for every base for which `changes` would.
        """

    def to_mapping(self) -> dict[str, Any]:
        """The written form as plain JSON; a file is given by its name and hash, without its content."""

    def describe(self) -> str:
        """A readable line."""


def check_repeat(repeat: float | None) -> None:
    """Raise ScheduleError if ``repeat`` is shorter than SHORTEST_REPEAT."""
    if repeat is not None and repeat < SHORTEST_REPEAT:
        least = format_duration(SHORTEST_REPEAT)
        raise ScheduleError(f"repeat: must be at least {least}, not {format_duration(repeat)}")


def until(schedule: Schedule, base: LinkProfile, horizon: float) -> list[Change]:
    """The states up to and including ``horizon`` seconds, without those that change nothing."""
    found = [Change(0.0, base)]
    for change in takewhile(lambda each: each.at <= horizon, schedule.changes(base)):
        if (change.profile, change.cut) != (found[-1].profile, found[-1].cut):
            found.append(change)
    return found[1:]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change of the profile at ``at`` seconds.

    settings      merged into the profile, in the written form (`LinkProfile.merged`)
    over          duration of a ramp in seconds: numeric settings change in equal steps, one every ``pace`` seconds;
                  buffers and non-numeric settings change at its beginning
    start         the settings at a ramp's beginning, merged first; default: the current profile
    interruption  a handover: seconds without any delivery before the settings apply
    """

    at: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    over: float = 0.0
    pace: float = PACE
    start: Mapping[str, Any] = field(default_factory=dict)
    interruption: float = 0.0

    def __post_init__(self) -> None:
        for name in ("at", "over", "interruption"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                raise ScheduleError(f"{name}: must be 0 s or more, not {value}")
        if not (math.isfinite(self.pace) and self.pace >= 0.001):
            raise ScheduleError(f"step: must be at least 1ms, not {self.pace} s")
        if self.over / self.pace > MOST_STEPS:
            over = format_duration(self.over)
            least = format_duration(math.ceil(self.over / MOST_STEPS * 1000) / 1000)
            raise ScheduleError(
                f"ramp: {over} in steps of {format_duration(self.pace)} are more than {MOST_STEPS:,} "
                f"changes: take a step of {least} or more"
            )

    @property
    def end(self) -> float:
        """When the step is complete, in seconds."""
        return round(self.at + max(self.over, self.interruption), DIGITS)

    def times(self) -> Iterator[float]:
        """The times in seconds at which the link changes."""
        yield self.at
        for number in range(1, math.ceil(round(self.over / self.pace, DIGITS))):
            yield round(self.at + number * self.pace, DIGITS)
        yield self.end

    def applied(self, profile: LinkProfile, now: float) -> LinkProfile:
        """The profile after this step at ``now``, which is at or after the step's time."""
        if now >= self.end or not self.over:
            return profile.merged(self.settings)
        begin = profile.merged(self.start)
        return _between(begin, begin.merged(self.settings), (now - self.at) / self.over)

    def to_mapping(self) -> dict[str, Any]:
        at = {"at": format_duration(self.at)}
        if not self.over:
            if self.interruption:
                held = {"interruption": format_duration(self.interruption)}
            else:
                held = {}
            return at | held | dict(self.settings)
        if self.pace != PACE:
            pace = {"step": format_duration(self.pace)}
        else:
            pace = {}
        if self.start:
            begin = {"from": dict(self.start)}
        else:
            begin = {}
        return at | {"over": format_duration(self.over)} | pace | begin | {"to": dict(self.settings)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read the output of `to_mapping`. Raises UnitError or ScheduleError."""
        settings = dict(mapping)
        times = {key: parse_duration(settings.pop(key)) for key in ("at", "over", "interruption") if key in settings}
        if "step" in settings:
            pace = parse_duration(settings.pop("step"))
        else:
            pace = PACE
        start = settings.pop("from", {})
        return cls(**times, pace=pace, start=start, settings=settings.pop("to", settings))

    def describe(self) -> str:
        words = f"at {format_duration(self.at)} "
        if self.interruption:
            words += f"cut for {format_duration(self.interruption)}, then "
        if self.over:
            words += f"over {format_duration(self.over)} "
            words += f"from {_written(self.start)} " if self.start else ""
            words += "to "
        return words + (_written(self.settings) or "as before")


@dataclass(frozen=True)
class Steps:
    """Cumulative changes in order of time; with ``repeat`` the schedule restarts after that many seconds.

    If two steps change the same setting, the later one wins, even during a ramp of the earlier one.
    """

    steps: tuple[Step, ...]
    repeat: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(sorted(self.steps, key=lambda step: step.at)))
        if not self.steps:
            raise ScheduleError("a schedule without a change: give it one, or leave it out")
        check_repeat(self.repeat)
        last = max(step.end for step in self.steps)
        if self.repeat is not None and not (math.isfinite(self.repeat) and self.repeat > 0 and self.repeat >= last):
            raise ScheduleError(
                f"repeat: {format_duration(self.repeat)} is over before the last change is, at {format_duration(last)}"
            )

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        times = {time for step in self.steps for time in step.times()} | ({0.0} if self.repeat is not None else set())
        ordered = sorted(times)
        for cycle in count():
            for time in ordered:
                yield Change(round(cycle * (self.repeat or 0.0) + time, DIGITS), *self._state(base, time))
            if self.repeat is None:
                return

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        times = sorted({time for step in self.steps for time in (step.at, step.end)})
        return list(dict.fromkeys([base, *(self._state(base, time)[0] for time in times)]))

    def to_mapping(self) -> dict[str, Any]:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for step in self.steps:
            kind = "ramp" if step.over else "handover" if step.interruption else "steps"
            kinds.setdefault(kind, []).append(step.to_mapping())
        return kinds | ({} if self.repeat is None else {"repeat": format_duration(self.repeat)})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read the output of `to_mapping`. Raises UnitError or ScheduleError."""
        steps = [Step.from_mapping(each) for kind in ("steps", "ramp", "handover") for each in mapping.get(kind, ())]
        return cls(tuple(steps), parse_duration(mapping["repeat"]) if "repeat" in mapping else None)

    def describe(self) -> str:
        words = "; ".join(step.describe() for step in self.steps)
        return words if self.repeat is None else f"{words}; again every {format_duration(self.repeat)}"

    def _state(self, base: LinkProfile, now: float) -> tuple[LinkProfile, bool]:
        profile = base
        cut = False
        for step in self.steps:
            if step.at > now:
                break
            profile = step.applied(profile, now)
            cut = cut or (step.interruption > 0 and now < step.end)
        return profile, cut


def _between(begin: LinkProfile, end: LinkProfile, share: float) -> LinkProfile:
    """Interpolate: ``share`` of the way from ``begin`` to ``end``. ProfileError if a setting has no values between."""
    values: dict[str, float] = {}
    for name in RAMPED:
        a = getattr(begin, name)
        b = getattr(end, name)
        if a == b:
            continue
        if isinstance(a, GilbertElliott) or isinstance(b, GilbertElliott):
            raise ProfileError("loss: a ramp takes plain fractions; change bursts of loss in steps")
        if a is None or b is None:
            raise ProfileError("rate: a ramp needs one at both of its ends, e.g. from: {rate: 50mbit}")
        value = a + share * (b - a)
        if name == "rate" and value >= 1:
            values[name] = float(round(value))
        else:
            values[name] = round(value, DIGITS)
    return end.merged(**values)


def _written(settings: Mapping[str, Any]) -> str:
    """Settings in words; a complete profile, which replaces another, is described as a profile."""
    if len(settings) >= len(KEYS):
        return LinkProfile.from_mapping(settings).describe()
    return ", ".join(f"{key} {'unlimited' if value is None else value}" for key, value in settings.items())
