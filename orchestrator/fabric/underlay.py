"""Readings of the network between the hosts of a run, the underlay, while the run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

from pydantic import TypeAdapter

from orchestrator.planning.plan import LinkPlan

Pair = tuple[str, str]  # the names of two hosts in alphabetical order
EVENT = "network measured"


@dataclass(frozen=True)
class PairReading:
    """Echoes between two hosts: half of the median round trip (``delay``, s) and of the shortest (``fastest``), the
    number of ``echoes``, and how many of them were ``lost``."""

    hosts: Pair
    delay: float | None
    echoes: int = 0
    lost: int = 0
    fastest: float | None = None


@dataclass(frozen=True)
class FramesReading:
    """Frames between two hosts since the start of training: the ``sent`` ones, and those certainly ``missing``."""

    source: str
    target: str
    sent: int
    missing: int


@dataclass(frozen=True)
class NetworkReading:
    """One reading. ``first``: of before the run; it is deducted from the links. ``away``: lost hosts. ``strangers``: by
    host, the packets of unknown senders that were dropped so far."""

    pairs: tuple[PairReading, ...]
    frames: tuple[FramesReading, ...] = ()
    away: tuple[str, ...] = ()
    first: bool = False
    strangers: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Data of the event in the record."""
        data = asdict(self)
        for pair in data["pairs"]:
            pair |= {key: round(pair[key], 6) for key in ("delay", "fastest") if pair[key] is not None}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        reading: Self = TypeAdapter(cls).validate_python(data)
        return reading


class HostsNetwork(Protocol):
    """The network between the hosts of a run."""

    @property
    def homes(self) -> Mapping[str, str]:
        """The present host of each node."""

    @property
    def first(self) -> NetworkReading:
        """As it was measured before the run, between the present hosts of the nodes; and the frames until now."""

    async def measure(self) -> NetworkReading:
        """Measure for some seconds. HostError if a host cannot take part."""


def pair_of(one: str, other: str) -> Pair:
    if one < other:
        return (one, other)
    return (other, one)


def crossed(links: Iterable[LinkPlan], homes: Mapping[str, str]) -> list[Pair]:
    """The pairs of hosts that links cross, in order. ``homes``: the host of each node."""
    ends = {(homes[link.source], homes[link.target]) for link in links}
    return sorted({pair_of(*each) for each in ends if each[0] != each[1]})
