"""Readings of the network between the hosts of a run, the underlay, during the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from orchestrator.record.events.base import RecordedEvent

Pair = tuple[str, str]  # the names of two hosts in alphabetical order


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
class NetworkReading(RecordedEvent):
    """One reading. ``first``: of before the run; it is deducted from the links. ``away``: lost hosts. ``strangers``: by
    host, the packets of unknown senders that were dropped so far."""

    NAME = "network measured"

    pairs: tuple[PairReading, ...]
    frames: tuple[FramesReading, ...] = ()
    away: tuple[str, ...] = ()
    first: bool = False
    strangers: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for pair in data["pairs"]:
            for key in ("delay", "fastest"):
                if pair[key] is not None:
                    pair[key] = round(pair[key], 6)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        pairs = []
        for pair in data["pairs"]:
            one, other = pair["hosts"]
            reading = PairReading(**{**pair, "hosts": (one, other)})
            pairs.append(reading)
        frames = [FramesReading(**counts) for counts in data.get("frames", ())]
        away = data.get("away", ())
        rest = {key: data[key] for key in ("first", "strangers") if key in data}
        return cls(tuple(pairs), tuple(frames), tuple(away), **rest)


def pair_of(one: str, other: str) -> Pair:
    if one < other:
        return (one, other)
    return (other, one)
