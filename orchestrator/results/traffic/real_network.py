"""Measurements between hosts that real links join. Pure; there is no verdict, because real links have no settings."""

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
        middle = text.duration(median(self.trips))
        least = text.duration(min(self.trips))
        most = text.duration(max(self.trips))
        if least == most:
            return middle
        return f"{middle} ({least} to {most})"

    def to_json(self) -> dict[str, Any]:
        """Plain data: times in seconds, None if they were not measured."""
        during = None
        if self.trips:
            during = {
                "median": median(self.trips),
                "least": min(self.trips),
                "most": max(self.trips),
            }
        return {
            "hosts": list(self.hosts),
            "links": self.links,
            "round_trip": {"before": self.before, "during": during},
            "echoes": self.echoes,
            "lost": self.lost,
            "sent": self.sent,
            "missing": self.missing,
        }

    def __str__(self) -> str:
        parts = []
        if self.trips:
            parts.append(f"round trip {self.trip}")
        elif self.echoes:
            parts.append("no echo came back")
        if self.before is not None:
            parts.append(f"before the run {text.duration(self.before)}")
        if self.echoes:
            parts.append(f"{self.lost:,} of {self.echoes:,} echoes lost")
        if self.sent:
            frames = text.count(self.sent, "frame")
            parts.append(f"{self.missing:,} of {frames} did not arrive")
        figures = ", ".join(parts) or "not measured"
        return f"{self.names}: {figures}"


class RealNetworks:
    """Takes the readings of a network in the order of time. ``found``: the networks, by hosts."""

    def __init__(self, links: Iterable[CrossingLink]) -> None:
        self.found: dict[Pair, RealNetwork] = {}
        self._frames: dict[Direction, tuple[int, int]] = {}  # sent and missing so far
        for link in links:
            if link.real:
                unmeasured = RealNetwork(link.hosts)
                network = self.found.setdefault(link.hosts, unmeasured)
                network.links += 1

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
            if trip is not None:
                network.trips.append(trip)
        if reading.first:  # a continued run restarts its counts
            self._frames = {}
            for frames in reading.frames:
                ends = (frames.source, frames.target)
                self._frames[ends] = (frames.sent, frames.missing)
        for frames in reading.frames:
            ends = (frames.source, frames.target)
            sent, missing = self._frames.get(ends, (0, 0))
            self._frames[ends] = (frames.sent, frames.missing)
            network = self.found.get(pair_of(*ends))
            if network is not None:
                network.sent += frames.sent - sent
                network.missing += frames.missing - missing


def notable(before: float | None, now: float | None) -> bool:
    """Whether a round trip has changed so much that the view shows it. None: no echo came back."""
    if before is None or now is None:
        return before is not now
    change = abs(now - before)
    return change > max(RTT_ABSOLUTE, NOTABLE * before)
