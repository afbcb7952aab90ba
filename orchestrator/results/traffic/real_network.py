"""What was measured between hosts that real links join. Pure; there is no verdict, because nothing was asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from netem.measurement.tolerance import RTT_ABSOLUTE
from orchestrator import text
from orchestrator.record.events.network import NetworkReading, Pair, pair_of
from orchestrator.results.traffic.hosts_network import CrossingLink, Direction

NOTABLE = 0.5  # of a round trip, and more than a millisecond: such a change is shown


@dataclass
class RealNetwork:
    """The network between two ``hosts``.

    links          directions of real links between them
    before         round trip before the run in seconds; None: no echo came back
    trips          round trip of each reading in which an echo came back
    echoes, lost   echoes of all readings, and those that were lost
    sent, missing  frames of all links between these hosts, and those that did not arrive
    """

    hosts: Pair
    links: int = 0
    before: float | None = None
    trips: list[float] = field(default_factory=list)
    echoes: int = 0
    lost: int = 0
    sent: int = 0
    missing: int = 0

    @property
    def names(self) -> str:
        return f"{self.hosts[0]} – {self.hosts[1]}"

    @property
    def trip(self) -> str:
        """The round trips during the run, in words: the median, and the least and the most."""
        if not self.trips:
            return "–"
        ends = [text.duration(each) for each in (min(self.trips), max(self.trips))]
        spread = f" ({ends[0]} to {ends[1]})" if len(set(ends)) == 2 else ""
        return f"{text.duration(median(self.trips))}{spread}"

    def to_json(self) -> dict[str, Any]:
        """Plain data: times in seconds, None if they were not measured."""
        if self.trips:
            trips = {"median": median(self.trips), "least": min(self.trips), "most": max(self.trips)}
        else:
            trips = {}
        return {
            "hosts": list(self.hosts),
            "links": self.links,
            "round_trip": {"before": self.before, "during": trips or None},
            **{name: getattr(self, name) for name in ("echoes", "lost", "sent", "missing")},
        }

    def __str__(self) -> str:
        if self.trips:
            parts = [f"round trip {self.trip}"]
        elif self.echoes:
            parts = ["no echo came back"]
        else:
            parts = []
        parts += [f"before the run {text.duration(self.before)}"] if self.before is not None else []
        parts += [f"{self.lost:,} of {self.echoes:,} echoes lost"] if self.echoes else []
        parts += [f"{self.missing:,} of {text.count(self.sent, 'frame')} did not arrive"] if self.sent else []
        return f"{self.names}: {', '.join(parts) or 'not measured'}"


class RealNetworks:
    """Takes the readings of a network in the order of time. ``found``: what they tell, by hosts."""

    def __init__(self, links: Iterable[CrossingLink]) -> None:
        self.found: dict[Pair, RealNetwork] = {}
        self._frames: dict[Direction, tuple[int, int]] = {}  # sent and missing so far
        for link in links:
            if link.real:
                self.found.setdefault(link.hosts, RealNetwork(link.hosts)).links += 1

    def add(self, reading: NetworkReading) -> None:
        for pair in reading.pairs:
            network = self.found.get(pair.hosts)
            if network is None:
                continue
            trip = None if pair.delay is None else 2 * pair.delay
            if reading.first:
                network.before = trip
                continue
            network.echoes += pair.echoes
            network.lost += pair.lost
            network.trips += [] if trip is None else [trip]
        if reading.first:  # a continued run counts anew
            self._frames = {(each.source, each.target): (each.sent, each.missing) for each in reading.frames}
        for frames in reading.frames:
            ends = frames.source, frames.target
            sent, missing = self._frames.get(ends, (0, 0))
            self._frames[ends] = frames.sent, frames.missing
            network = self.found.get(pair_of(*ends))
            if network is not None:
                network.sent += frames.sent - sent
                network.missing += frames.missing - missing


def notable(before: float | None, now: float | None) -> bool:
    """Whether a round trip has changed so much that the view tells it. None: no echo came back."""
    if before is None or now is None:
        return before is not now
    return abs(now - before) > max(RTT_ABSOLUTE, NOTABLE * before)
