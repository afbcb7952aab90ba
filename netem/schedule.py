"""Links over time: what a profile becomes while a run goes on.

A schedule knows no link: laid over a base profile, it gives in order of time what the link is from each moment on.

    Steps     changes written down one by one: at once, gradually (a ramp), or after an interruption (a handover);
              the list may repeat
    Trace     the rate by a packet-delivery trace of Mahimahi (netem.traces)
    Table     latency, rate, loss and jitter by the rows of a CSV file (netem.traces)

Times are seconds from the schedule's beginning. A `Change` is the whole state and no difference, so that whoever is
late may leave out those that a later one has overtaken. Nothing is drawn by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Protocol, Self

from netem.errors import ProfileError, ScheduleError
from netem.profile import FRACTIONS, KEYS, GilbertElliott, LinkProfile
from netem.units import format_duration, parse_duration

RAMPED = ("latency", "jitter", "loss", "rate", *FRACTIONS)
PACE = 0.1  # s from one step of a ramp to the next, unless another is given
MOST_STEPS = 100_000  # of one ramp
SHORTEST_REPEAT = 0.01  # s
DIGITS = 9  # times are multiples of a nanosecond, so that sums of them compare equal


@dataclass(frozen=True)
class Change:
    """From ``at`` (seconds) on, the link has ``profile``; if ``cut``, nothing crosses it."""

    at: float
    profile: LinkProfile
    cut: bool = False


class Schedule(Protocol):
    """How a link changes over time."""

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        """The states of a link that is ``base`` at first, in order of time, without end if the schedule repeats.

        A state may equal the one before it. Raises ProfileError where settings do not go together, see `extremes`.
        """

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        """The few profiles to reckon with: whoever plans for these has planned for all, traces taken at their mean.

        Raises ProfileError for every base for which `changes` would.
        """

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON in the form with units; of files their name and hash, not what is in them."""

    def describe(self) -> str:
        """A line for people."""


def check_repeat(repeat: float | None) -> None:
    """Raises ScheduleError where a schedule would begin anew all the time."""
    if repeat is not None and repeat < SHORTEST_REPEAT:
        least = format_duration(SHORTEST_REPEAT)
        raise ScheduleError(f"repeat: must be at least {least}, not {format_duration(repeat)}")


def until(schedule: Schedule, base: LinkProfile, horizon: float) -> list[Change]:
    """The states up to ``horizon`` seconds, that moment included, without those that change nothing."""
    found = [Change(0.0, base)]
    for change in takewhile(lambda each: each.at <= horizon, schedule.changes(base)):
        if (change.profile, change.cut) != (found[-1].profile, found[-1].cut):
            found.append(change)
    return found[1:]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change of what holds at ``at`` seconds.

    settings      what is merged into the profile, in the form with units (`LinkProfile.merged`)
    over          a ramp: seconds in which the numbers among the settings go there in equal steps, every ``pace``
                  seconds; words, buffers and the rest change at its beginning
    start         a ramp's beginning, merged first; by default it begins with what holds
    interruption  a handover: seconds for which nothing crosses first
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
            over, least = format_duration(self.over), format_duration(math.ceil(self.over / MOST_STEPS * 1000) / 1000)
            raise ScheduleError(
                f"ramp: {over} in steps of {format_duration(self.pace)} are more than {MOST_STEPS:,} "
                f"changes: take a step of {least} or more"
            )

    @property
    def end(self) -> float:
        """When it is done."""
        return round(self.at + max(self.over, self.interruption), DIGITS)

    def times(self) -> Iterator[float]:
        """The moments at which the link changes."""
        yield self.at
        for number in range(1, math.ceil(round(self.over / self.pace, DIGITS))):
            yield round(self.at + number * self.pace, DIGITS)
        yield self.end

    def applied(self, profile: LinkProfile, now: float) -> LinkProfile:
        """What becomes of a profile at ``now``, at or after the step's own time."""
        if now >= self.end or not self.over:
            return profile.merged(self.settings)
        begin = profile.merged(self.start)
        return _between(begin, begin.merged(self.settings), (now - self.at) / self.over)

    def to_mapping(self) -> dict[str, Any]:
        at = {"at": format_duration(self.at)}
        if not self.over:
            held = {"interruption": format_duration(self.interruption)} if self.interruption else {}
            return at | held | dict(self.settings)
        pace = {"step": format_duration(self.pace)} if self.pace != PACE else {}
        begin = {"from": dict(self.start)} if self.start else {}
        return at | {"over": format_duration(self.over)} | pace | begin | {"to": dict(self.settings)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read what `to_mapping` writes. Raises UnitError or ScheduleError."""
        settings = dict(mapping)
        times = {key: parse_duration(settings.pop(key)) for key in ("at", "over", "interruption") if key in settings}
        pace = parse_duration(settings.pop("step")) if "step" in settings else PACE
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
    """Changes on top of one another, in order of time; with ``repeat`` everything begins anew after so many seconds.

    A later step wins where two say something of the same setting, also over a ramp that is still going on.
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
        """Read what `to_mapping` writes. Raises UnitError or ScheduleError."""
        steps = [Step.from_mapping(each) for kind in ("steps", "ramp", "handover") for each in mapping.get(kind, ())]
        return cls(tuple(steps), parse_duration(mapping["repeat"]) if "repeat" in mapping else None)

    def describe(self) -> str:
        words = "; ".join(step.describe() for step in self.steps)
        return words if self.repeat is None else f"{words}; again every {format_duration(self.repeat)}"

    def _state(self, base: LinkProfile, now: float) -> tuple[LinkProfile, bool]:
        profile, cut = base, False
        for step in self.steps:
            if step.at > now:
                break
            profile = step.applied(profile, now)
            cut = cut or (step.interruption > 0 and now < step.end)
        return profile, cut


def _between(begin: LinkProfile, end: LinkProfile, share: float) -> LinkProfile:
    """``share`` of the way from one profile to the other. ProfileError where a setting has no numbers in between."""
    values: dict[str, float] = {}
    for name in RAMPED:
        a, b = getattr(begin, name), getattr(end, name)
        if a == b:
            continue
        if isinstance(a, GilbertElliott) or isinstance(b, GilbertElliott):
            raise ProfileError("loss: a ramp takes plain fractions; change bursts of loss in steps")
        if a is None or b is None:
            raise ProfileError("rate: a ramp needs one at both of its ends, e.g. from: {rate: 50mbit}")
        value = a + share * (b - a)
        values[name] = float(round(value)) if name == "rate" and value >= 1 else round(value, DIGITS)
    return end.merged(**values)


def _written(settings: Mapping[str, Any]) -> str:
    """Settings in words; a whole profile, which takes the place of another, as one."""
    if len(settings) >= len(KEYS):
        return LinkProfile.from_mapping(settings).describe()
    return ", ".join(f"{key} {_plain(value)}" for key, value in settings.items())


def _plain(value: object) -> object:
    return "unlimited" if value is None else value
