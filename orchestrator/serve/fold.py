"""What a page shows of one run while it goes on: folded from the rows of its record as they come.

Each row is read once, in the order of recording, and in pieces, so that no transaction is long. Curves, rounds, faults
and bytes over time only grow: each of their points has the id of its row, so a reader that was away asks for what came
after the last id that it has.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.fidelity.loss_audit import EVENT as LOOKED
from orchestrator.fidelity.overload import SHORTEST
from orchestrator.results import growth
from orchestrator.results.growth import ClassGrowth, LinkGrowth, SentGrowth
from orchestrator.results.history import History
from orchestrator.results.record import CONTINUED, HOST, INJECTED, MOVED
from orchestrator.results.rows import Event
from orchestrator.results.schema import FLOWS, LINKS

PIECE = 20_000  # rows of a table that are read in one go
SUMMED = 200_000  # rows of what was carried that SQLite sums up in one go, where more than a piece waits
DEVICES = 40  # with more devices, a page shows the range and the mean of what they report
CURVES = ("accuracy", "loss")
MOST_CURVES = 24  # metrics of programs, which may have any name
RUNTIME = frozenset(("hello", "beat", "goodbye", "framing"))  # kinds of messages that are not the algorithm's
SERIES = ("metrics", "bands", "faults", "rounds", "bytes", "by_hand")  # what only grows, by its name in a cursor

Point = tuple[int, list[Any]]  # the id of a row, and the values


class Cursor(NamedTuple):
    """How far a reader has read: the id of the last point that it has of each of ``SERIES``."""

    metrics: int = 0
    bands: int = 0
    faults: int = 0
    rounds: int = 0
    bytes: int = 0
    by_hand: int = 0

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read what ``str`` wrote. The beginning if it is anything else."""
        parts = text.split("-")
        if len(parts) != len(SERIES) or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return cls()
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return "-".join(map(str, self))


class Flow:
    """A count that only grows: the total, and its rate between the last two readings that are `SHORTEST` apart."""

    __slots__ = ("grown", "last", "rate", "t", "total")

    def __init__(self) -> None:
        self.total = self.last = self.t = self.rate = self.grown = 0.0

    def read(self, t: float, count: float) -> None:
        """Take a reading at ``t`` of a count that begins again at 0 with its process."""
        grown = count - self.last if count >= self.last else count
        self.last = count
        self.grow(t, grown)

    def grow(self, t: float, grown: float) -> None:
        """Take a reading at ``t`` of what was added."""
        self.total += grown
        self.grown += grown
        if not self.t or t - self.t >= SHORTEST:
            self.rate = self.grown / (t - self.t) if self.t else 0.0
            self.t, self.grown = t, 0.0


class Band:
    """What devices reported of a metric in a round: lowest, highest, sum and number."""

    __slots__ = ("count", "high", "low", "sum")

    def __init__(self) -> None:
        self.low, self.high, self.sum, self.count = math.inf, -math.inf, 0.0, 0

    def add(self, value: float) -> None:
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.sum += value
        self.count += 1


class Fold:
    """The state of one run. ``behind``: there are more rows, so `read` is to be called again at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.training: float | None = None
        self.round = 0  # the latest that a coordinator began
        self.states: dict[str, tuple[float, str, str]] = {}  # by node: since when, state, detail
        self.cpu: defaultdict[str, Flow] = defaultdict(Flow)  # processor seconds by node
        self.rss: dict[str, int] = {}
        self.sending: dict[str, float] = {}  # by node, when its messages last grew
        self.open_rounds: dict[str, tuple[int, int | None, float]] = {}  # by node: round, edge round, since when
        self.links: defaultdict[tuple[str, str], Flow] = defaultdict(Flow)  # delivered bytes
        self.dropped: defaultdict[tuple[str, str], Flow] = defaultdict(Flow)  # packets lost, overflowed or cut
        self.kinds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # messages and bytes sent, by kind
        self.in_force: dict[int, float] = {}  # by fault, since when
        self.seen_faults: set[int] = set()  # started or skipped
        self.hosts: list[Event] = []  # what became of hosts and of their nodes
        self.by_hand: dict[int, dict[str, Any]] = {}  # faults made manually, by id, each as in plan.json
        self.probes = self.looks = 0  # measurements of links before the training; reports of losses during it
        self.behind = True
        self._series: dict[str, list[Point]] = {name: [] for name in SERIES}
        self._bands: defaultdict[tuple[str, str, int], Band] = defaultdict(Band)  # by metric, scope, round
        self._banded: dict[tuple[str, str, int], Point] = {}  # their points, in the order of their ids
        self._many: frozenset[str] | None = None  # the devices, if there are many
        self._curves, self._any_name = set(CURVES), False  # the metrics that are drawn; whether others may come
        self._classes: defaultdict[str, float] = defaultdict(float)
        self._read = dict.fromkeys((*_TABLES, LINKS.growth, FLOWS.growth), 0)

    def read(self, history: History) -> None:
        """Take in what was recorded since the last call, at most ``PIECE`` rows of each table.

        Of what was carried, a long past is summed up, and the latest ``PIECE`` rows are taken one by one. The first
        call leaves it to the next one, so that states and faults are soon there.
        """
        first = not any(self._read.values())
        self.behind = first
        if self._many is None:
            self._many, self._any_name = many_devices(history), bool(history.plan.get("programs"))
        for table, (columns, add) in _TABLES.items():
            rows = history.after(table, columns, self._read[table], PIECE)
            for row in rows:
                self.now = max(self.now, row[1])
                add(self, *row)
            if rows:
                self._read[table] = rows[-1][0]
            self.behind |= len(rows) == PIECE
        for counted, take, take_together in () if first else _CARRIED:
            after, last = self._read[counted.growth], growth.latest(history, counted)
            until = max(last - PIECE, after)
            if until > after:
                until = min(until, after + SUMMED)
                take_together(self, history, after, until)
                self.behind = True
            elif last > after:
                until = last
                take(self, history, after, until)
            self._read[counted.growth] = until
        if self._banded:
            self._series["bands"] = list(self._banded.values())  # another list: who reads the last one has it whole

    @property
    def cursor(self) -> Cursor:
        """The end of every series."""
        return Cursor(*(points[-1][0] if points else 0 for points in self._series.values()))

    def points(self, series: str) -> list[list[Any]]:
        """All values of one of ``SERIES``, see `added`."""
        return [values for _, values in self._series[series]]

    def added(self, since: Cursor, until: Cursor) -> dict[str, list[list[Any]]]:
        """What each series has got between two cursors.

        metrics: [t, node, round, scope, name, value]; bands: [t, round, scope, name, lowest, highest, mean] of many
        devices, in place of their metrics and of an earlier band of this round; faults: [t, fault, phase, round];
        rounds: [t, node, round, edge round, "start" or "end", whether abandoned]; bytes: [t, {link class: bytes}];
        by_hand: [t, fault as of `told_fault`, who made it, with what].
        """
        found = {}
        for (name, points), *ends in zip(self._series.items(), since, until, strict=True):
            first, last = (bisect_right(points, end, key=lambda point: point[0]) for end in ends)
            found[name] = [values for _, values in points[first:last]]
        return found

    def _add_metric(
        self, id: int, t: float, node: str, round: int | None, scope: str, name: str, value: float | None
    ) -> None:
        if value is None or not math.isfinite(value):
            return
        if name not in self._curves:
            if not self._any_name or len(self._curves) >= MOST_CURVES:
                return
            self._curves.add(name)
        if self._many is None or node not in self._many:
            self._series["metrics"].append((id, [_round(t), node, round, scope, name, value]))
        elif round is not None:
            key = name, scope, round
            band = self._bands[key]
            band.add(value)
            self._banded.pop(key, None)
            self._banded[key] = id, [_round(t), round, scope, name, band.low, band.high, band.sum / band.count]

    def _add_state(self, id: int, t: float, node: str, state: str, detail: str) -> None:
        self.states[node] = t, state, detail
        if state != "running":
            self.open_rounds.pop(node, None)

    def _add_fault(self, id: int, t: float, fault: int, phase: str, round: int | None) -> None:
        self.seen_faults.add(fault)
        if phase == "start":
            self.in_force[fault] = t
        else:
            self.in_force.pop(fault, None)
        self._series["faults"].append((id, [_round(t), fault, phase, round]))

    def _add_event(
        self, id: int, t: float, node: str | None, name: str, round: int | None, edge_round: int | None, data: str
    ) -> None:
        if name == "training" and self.training is None:
            self.training = t
        elif name == LOOKED:
            self.looks += 1
        elif name in (HOST, MOVED, CONTINUED) and node is None:
            self.hosts.append(Event(t, node, name, round, _object(json.loads(data))))
        elif name == INJECTED and node is None:
            facts = json.loads(data)
            planned = self.by_hand[facts["fault"]] = facts["planned"]
            who = str(facts["user"]), str(facts.get("via", ""))
            self._series["by_hand"].append((id, [_round(t), told_fault({**planned, "id": facts["fault"]}), *who]))
        elif name == "round" and node is not None and round is not None:
            facts = _object(json.loads(data))
            self.round = max(self.round, round)
            phase = "start" if facts.get("phase") == "start" else "end"
            if phase == "start":
                self.open_rounds[node] = round, edge_round, t
            else:
                self.open_rounds.pop(node, None)
            abandoned = bool(facts.get("abandoned"))
            self._series["rounds"].append((id, [_round(t), node, round, edge_round, phase, abandoned]))

    def _take_links(self, history: History, after: int, until: int) -> None:
        for row in growth.of_links(history, after, until):
            self._add_link(row)
            self._add_class(ClassGrowth(row.id, row.t, row.link_class, row.delivered_bytes))

    def _take_links_together(self, history: History, after: int, until: int) -> None:
        for row in growth.of_links_together(history, after, until):
            self._add_link(row)
        for of_class in growth.of_classes(history, after, until):
            self._add_class(of_class)

    def _add_link(self, row: LinkGrowth) -> None:
        ends = row.source, row.target
        self.links[ends].grow(row.t, row.delivered_bytes)
        self.dropped[ends].grow(row.t, row.dropped)

    def _add_class(self, row: ClassGrowth) -> None:
        self.now = max(self.now, row.t)
        self._classes[row.link_class] += row.delivered_bytes
        points, at = self._series["bytes"], _round(row.t)
        same = bool(points) and points[-1][1][0] == at
        before = points[-1][1][1] if points else {}
        point = row.id, [at, {**before, row.link_class: round(self._classes[row.link_class])}]
        if same:
            points[-1] = point
        else:
            points.append(point)

    def _take_sent(self, history: History, after: int, until: int) -> None:
        for row in growth.of_sent(history, after, until):
            self._add_sent(row)

    def _take_sent_together(self, history: History, after: int, until: int) -> None:
        for row in growth.of_sent_together(history, after, until):
            self._add_sent(row)

    def _add_sent(self, row: SentGrowth) -> None:
        self.now = max(self.now, row.t)
        of_kind = self.kinds[row.kind]
        of_kind[0] += row.messages
        of_kind[1] += row.bytes
        if row.messages and row.kind not in RUNTIME:
            self.sending[row.node] = max(row.t, self.sending.get(row.node, 0.0))

    def _add_resources(self, id: int, t: float, node: str, cpu_seconds: float, rss: int) -> None:
        self.cpu[node].read(t, cpu_seconds)
        self.rss[node] = rss

    def _add_probe(self, id: int, t: float) -> None:
        self.probes += 1

    def _pass_time(self, id: int, t: float) -> None:
        pass  # a row of which only the time counts


_TABLES: Mapping[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "state": (("t", "node", "state", "detail"), Fold._add_state),
    "fault": (("t", "fault", "phase", "round"), Fold._add_fault),
    "event": (("t", "node", "name", "round", "edge_round", "data"), Fold._add_event),
    "metric": (("t", "node", "round", "scope", "name", "value"), Fold._add_metric),
    "resources": (("t", "node", "cpu_seconds", "rss"), Fold._add_resources),
    "probe": (("t",), Fold._add_probe),
    "outcome": (("t",), Fold._pass_time),
}

_CARRIED = (
    (LINKS, Fold._take_links, Fold._take_links_together),
    (FLOWS, Fold._take_sent, Fold._take_sent_together),
)


def many_devices(history: History) -> frozenset[str]:
    """The devices of a run that has so many that a page shows what they report together; none if it has few."""
    devices = frozenset(name for name, node in history.nodes.items() if node.get("tier") == "device")
    return devices if len(devices) > DEVICES else frozenset()


def told_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """What a page shows of a fault of plan.json: id, action, target, at, round, duration."""
    sides = " | ".join(text.some(side) for side in fault.get("between") or ())
    keys = ("id", "action", "at", "round", "duration")
    return {key: fault.get(key) for key in keys} | {"target": fault.get("node") or sides}


def _round(t: float) -> float:
    return round(t, 3)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
