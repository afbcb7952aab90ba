"""The typed rows of a record. Times are seconds since the start of the run."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from orchestrator import text

# Words of a plan that a record has too.
Ends = tuple[str, str]  # the nodes of one direction of a link: source, target
POPULATION = "population"  # the node that stands for all clients of a population
PROCESSOR = "cpu"  # the device of a node that trains on no accelerator
POWER_OFF = "power-off"
CUTS = ("disconnect", "partition", POWER_OFF)  # the actions of faults that cut links
HARDWARE_LABEL = "edgebed.hardware"  # the label of a board. Its value is the hardware class that the board is.
SHARED = "shared"  # the class of channels among the probes of links
AFTER_A_ROUND = ("rounds", "accuracy", "target")
"""The outcomes of a run that ended at the end of a round."""

COMPLETE = (*AFTER_A_ROUND, "after", "bytes", "programs")
"""The outcomes of a run that trained as long as its scenario asks for."""


class Event(NamedTuple):
    """An event at a node, or at the orchestrator (None)."""

    t: float
    node: str | None
    name: str
    round: int | None
    data: dict[str, Any]
    edge_round: int | None = None  # within that round, if edges have several rounds with their devices

    def __str__(self) -> str:
        """One line: "   12.30 s  cloud: accuracy, round 3, scope global, value 0.831"."""
        values = {"round": self.round, "edge round": self.edge_round, **self.data}
        parts = {}
        for key, value in values.items():
            if value not in (None, ""):
                parts[key] = f"{key} {_brief(value)}"
        first = parts.pop(self.name, _brief(self.name))
        described = ", ".join([first, *parts.values()])
        return f"{self.t:8.2f} s  {self.node or 'run'}: {described}"


E = TypeVar("E")


class Recorded(NamedTuple, Generic[E]):
    """A typed event, as it was recorded at a node, or at the orchestrator (None)."""

    t: float
    node: str | None
    round: int | None
    event: E


class Metric(NamedTuple):
    """A metric that a node reported; NaN if it was not a number."""

    t: float
    node: str
    round: int | None
    scope: str
    name: str
    value: float


class State(NamedTuple):
    """A node's state from ``t`` on."""

    t: float
    node: str
    state: str
    detail: str


class ProbeResult(NamedTuple):
    """One measured quantity of a link ("rtt" s, "loss" fraction, "rate" bit/s); it passes within [low, high].

    ``kind``: "emulated" or "real". A real link has no configured values, and its verdict is "measured". For a shared
    medium ``link_class`` is `SHARED`, ``source`` the channel, ``target`` the link that it was measured with, if any.
    ``expected``: what a link with the configured values shows in this measurement, with jitter and the time that a
    packet takes at the rate; None of a real link, and in records without it. ``busy``: the share of the processors'
    time of this host that was used meanwhile, None if not known. ``saturated``: whether the host had too much work
    meanwhile. Both are None in records without them. ``measured_in``: the earlier run of the same sweep or study that
    measured an equal link; None if this run did.
    """

    t: float
    source: str
    target: str
    link_class: str
    quantity: str
    asked: float | None
    measured: float | None
    low: float | None
    high: float | None
    verdict: str
    detail: str = ""
    kind: str = "emulated"
    expected: float | None = None
    busy: float | None = None
    saturated: bool | None = None
    measured_in: str | None = None

    @property
    def link(self) -> str:
        """What was measured, in words."""
        return link_in_words(self.link_class, self.source, self.target)


def link_in_words(link_class: str, source: str, target: str) -> str:
    """What a probe measured."""
    if link_class == SHARED:
        if target:
            return f"{source}: {target}"
        return source
    return f"{source} → {target}"


class FaultPhase(NamedTuple):
    """A fault took effect ("start"), was undone ("end") or was not possible ("skipped")."""

    t: float
    fault: int
    action: str
    target: str
    phase: str
    round: int | None
    detail: str


class FaultSpan(NamedTuple):
    """The course of one fault: the times at which it started, ended or was skipped.

    If all three are None, the fault was never due. ``planned``: its entry in plan.json. ``nodes``: the nodes that it
    affects. ``round``: the round in which it took effect, or for which it was planned. ``by``: the user who made it by
    hand; then ``planned`` has the same keys, from the record. Empty for a planned fault.
    """

    id: int
    action: str
    target: str
    start: float | None
    end: float | None
    skipped: float | None
    round: int | None
    detail: str
    nodes: tuple[str, ...]
    planned: dict[str, Any]
    by: str = ""

    def __str__(self) -> str:
        """ "crash device-0, round 4, 3 s, manual (ada)"."""
        parts = [f"{self.action} {self.target}"]
        if self.round is not None:
            parts.append(f"round {self.round}")
        if self.start is not None and self.end is not None:
            parts.append(text.duration(self.end - self.start))
        if self.by:
            parts.append(f"manual ({self.by})")
        return ", ".join(parts)


class Round(NamedTuple):
    """One round of one coordinator; ``end`` is None while it is running, or if it never ended. ``round`` is the run's
    round. If an edge has several rounds with its devices in it, ``edge_round`` is the number of this one."""

    node: str
    round: int
    start: float
    end: float | None
    abandoned: bool
    edge_round: int | None = None

    @property
    def number(self) -> tuple[int, int | None]:
        """(round, edge round)."""
        return self.round, self.edge_round

    def __str__(self) -> str:
        """ "3", or "3 (edge round 6)"."""
        if self.edge_round is None:
            return str(self.round)
        return f"{self.round} (edge round {self.edge_round})"


class LinkCounters(NamedTuple):
    """The totals of one direction of a link. ``kind``: "emulated", "modelled" or "real"."""

    source: str
    target: str
    link_class: str
    offered: int
    offered_bytes: int
    delivered: int
    delivered_bytes: int
    lost: int
    overflowed: int
    duplicated: int
    corrupted: int
    reordered: int
    cut_dropped: int
    kind: str


class PeerTraffic(NamedTuple):
    """The total traffic of a node with a peer in one direction, over all restarts of its process."""

    node: str
    peer: str
    kind: str
    direction: str
    messages: int
    bytes: int


class Resources(NamedTuple):
    """The resource usage of a node's process; memory in bytes."""

    t: float
    node: str
    cpu_seconds: float
    rss: int
    pss: int | None


class SensorReading(NamedTuple):
    """What a host ('' is the orchestrator's) reported about itself, valid until the next row of the same sensor.
    ``quantity``: "temperature" °C, "frequency" Hz, "throttled" 1 or 0, "throttle_events" count, "memory_available"
    bytes, "power" W, "energy" J since the first row. ``value`` is None if it cannot be read; ``detail`` says why."""

    t: float
    host: str
    quantity: str
    source: str
    scope: str
    value: float | None
    detail: str


class Outcome(NamedTuple):
    """How the run ended: "rounds", "accuracy", "target", "after", "bytes", "programs", "calibrated", "interrupted" or
    "failed".
    ``wall``: the run's duration in seconds of the host's clock, which differs from ``t`` for simulated runs."""

    t: float
    ended: str
    error: str | None
    wall: float | None = None


LONGEST = 100  # characters of a value in a line


def _brief(value: Any) -> str:
    """A value in a line, without what a terminal would obey."""
    if isinstance(value, float):
        return text.number(value)
    printable = "".join(map(_printable, str(value)))
    line = " ".join(printable.split())
    if len(line) > LONGEST:
        return f"{line[:LONGEST]}…"
    return line


def _printable(character: str) -> str:
    return character if character.isprintable() else " "
