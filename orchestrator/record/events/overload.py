"""Overload of the link engine or of its host, as the monitor of a run records it (`orchestrator.fidelity.overload`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from orchestrator.record.events.base import RecordedEvent

FULL_HOST = 0.95  # of the processors' time, from which on they are saturated
SHORTEST = 0.25  # s; counters of processors move in steps of 10 ms, so less says nothing about a rate

LATE_PACKETS = "packets left late"
LOST_PACKETS = "packets lost beyond the profile"
FULL_BACKLOG = "packets lost in this host's backlog, possibly of this run"
SATURATED = "processors saturated"
LOAD = "this host's processors were "
BUSY_MEANWHILE = f"{LOAD}saturated at that time"
"""The remark on a link that differs from its settings, if the host had too much work when the link was measured."""


def load_remark(*, saturated: bool, busy: float | None) -> str:
    """The remark on a link that differs from its settings: the load of the host when the link was measured. ``busy``:
    the share of the processors' time. Empty if it is not known."""
    if saturated:
        return BUSY_MEANWHILE
    if busy is None:
        return ""
    return f"{LOAD}{busy:.0%} busy at that time"


def remark_in(detail: str) -> str:
    """The remark at the end of the detail of a probe, empty without one: of records that have no column for the
    load."""
    _, start, rest = detail.partition(LOAD)
    return start + rest


@dataclass(frozen=True)
class Overload(RecordedEvent):
    """An interval of overload.

    effects    effects on packets, or SATURATED if there are none
    cause      the cause, in words
    late       number of packets later than `netem.userspace.switch.LATE`; `late_max` maximum lateness in seconds
    held_up    seconds for which packets were delayed: the maximum lateness of each reading, at most the time since
               the reading before, summed
    lost       packets lost, by place
    processors, switch, waiting   busy share of the host's processors, share of one that the switch used, share of the
               time during which some task waited for a processor (None: unknown); the maxima of the readings
    """

    NAME = "overload"

    start: float
    end: float
    effects: tuple[str, ...]
    cause: str
    late: int = 0
    late_max: float = 0.0
    held_up: float = 0.0
    lost: Mapping[str, int] = field(default_factory=dict)
    processors: float = 0.0
    switch: float = 0.0
    waiting: float | None = None

    def followed_by(self, other: Overload) -> bool:
        is_alike = self.effects == other.effects and self.cause == other.cause
        return is_alike and self.end == other.start

    def joined(self, other: Overload) -> Overload:
        """This interval together with one that follows it."""
        waiting = self.waiting
        if other.waiting is not None:
            waiting = max(waiting or 0.0, other.waiting)
        return replace(
            self,
            end=other.end,
            late=self.late + other.late,
            late_max=max(self.late_max, other.late_max),
            held_up=self.held_up + other.held_up,
            lost=Counter(self.lost) + Counter(other.lost),
            processors=max(self.processors, other.processors),
            switch=max(self.switch, other.switch),
            waiting=waiting,
        )

    def to_json(self) -> dict[str, Any]:
        data = vars(self) | {"effects": list(self.effects), "lost": dict(self.lost)}
        for key, value in data.items():
            if isinstance(value, float):
                data[key] = round(value, 6)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "effects": tuple(data["effects"])})


def merged(recorded: Iterable[Overload]) -> list[Overload]:
    """The complete intervals, from the pieces in the record."""
    intervals: list[Overload] = []
    for piece in recorded:
        if intervals and intervals[-1].followed_by(piece):
            intervals[-1] = intervals[-1].joined(piece)
        else:
            intervals.append(piece)
    return intervals
