"""Schedules: how a link's profile changes during a run.

A schedule is independent of any link: applied to a base profile, it yields the states of the link in order of time.

    Steps     a list of changes: immediate, gradual (a ramp), or after an interruption (a handover); may repeat
    Trace     the rate from a packet-delivery trace of Mahimahi (netem.schedules.traces)
    Table     latency, rate, loss and jitter from the rows of a CSV file (netem.schedules.traces)

Times are seconds from the schedule's start. A `Change` is the complete state, not a difference, so that a caller
that is late may skip all but the latest. Schedules are deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
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
    current = Change(0.0, base)
    changes = []
    for change in schedule.changes(base):
        if change.at > horizon:
            break
        same_profile = change.profile == current.profile
        if not same_profile or change.cut != current.cut:
            changes.append(change)
            current = change
    return changes


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change of the profile at ``at`` seconds.

    settings      merged into the profile, in the written form (`LinkProfile.merged`)
    over          duration of a ramp in seconds: numeric settings change in equal steps, one every ``pace`` seconds;
                  buffers and non-numeric settings change at its start
    start         the settings at a ramp's start, merged first; default: the current profile
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
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ScheduleError(f"{name}: must be 0 s or more, not {value}")
        if not (math.isfinite(self.pace) and self.pace >= 0.001):
            raise ScheduleError(f"step: must be at least 1ms, not {self.pace} s")
        if self.over / self.pace > MOST_STEPS:
            over = format_duration(self.over)
            milliseconds = math.ceil(self.over / MOST_STEPS * 1000)
            least = format_duration(milliseconds / 1000)
            raise ScheduleError(
                f"ramp: {over} in steps of {format_duration(self.pace)} are more than {MOST_STEPS:,} "
                f"changes: take a step of {least} or more"
            )

    @property
    def end(self) -> float:
        """When the step is complete, in seconds."""
        duration = max(self.over, self.interruption)
        return round(self.at + duration, DIGITS)

    def times(self) -> Iterator[float]:
        """The times in seconds at which the link changes."""
        yield self.at
        paces = round(self.over / self.pace, DIGITS)
        for number in range(1, math.ceil(paces)):
            yield round(self.at + number * self.pace, DIGITS)
        yield self.end

    def applied(self, profile: LinkProfile, now: float) -> LinkProfile:
        """The profile after this step at ``now``, which is at or after the step's time."""
        if now >= self.end or not self.over:
            return profile.merged(self.settings)
        begin = profile.merged(self.start)
        end = begin.merged(self.settings)
        share = (now - self.at) / self.over
        return _between(begin, end, share)

    def to_mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {"at": format_duration(self.at)}
        if not self.over:
            if self.interruption:
                mapping["interruption"] = format_duration(self.interruption)
            return mapping | dict(self.settings)
        mapping["over"] = format_duration(self.over)
        if self.pace != PACE:
            mapping["step"] = format_duration(self.pace)
        if self.start:
            mapping["from"] = dict(self.start)
        mapping["to"] = dict(self.settings)
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read the output of `to_mapping`. Raises UnitError or ScheduleError."""
        settings = dict(mapping)
        times = {}
        for key in ("at", "over", "interruption"):
            if key in settings:
                times[key] = parse_duration(settings.pop(key))
        pace = PACE
        if "step" in settings:
            pace = parse_duration(settings.pop("step"))
        start = settings.pop("from", {})
        settings = settings.pop("to", settings)
        return cls(**times, pace=pace, start=start, settings=settings)

    def describe(self) -> str:
        words = f"at {format_duration(self.at)} "
        if self.interruption:
            words += f"cut for {format_duration(self.interruption)}, then "
        if self.over:
            words += f"over {format_duration(self.over)} "
            if self.start:
                words += f"from {_written(self.start)} "
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
        in_order = sorted(self.steps, key=lambda step: step.at)
        object.__setattr__(self, "steps", tuple(in_order))
        if not self.steps:
            raise ScheduleError("a schedule without a change: give it one, or leave it out")
        check_repeat(self.repeat)
        if self.repeat is None:
            return
        last = max(step.end for step in self.steps)
        positive = math.isfinite(self.repeat) and self.repeat > 0
        if not positive or self.repeat < last:
            raise ScheduleError(
                f"repeat: {format_duration(self.repeat)} is over before the last change is, at {format_duration(last)}"
            )

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        times: set[float] = set()
        for step in self.steps:
            times.update(step.times())
        if self.repeat is not None:
            times.add(0.0)
        period = self.repeat or 0.0
        ordered = sorted(times)
        for cycle in count():
            for time in ordered:
                at = round(cycle * period + time, DIGITS)
                profile, cut = self._state(base, time)
                yield Change(at, profile, cut)
            if self.repeat is None:
                return

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        times: set[float] = set()
        for step in self.steps:
            times.add(step.at)
            times.add(step.end)
        profiles = [base]
        for time in sorted(times):
            profile, _ = self._state(base, time)
            profiles.append(profile)
        return list(dict.fromkeys(profiles))

    def to_mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for step in self.steps:
            if step.over:
                kind = "ramp"
            elif step.interruption:
                kind = "handover"
            else:
                kind = "steps"
            steps = mapping.setdefault(kind, [])
            steps.append(step.to_mapping())
        if self.repeat is not None:
            mapping["repeat"] = format_duration(self.repeat)
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read the output of `to_mapping`. Raises UnitError or ScheduleError."""
        steps = []
        for kind in ("steps", "ramp", "handover"):
            for step in mapping.get(kind, ()):
                steps.append(Step.from_mapping(step))
        repeat = None
        if "repeat" in mapping:
            repeat = parse_duration(mapping["repeat"])
        return cls(tuple(steps), repeat)

    def describe(self) -> str:
        parts = [step.describe() for step in self.steps]
        words = "; ".join(parts)
        if self.repeat is None:
            return words
        return f"{words}; again every {format_duration(self.repeat)}"

    def _state(self, base: LinkProfile, now: float) -> tuple[LinkProfile, bool]:
        profile = base
        cut = False
        for step in self.steps:
            if step.at > now:
                break
            profile = step.applied(profile, now)
            if step.interruption > 0 and now < step.end:
                cut = True
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
    words = []
    for key, value in settings.items():
        written = "unlimited" if value is None else value
        words.append(f"{key} {written}")
    return ", ".join(words)
