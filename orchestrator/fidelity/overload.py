"""Whether the link engine and its host keep up, from what they have counted. Pure; the monitor reads and records.

What overload does to a run: packets leave late, or are lost though nobody asked for it. Why there is overload: the
switch has more packets to move than it can, the host's processors have more to do than they can, or something stopped
the switch for a moment. Two readings tell both for the time between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from orchestrator.fabric.base import Counted
from orchestrator.host.load import HostLoad

EVENT = "overload"
FULL_SWITCH = 0.9  # of a processor; the switch has one thread
FULL_HOST = 0.95  # of the processors' time
WAITING = 0.5  # of the time, in which some task waits for a processor while they are all busy
LONGEST = 5.0  # s after which what goes on is recorded, lest it is lost with the run

LATE_PACKETS = "packets left late"
LOST_PACKETS = "packets lost that nobody asked for"
FULL_BACKLOG = "packets lost in this host's backlog, perhaps ours"
SATURATED = "processors saturated"


class Reading(NamedTuple):
    """What the engine and the host had counted at ``t``, seconds since the run began."""

    t: float
    counted: Counted
    host: HostLoad


@dataclass
class Overload:
    """A stretch of time in which something did not keep up.

    effects    what it did to packets, or SATURATED where it did nothing to them
    cause      why, in words
    late       packets later than `netem.switch.LATE`; `late_max` seconds the latest
    held_up    seconds for which packets were held up: the latest of each reading, summed
    lost       packets lost, by where
    processors, switch, waiting   busy share of the host's processors, share of one that the switch used, share of the
               time in which some task waited for a processor (None: not known); the highest of its readings
    """

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
        """Whether the other is the same going on."""
        return (self.effects, self.cause, self.end) == (other.effects, other.cause, other.start)

    def extend(self, other: Overload) -> None:
        """Take in what followed."""
        self.end = other.end
        self.late += other.late
        self.late_max = max(self.late_max, other.late_max)
        self.held_up += other.held_up
        self.lost = Counter(self.lost) + Counter(other.lost)
        self.processors, self.switch = max(self.processors, other.processors), max(self.switch, other.switch)
        if other.waiting is not None:
            self.waiting = max(self.waiting or 0.0, other.waiting)

    def to_json(self) -> dict[str, Any]:
        """What the record keeps, in the event "overload"."""
        data = vars(self) | {"effects": list(self.effects), "lost": dict(self.lost)}
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in data.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "effects": tuple(data["effects"])})


def overload(before: Reading, now: Reading) -> Overload | None:
    """What did not keep up between two readings; None if everything did."""
    seconds = now.t - before.t
    if seconds <= 0:
        return None
    shares = _shares(before, now, seconds)
    late = now.counted.late
    lost = Counter(now.counted.drops) - Counter(before.counted.drops)
    backlog = now.host.dropped - before.host.dropped
    saturated = shares["processors"] >= FULL_HOST and (shares["waiting"] is None or shares["waiting"] >= WAITING)
    found = {LATE_PACKETS: late, LOST_PACKETS: lost, FULL_BACKLOG: backlog}
    effects = tuple(effect for effect, happened in found.items() if happened)
    if not effects and not saturated:
        return None
    return Overload(
        before.t,
        now.t,
        effects or (SATURATED,),
        _cause(shares["switch"], saturated=saturated, ours=bool(late or lost)),
        late=late,
        late_max=now.counted.late_max if late else 0.0,
        held_up=now.counted.late_max if late else 0.0,
        lost=dict(lost + Counter({FULL_BACKLOG: backlog})),
        **shares,
    )


def _shares(before: Reading, now: Reading, seconds: float) -> dict[str, Any]:
    busy, idle = now.host.busy - before.host.busy, now.host.idle - before.host.idle
    known = before.host.waiting is not None and now.host.waiting is not None
    return {
        "processors": busy / (busy + idle) if busy + idle > 0 else 0.0,
        "switch": max(0.0, now.counted.cpu_seconds - before.counted.cpu_seconds) / seconds,
        "waiting": min(1.0, ((now.host.waiting or 0.0) - (before.host.waiting or 0.0)) / seconds) if known else None,
    }


def _cause(switch: float, *, saturated: bool, ours: bool) -> str:
    if switch >= FULL_SWITCH:
        return "more packets than the switch can move"
    if saturated:
        return "this host's processors are saturated"
    return "the switch was held up" if ours else "a burst beyond net.core.netdev_max_backlog"


class Overloads:
    """Readings come in, stretches of overload come out when they are over, or have lasted ``LONGEST``.

    ``known``: all of them so far, the one that goes on too.
    """

    def __init__(self) -> None:
        self.known: list[Overload] = []
        self._before: Reading | None = None
        self._open: Overload | None = None

    def add(self, now: Reading) -> list[Overload]:
        """What is to be recorded after this reading. The first one is where counting begins."""
        before, self._before = self._before, now
        found = None if before is None else overload(before, now)
        over: list[Overload] = []
        if self._open is not None and (found is None or not self._open.followed_by(found)):
            over += self.end()
        if self._open is not None and found is not None:
            self._open.extend(found)
        else:
            self._open = found
            self.known += [] if found is None else [found]
        if self._open is not None and self._open.end - self._open.start >= LONGEST:
            over += self.end()
        return over

    def end(self) -> list[Overload]:
        """What is still going on, to be recorded now."""
        going, self._open = self._open, None
        return [] if going is None else [going]


def merged(recorded: Iterable[Mapping[str, Any]]) -> list[Overload]:
    """What was recorded in pieces, as the stretches that it was."""
    stretches: list[Overload] = []
    for each in map(Overload.from_json, recorded):
        if stretches and stretches[-1].followed_by(each):
            stretches[-1].extend(each)
        else:
            stretches.append(each)
    return stretches
