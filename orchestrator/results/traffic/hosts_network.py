"""What the network between the hosts of a run did to the links that cross it. Pure; the run measures and records.

Before the run, the delay of the network is measured and deducted from the configured latency of each link. If it
changes by more than the tolerance of a link's delay, the link differs from its settings. The same applies if the
network loses frames: because it is faulty, or because it received more than it carries. Then a queue also delays other
frames.

A real link has no settings to differ from, so hosts with only real links between them are left out
(`orchestrator.results.traffic.real_network`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
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
    """A link between nodes of the ``hosts``, and its configured latency in seconds; a ``real`` one has none."""

    source: str
    target: str
    hosts: Pair
    latency: float
    real: bool = False

    @property
    def tolerance(self) -> float:
        """The seconds by which its delay may be off."""
        relative = RTT_RELATIVE * self.latency
        return max(RTT_ABSOLUTE, relative)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass
class Deviation:
    """What was wrong between two hosts, in successive readings.

    since, until   times of the first and of the last of these readings, in seconds since the run started
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
        """When, what and which links. ``began``: the time at which the training started."""
        since = max(0.0, self.since - began)
        until = max(0.0, self.until - began)
        if self.lasts and self.confirmed:
            when = f"from {since:.0f} s on"
        elif self.readings == 1:
            when = f"at {since:.0f} s"
        else:
            when = f"from {since:.0f} s to {until:.0f} s"
        one, other = self.hosts
        return f"{when} the network between {one} and {other} {self._what()}"

    def _what(self) -> str:
        if self.delay is None and self.echoes:
            return f"was broken: none of {self.echoes} echoes came back"
        losses = self._losses()
        sentences = []
        if losses:
            listed = ", ".join(losses)
            sentences.append(f"did not carry all that it was given: {listed}")
        if self.delay is not None and self.links:
            sentences.append(self._change(self.delay))
        return "; ".join(sentences)

    def _losses(self) -> list[str]:
        """The frames and echoes that were lost, in words."""
        losses = []
        for ends, number in self.missing.items():
            source, target = ends
            sent = text.count(self.sent[ends], "frame")
            losses.append(f"{number:,} of {sent} from {source} to {target} did not arrive")
        if self.lost >= LOST_ECHOES:
            losses.append(f"{self.lost} of {self.echoes} echoes were lost")
        return losses

    def _change(self, delay: float) -> str:
        """How the delay changed, in words."""
        change = delay - self.usual
        if change > 0:
            more = "more"
            slower = "slower"
        else:
            more = "less"
            slower = "faster"
        queued = " because frames queued" if self.empty and change > 0 else ""
        links = text.some(map(str, self.links))
        if len(self.links) == 1:
            were = f"link {links} was"
        else:
            were = f"links {links} were"
        now = text.duration(delay)
        difference = text.duration(abs(change))
        return f"took {now} one way, {difference} {more} than at the start{queued}: {were} {slower} than configured"


class _Traffic(NamedTuple):
    """Frames in one direction: ``sent`` and found ``missing`` since a reading, and sent between the two ``before``."""

    sent: int
    before: int
    missing: int

    @property
    def too_many(self) -> bool:
        share = MISSING_SHARE * (self.sent + self.before)
        return self.missing >= max(MISSING_FRAMES, share)


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
        deviations = [*self._closed, *self._open.values()]
        return sorted(deviations, key=attrgetter("since"))

    def cross(self, links: Iterable[CrossingLink]) -> None:
        """From now on these links cross hosts, because nodes have moved. A first reading follows."""
        self._links = {}
        for link in links:
            if not link.real:
                self._links.setdefault(link.hosts, []).append(link)

    def _start(self, reading: NetworkReading) -> None:
        """Take the delays and the counts before the run."""
        self._usual = {}
        for pair in reading.pairs:
            if pair.delay is not None:
                self._usual[pair.hosts] = pair.delay
        self.frames = {}
        for frames in reading.frames:
            self.frames[frames.source, frames.target] = frames
        self._recent = {}

    def add(self, t: float, reading: NetworkReading) -> None:
        """Take a reading that ended ``t`` seconds after the start of the run."""
        if reading.first:
            self._end(list(self._open))
            self._start(reading)
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
                continue
            directions = (pair, pair[::-1])
            between = {ends: traffic[ends] for ends in directions if ends in traffic}
            self._judge(t, echoes[pair], usual, between)

    def _judge(
        self,
        t: float,
        echoes: PairReading,
        usual: float,
        traffic: Mapping[Direction, _Traffic],
    ) -> None:
        change = 0.0 if echoes.delay is None else echoes.delay - usual
        hosts = echoes.hosts
        distance = abs(change)
        links = tuple(link for link in self._links[hosts] if distance > link.tolerance)
        frames_missing = any(frames.too_many for frames in traffic.values())
        echoes_missing = echoes.delay is None or echoes.lost >= LOST_ECHOES
        if not (links or frames_missing or echoes_missing):
            self.furthest = max(self.furthest, distance)
            self._end([hosts])
            return
        started = Deviation(hosts, since=t, until=t, usual=usual)
        finding = self._open.setdefault(hosts, started)
        finding.until = t
        finding.readings += 1
        finding.echoes += echoes.echoes
        finding.lost += echoes.lost
        if links:
            fastest = usual if echoes.fastest is None else echoes.fastest
            least_tolerance = min(link.tolerance for link in links)
            finding.empty &= fastest - usual <= least_tolerance
        affected = (*finding.links, *links)
        finding.links = tuple(dict.fromkeys(affected))
        worst = finding.delay or usual
        if echoes.delay is not None and distance >= abs(worst - usual):
            finding.delay = echoes.delay
        for ends, frames in traffic.items():
            if ends in finding.missing:
                finding.sent[ends] += frames.sent
                finding.missing[ends] += frames.missing
            elif frames.too_many:
                finding.sent[ends] = frames.sent + frames.before
                finding.missing[ends] = frames.missing

    def _since(self, frames: Sequence[FramesReading]) -> dict[Direction, _Traffic]:
        """The frames of each direction since the reading before."""
        traffic = {}
        for now in frames:
            ends = (now.source, now.target)
            if pair_of(*ends) not in self._links:
                continue
            nothing = FramesReading(*ends, sent=0, missing=0)
            before = self.frames.get(ends, nothing)
            lately = now.sent - before.sent
            traffic[ends] = _Traffic(
                sent=lately,
                before=self._recent.get(ends, 0),
                missing=now.missing - before.missing,
            )
            self.frames[ends] = now
            self._recent[ends] = lately
        return traffic

    def _end(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            finding = self._open.pop(pair, None)
            if finding is not None:
                finding.lasts = False
                self._closed.append(finding)
