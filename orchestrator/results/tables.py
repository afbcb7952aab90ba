"""The tables of a run: the rows of its record by name, each with the type of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.record.rows import (
    PROCESSOR,
    Event,
    FaultSpan,
    LinkCounters,
    PeerTraffic,
    ProbeResult,
    Resources,
    Round,
    SensorReading,
    State,
)
from orchestrator.results.checks.registry import checks
from orchestrator.results.history import History
from orchestrator.results.steps import StepCounter
from orchestrator.results.traffic import media, volumes


class AccuracyRow(NamedTuple):
    """An accuracy that a node reported, a fraction; NaN if it was not a number. ``step``: see
    `orchestrator.results.steps`."""

    round: int | None
    seconds: float
    node: str
    scope: str
    value: float
    step: int


class MetricRow(NamedTuple):
    """A metric that a node reported; NaN if it was not a number. ``step``: see `orchestrator.results.steps`."""

    t: float
    node: str
    round: int | None
    scope: str
    name: str
    value: float
    step: int


class CheckRow(NamedTuple):
    """A check behind the verdict."""

    name: str
    verdict: str
    detail: str


class NodeRow(NamedTuple):
    """A node of the plan. ``host``: where it lives, in a run on several hosts. ``device``: what it trains on."""

    name: str
    tier: str
    parent: str | None
    samples: int | None
    model: str | None
    hardware: str | None
    speed: float | None
    host: str | None
    device: str


@dataclass(frozen=True)
class Table:
    """One table: the type of its rows, and the reader of the rows."""

    row: type[NamedTuple]
    read: Callable[[History], Sequence[NamedTuple]]


def node_rows(history: History) -> list[NodeRow]:
    rows = []
    for name, node in history.nodes.items():
        hardware = node.get("hardware") or {}
        rows.append(
            NodeRow(
                name=name,
                tier=node["tier"],
                parent=node.get("parent"),
                samples=node.get("samples"),
                model=node.get("model"),
                hardware=hardware.get("name"),
                speed=hardware.get("speed"),
                host=node.get("host") or None,
                device=node.get("device") or PROCESSOR,
            )
        )
    return rows


def metric_rows(history: History, name: str | None = None) -> list[MetricRow]:
    """The metrics in the order of reporting; of one name, or of all."""
    counters: defaultdict[tuple[str, str, str], StepCounter] = defaultdict(StepCounter)
    rows = []
    for metric in history.metrics(name):
        series = counters[metric.name, metric.scope, metric.node]
        rows.append(MetricRow(*metric, series.step(metric.round)))
    return rows


def accuracy_rows(history: History) -> list[AccuracyRow]:
    rows = []
    for t, node, round, scope, _, value, step in metric_rows(history, "accuracy"):
        rows.append(AccuracyRow(round, t, node, scope, value, step))
    return rows


def check_rows(history: History) -> list[CheckRow]:
    return [CheckRow(**check) for check in checks(history)]


def check_kind(kind: str) -> None:
    """ValueError for a kind of rows that a record does not have."""
    if kind not in TABLES:
        raise ValueError(f"a record has no {kind!r}; it has {', '.join(TABLES)}")


def rows_of(history: History, kind: str) -> list[dict[str, Any]]:
    """The rows of one kind. Times are seconds since the start of the run."""
    check_kind(kind)
    return [row._asdict() for row in TABLES[kind].read(history)]


TABLES: dict[str, Table] = {
    "accuracy": Table(AccuracyRow, accuracy_rows),
    "channels": Table(media.ChannelCounters, media.channel_counters),
    "checks": Table(CheckRow, check_rows),
    "events": Table(Event, lambda history: history.events()),
    "faults": Table(FaultSpan, lambda history: history.faults()),
    "links": Table(LinkCounters, volumes.link_counters),
    "metrics": Table(MetricRow, metric_rows),
    "nodes": Table(NodeRow, node_rows),
    "probes": Table(ProbeResult, lambda history: history.probes()),
    "resources": Table(Resources, lambda history: history.resources()),
    "rounds": Table(Round, lambda history: history.rounds()),
    "sensors": Table(SensorReading, lambda history: history.sensors()),
    "states": Table(State, lambda history: history.states()),
    "traffic": Table(PeerTraffic, volumes.traffic),
}
