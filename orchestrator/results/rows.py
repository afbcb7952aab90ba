"""What a record says, as typed rows. Times are seconds since the run began."""

from __future__ import annotations

from typing import Any, NamedTuple

COMPLETE = ("rounds", "accuracy", "after")  # the ends of a run that trained as long as its scenario asks for


class Event(NamedTuple):
    """Something that happened at a node, or at the orchestrator (None)."""

    t: float
    node: str | None
    name: str
    round: int | None
    data: dict[str, Any]
    edge_round: int | None = None  # within that round, where edges make several with their devices


class Metric(NamedTuple):
    """A figure that a node reported; NaN where it was not a number."""

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
    """One measured quantity of a link ("rtt" s, "loss" fraction, "rate" bit/s); it passes within [low, high]."""

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
    detail: str


class FaultSpan(NamedTuple):
    """What became of one planned fault: times at which it started, ended or was skipped.

    None of the three: the run did not come to it. ``planned`` is its entry in plan.json, ``nodes`` are those it
    touches, ``round`` is the round it hit, or was planned for.
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


class Round(NamedTuple):
    """One round of one coordinator; ``end`` is None while it goes on, or if it never ended.

    ``round`` is the run's. Where an edge makes several rounds with its devices in it, ``edge_round`` is this one's.
    """

    node: str
    round: int
    start: float
    end: float | None
    abandoned: bool
    edge_round: int | None = None

    @property
    def number(self) -> tuple[int, int | None]:
        """Its round, and its edge round."""
        return self.round, self.edge_round

    def __str__(self) -> str:
        """ "3", or "3 (edge round 6)"."""
        return str(self.round) if self.edge_round is None else f"{self.round} (edge round {self.edge_round})"


class LinkCounters(NamedTuple):
    """What one direction of a link has done in all."""

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


class PeerTraffic(NamedTuple):
    """What a node has sent to or received from a peer in all, over every life of its process."""

    node: str
    peer: str
    kind: str
    direction: str
    messages: int
    bytes: int


class Resources(NamedTuple):
    """What a node's process had used; memory in bytes."""

    t: float
    node: str
    cpu_seconds: float
    rss: int
    pss: int | None


class Outcome(NamedTuple):
    """How the run ended: "rounds", "accuracy", "after", "calibrated", "interrupted" or "failed".

    ``wall`` is how many seconds of the host it took, which for simulated runs are not those of ``t``.
    """

    t: float
    ended: str
    error: str | None
    wall: float | None = None
