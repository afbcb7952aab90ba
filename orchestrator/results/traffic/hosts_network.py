"""What the network between the hosts of a run did to the links that cross it. Pure; the run measures and records.

Before the run, the delay of the network is measured and deducted from what each link asks for. If it changes by more
than a link's delay may be off, the link is not as asked any more. The same holds if the network loses frames: because
it is faulty, or because it was given more than it carries. Then a queue also delays the others.

Nothing was asked of a real link, so there is nothing to find between hosts that only real links join
(`orchestrator.results.traffic.real_network`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netem.measurement.tolerance import RTT_ABSOLUTE, RTT_RELATIVE
from orchestrator import text
from orchestrator.record.events.network import FramesReading, NetworkReading, Pair, PairReading, pair_of

LOST_ECHOES = 2  # in one reading; a network may lose one by chance
MISSING_FRAMES = 10  # between two readings
MISSING_SHARE = 0.001  # of the frames that were sent in the meantime and between the two readings before
CONFIRMED = 2  # readings in a row; one alone may have met a short burst

Direction = tuple[str, str]


class CrossingLink(NamedTuple):
    """A link between nodes of the ``hosts``, and the latency in seconds that it asks for; nothing if it is ``real``."""

    source: str
    target: str
    hosts: Pair
    latency: float
    real: bool = False

    @property
    def tolerance(self) -> float:
        """The seconds by which its delay may be off."""
        return max(RTT_ABSOLUTE, RTT_RELATIVE * self.latency)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass
class Deviation:
    """What was wrong between two hosts, in successive readings.

    since, until   times of the first and of the last of these readings, in seconds since the run began
    readings       their number
    lasts          whether the latest reading is one of them
    delay, usual   the delay of the worst reading and that before the run, in seconds; None: no echo came back
    links          links whose delay was out of its tolerance
    empty          whether some echo of each reading met no queue: it was as fast as before the run
    echoes, lost   echoes asked for, and those of them that were lost
    sent, missing  frames sent in each direction, and those of them that went missing; only directions with missing ones
    """

    hosts: Pair
    since: float
    until: float
    usual: float
    delay: float | None = None
    readings: int = 0
    lasts: bool = True
    links: tuple[CrossingLink, ...] = ()
    empty: bool = True
    echoes: int = 0
    lost: int = 0
    sent: dict[Direction, int] = field(default_factory=dict)
    missing: dict[Direction, int] = field(default_factory=dict)

    @property
    def confirmed(self) -> bool:
        """Whether it was more than a moment. A count of missing frames cannot be wrong."""
        return bool(self.missing) or self.readings >= CONFIRMED

    def sentence(self, began: float) -> str:
        """When, what and which links. ``began``: the time at which the training began."""
        since = max(0.0, self.since - began)
        until = max(0.0, self.until - began)
        when = f"at {since:.0f} s" if self.readings == 1 else f"from {since:.0f} s to {until:.0f} s"
        if self.lasts and self.confirmed:
            when = f"from {since:.0f} s on"
        return f"{when} the network between {self.hosts[0]} and {self.hosts[1]} {self._what()}"

    def _what(self) -> str:
        if self.delay is None and self.echoes:
            return f"was broken: none of {self.echoes} echoes came back"
        parts = [
            f"{number:,} of {text.count(self.sent[ends], 'frame')} from {ends[0]} to {ends[1]} did not arrive"
            for ends, number in self.missing.items()
        ]
        if self.lost >= LOST_ECHOES:
            parts.append(f"{self.lost} of {self.echoes} echoes were lost")
        return "; ".join(
            [*([f"did not carry all that it was given: {', '.join(parts)}"] if parts else []), *self._delay()]
        )

    def _delay(self) -> list[str]:
        if self.delay is None or not self.links:
            return []
        change = self.delay - self.usual
        more, slower = ("more", "slower") if change > 0 else ("less", "faster")
        links = f"link{'s' * (len(self.links) > 1)} {text.some(map(str, self.links))}"
        queued = " because frames queued" if self.empty and change > 0 else ""
        return [
            f"took {text.duration(self.delay)} one way, {text.duration(abs(change))} {more} than at the start{queued}: "
            f"{links} {'was' if len(self.links) == 1 else 'were'} {slower} than configured"
        ]


class _Traffic(NamedTuple):
    """Frames in one direction: ``sent`` and found ``missing`` since a reading, and sent between the two ``before``."""

    sent: int
    before: int
    missing: int

    @property
    def too_many(self) -> bool:
        return self.missing >= max(MISSING_FRAMES, MISSING_SHARE * (self.sent + self.before))


class NetworkFindings:
    """Turns readings, in order, into findings; not of pairs with only real links. A pair with a lost host is in no
    reading: what precedes that belongs to the loss."""

    def __init__(self, links: Iterable[CrossingLink]) -> None:
        self.readings = 0  # since the first, the one before the run
        self.furthest = 0.0  # largest change of a delay in tolerance, in seconds
        self.frames: dict[Direction, FramesReading] = {}  # the latest
        self.strangers: Mapping[str, int] = {}  # the latest
        self._links: dict[Pair, list[CrossingLink]] = {}
        self.cross(links)
        self._usual: dict[Pair, float] = {}
        self._recent: dict[Direction, int] = {}  # frames sent between the two readings before
        self._open: dict[Pair, Deviation] = {}
        self._closed: list[Deviation] = []

    @property
    def found(self) -> list[Deviation]:
        """All so far, in the order of their beginnings."""
        return sorted([*self._closed, *self._open.values()], key=lambda each: each.since)

    def cross(self, links: Iterable[CrossingLink]) -> None:
        """From now on these links cross hosts, because nodes have moved. A first reading follows."""
        self._links = {}
        for link in links:
            if not link.real:
                self._links.setdefault(link.hosts, []).append(link)

    def add(self, t: float, reading: NetworkReading) -> None:
        """Take a reading that ended ``t`` seconds after the beginning of the run."""
        if reading.first:
            self._end(list(self._open))
            self._usual = {pair.hosts: pair.delay for pair in reading.pairs if pair.delay is not None}
            self.frames = {(each.source, each.target): each for each in reading.frames}
            self._recent = {}
            return
        self.readings += 1
        self.strangers = reading.strangers
        traffic = self._since(reading.frames)
        echoes = {pair.hosts: pair for pair in reading.pairs}
        for pair, usual in self._usual.items():
            if pair not in self._links:
                continue
            if pair not in echoes:
                self._open.pop(pair, None)
            else:
                own = {ends: traffic[ends] for ends in (pair, pair[::-1]) if ends in traffic}
                self._judge(t, echoes[pair], usual, own)

    def _judge(self, t: float, echoes: PairReading, usual: float, traffic: Mapping[Direction, _Traffic]) -> None:
        change = 0.0 if echoes.delay is None else echoes.delay - usual
        links = tuple(link for link in self._links[echoes.hosts] if abs(change) > link.tolerance)
        missing = any(each.too_many for each in traffic.values())
        if not (links or missing or echoes.delay is None or echoes.lost >= LOST_ECHOES):
            self.furthest = max(self.furthest, abs(change))
            self._end([echoes.hosts])
            return
        finding = self._open.setdefault(echoes.hosts, Deviation(echoes.hosts, t, t, usual))
        finding.until = t
        finding.readings += 1
        finding.echoes += echoes.echoes
        finding.lost += echoes.lost
        if links:
            fastest = usual if echoes.fastest is None else echoes.fastest
            finding.empty &= fastest - usual <= min(link.tolerance for link in links)
        finding.links = tuple(dict.fromkeys((*finding.links, *links)))
        if echoes.delay is not None and abs(change) >= abs((finding.delay or usual) - usual):
            finding.delay = echoes.delay
        for ends, each in traffic.items():
            if ends in finding.missing:
                finding.sent[ends] += each.sent
                finding.missing[ends] += each.missing
            elif each.too_many:
                finding.sent[ends] = each.sent + each.before
                finding.missing[ends] = each.missing

    def _since(self, frames: Sequence[FramesReading]) -> dict[Direction, _Traffic]:
        """The frames of each direction since the reading before."""
        found = {}
        for now in frames:
            ends = now.source, now.target
            if pair_of(*ends) not in self._links:
                continue
            before = self.frames.get(ends, FramesReading(*ends, 0, 0))
            lately = now.sent - before.sent
            found[ends] = _Traffic(lately, self._recent.get(ends, 0), now.missing - before.missing)
            self.frames[ends] = now
            self._recent[ends] = lately
        return found

    def _end(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            finding = self._open.pop(pair, None)
            if finding is not None:
                finding.lasts = False
                self._closed.append(finding)
