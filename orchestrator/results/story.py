"""A run so far, folded from the rows of its record as they come: one answer to each question about a run that goes on.

The orchestrator hands each row to its story as it is recorded. Others read the record: each row once, in the order of
recording, and in pieces, so that no transaction is long. Curves, rounds, faults and bytes over time only grow: each of
their points has the id of its row, so a reader that was away asks for what came after the last id that it has.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Self

from netem.units import parse_duration
from orchestrator import text
from orchestrator.fabric.underlay import EVENT as NETWORK
from orchestrator.fidelity.loss_audit import EVENT as LOOKED
from orchestrator.fidelity.overload import EVENT as OVERLOAD
from orchestrator.fidelity.overload import SHORTEST
from orchestrator.results import growth
from orchestrator.results.checks import Check, checks
from orchestrator.results.facts import DEVICE_SCOPES, Band, Facts, Rounds, mean_metric
from orchestrator.results.fault_spans import fault_spans
from orchestrator.results.growth import ClassGrowth, LinkGrowth, SentGrowth
from orchestrator.results.history import History, outcome_of
from orchestrator.results.record import CONTINUED, GAP, HOST, HOST_LOAD, INJECTED, MOVED
from orchestrator.results.rows import Event, FaultSpan, Metric, Outcome, ProbeResult, Round, State
from orchestrator.results.schema import FLOWS, LINKS
from orchestrator.results.unplanned import FROZEN
from orchestrator.scenario.topology import Ends

PIECE = 20_000  # rows of a table that are read in one go
SUMMED = 200_000  # rows of what was carried that SQLite sums up in one go, where more than a piece waits
CURVES = ("accuracy", "loss")
MOST_CURVES = 24  # metrics of programs, which may have any name
PACE = 5  # rounds by which the time left is estimated
KEPT = (
    *("training", "resumed", CONTINUED, HOST, MOVED, INJECTED, GAP, FROZEN, OVERLOAD, LOOKED, NETWORK, HOST_LOAD),
    "bad_message",
)
"""The names of the events that checks of a run that goes on look at. Others may be many."""
_FOLDED = frozenset(("overrun", *Rounds.EVENTS))
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


class TimeLeft(NamedTuple):
    """The seconds until a run ends: by the duration that its scenario allows, or at the pace of its latest rounds."""

    seconds: float
    of: Literal["time", "rounds"]

    def __str__(self) -> str:
        return f"{'about' if self.of == 'rounds' else 'at most'} {text.duration(self.seconds)} left"


class NextFault(NamedTuple):
    """The next planned fault, as in plan.json: it is due in so many ``seconds``, or in a ``round``."""

    planned: dict[str, Any]
    seconds: float | None
    round: int | None

    def __str__(self) -> str:
        fault = told_fault(self.planned)
        when = f"in round {self.round}" if self.seconds is None else f"in {text.duration(self.seconds)}"
        return f"{fault['action']} {fault['target']} {when}"


class Story(Facts):
    """A run so far. ``now``: its time, in seconds since it began. ``behind``: there are more rows in the record, so
    `read` is to be called again at once."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.now = 0.0
        self.round = 0  # the latest that a coordinator began
        self.latest_states: dict[str, State] = {}  # by node
        self.cpu: defaultdict[str, Flow] = defaultdict(Flow)  # processor seconds by node
        self.rss: dict[str, int] = {}
        self.sending: dict[str, float] = {}  # by node, when its messages last grew
        self.links: defaultdict[Ends, Flow] = defaultdict(Flow)  # delivered bytes
        self.dropped: defaultdict[Ends, Flow] = defaultdict(Flow)  # packets lost, overflowed or cut
        self.kinds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # messages and bytes sent, by kind
        self.in_force: dict[int, float] = {}  # by fault, since when
        self.begun: set[int] = set()  # faults that took effect
        self.seen_faults: set[int] = set()  # started or skipped
        self.by_hand: dict[int, dict[str, Any]] = {}  # faults made manually, by id, each as in plan.json
        self.behind = True
        self._timed, self._by_round = (_planned(plan, key) for key in ("at", "round"))
        self._status: Literal["running", "finished", "crashed"] = "running"
        self._driver, self._engine = str(plan.get("driver") or ""), str(plan.get("engine") or "")
        self._outcome: Outcome | None = None
        self._training: float | None = None
        self._packets: int | None = None
        self._events: dict[str, list[tuple[int, Event]]] = {name: [] for name in KEPT}  # with their places
        self._number = 0  # of events so far
        self._states: list[State] = []
        self._probes: list[ProbeResult] = []
        self._phases: list[tuple[float, int, str, str, str, int | None, str]] = []  # of faults
        self._spans: tuple[int, list[FaultSpan]] = 0, []
        self._rounds = Rounds()
        self._ends: dict[int, float] = {}  # by round, when the last leader ended it
        self._metrics: defaultdict[tuple[str, str], dict[str, list[Metric]]] = defaultdict(dict)
        self._latest: dict[str, dict[str, Metric]] = {}  # by metric, what leaders reported in their latest round
        self._reported: defaultdict[str, set[int | None]] = defaultdict(set)  # by metric, the rounds that they reported
        self._bands: defaultdict[tuple[str, str], dict[int, Band]] = defaultdict(dict)  # by metric and scope; by round
        self._banded: Counter[tuple[str, str, int]] = Counter()  # how many reports are in a band
        self._overruns: dict[str, tuple[int, float]] = {}
        self._trained: defaultdict[str, float] = defaultdict(float)  # processor seconds since the training began
        self._things: dict[str, dict[int, tuple[Any, ...]]] = {LINKS.each: {}, FLOWS.each: {}}  # by id
        self._series: dict[str, list[Point]] = {name: [] for name in SERIES}
        self._band_points: dict[tuple[str, str, int], Point] = {}  # in the order of their ids
        self._curves, self._any_name = set(CURVES), bool(plan.get("programs"))  # the metrics that are kept
        self._classes: defaultdict[str, float] = defaultdict(float)
        self._looked = False  # whether the record was read
        self._read = dict.fromkeys((*_TABLES, LINKS.growth, FLOWS.growth), 0)

    # The rows

    def hear(self, table: str, row: tuple[Any, ...]) -> None:
        """Take a row that has just been recorded, with all columns of its table."""
        match table, row:
            case (("link" | "flow"), (id, *thing)):
                self._things[table][id] = tuple(thing)
            case "link_growth", (_, t, link, *counts):
                grown = dict(zip(LINKS.counts, counts, strict=True))
                source, target, link_class, _ = self._things["link"][link]
                dropped = sum(grown[each] for each in ("lost", "overflowed", "cut_dropped"))
                sizes = grown["delivered_bytes"], dropped, grown["delivered"]
                self._add_link(LinkGrowth(0, t, source, target, link_class, *sizes))
            case "flow_growth", (_, t, flow, messages, size):
                node, _, kind, direction = self._things["flow"][flow]
                if direction == "sent":
                    self._add_sent(SentGrowth(0, t, node, kind, messages, size))
            case "meta", ("engine", value):
                self._engine = json.loads(value)
            case "probe", _:
                self._probes.append(ProbeResult(*row))
            case "outcome", (t, facts):
                self._status, self._outcome = "finished", outcome_of(t, facts)
            case _ if table in _TABLES:
                self._add(table, None, row)

    @classmethod
    def of(cls, history: History) -> Self:
        """The run so far, from its record."""
        story = cls(history.plan)
        while story.behind:
            story.read(history)
        return story

    def read(self, history: History) -> None:
        """Take in what was recorded since the last call, at most ``PIECE`` rows of each table.

        Of what was carried, a long past is summed up, and the latest ``PIECE`` rows are taken one by one. The first
        call leaves it to the next one, so that states and faults are soon there.
        """
        first, self._looked = not self._looked, True
        self.behind = first
        self._driver, self._engine = history.driver, history.engine
        self._status, self._outcome = history.status, history.outcome
        for table, (columns, _) in _TABLES.items():
            rows = history.after(table, columns, self._read[table], PIECE)
            for id, *row in rows:
                self._add(table, id, row)
            if rows and table == "probe":
                self._probes = history.probes()
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
        if self._band_points:
            self._series["bands"] = list(self._band_points.values())  # a new list: others may still read the last

    @classmethod
    def to_continue(cls, history: History) -> Self:
        """As of `of`, in the process that carries out the run. `hear` takes the rows from then on."""
        story = cls.of(history)
        for each, things in story._things.items():
            things.update((id, tuple(thing)) for id, *thing in history.rows(f"SELECT * FROM {each}"))
        story._status = "running"
        return story

    def _add(self, table: str, id: int | None, row: Sequence[Any]) -> None:
        columns, add = _TABLES[table]
        self.now = max(self.now, row[0])
        add(self, id, *row[: len(columns)])

    # Facts

    @property
    def driver(self) -> str:
        return self._driver

    @property
    def engine(self) -> str:
        return self._engine

    @property
    def status(self) -> Literal["running", "finished", "crashed"]:
        return self._status

    @property
    def outcome(self) -> Outcome | None:
        return self._outcome

    @property
    def seconds(self) -> float:
        return self.now

    @property
    def packets(self) -> int | None:
        return self._packets

    @property
    def training_began(self) -> float | None:
        return self._training if self._training is not None else super().training_began

    def events(self, *names: str) -> list[Event]:
        """The events of these names, which are among `KEPT`, in the order of recording."""
        return [event for _, event in merge(*(self._events[name] for name in names), key=itemgetter(0))]

    def states(self) -> list[State]:
        return self._states

    def probes(self) -> list[ProbeResult]:
        return self._probes

    def faults(self) -> list[FaultSpan]:
        seen = len(self._phases) + len(self._events[INJECTED]) + 1
        if self._spans[0] != seen:
            planned, by_hand = self.plan.get("faults", ()), self.events(INJECTED)
            self._spans = seen, fault_spans(planned, by_hand, self._phases, self.nodes)
        return self._spans[1]

    def rounds(self) -> list[Round]:
        return self._rounds.all

    def latest_round(self, node: str) -> Round | None:
        """The latest round that a coordinator has begun."""
        index = self._rounds.latest.get(node)
        return None if index is None else self._rounds.all[index]

    def series(self, name: str, scope: str) -> dict[str, list[Metric]]:
        return self._metrics.get((name, scope), {})

    def bands(self, name: str) -> dict[int, Band]:
        found = next((of for scope in DEVICE_SCOPES if (of := self._bands.get((name, scope)))), {})
        return {number: found[number] for number in sorted(found)}

    def metric_names(self) -> list[tuple[str, str]]:
        return sorted({(scope, name) for name, scope in (*self._metrics, *self._bands)})

    def overruns(self) -> dict[str, tuple[int, float]]:
        return self._overruns

    def processor_seconds(self) -> dict[str, float]:
        return self._trained

    # The answers

    def checks(self) -> list[Check]:
        """The checks so far, as if the run ended now."""
        return checks(self)

    def latest(self, name: str) -> float | None:
        """The latest value of a metric on the global test set: the last of `global_series`."""
        reports = self._latest.get(name)
        return mean_metric(reports).value if reports else None

    def time_left(self) -> TimeLeft | None:
        """How long the run still takes, at most: by the duration that its scenario allows, and by the rounds that are
        missing, at the pace of the latest ``PACE``. None if neither is known. It ends earlier if it reaches its
        accuracy."""
        began = self.training_began
        if began is None:
            return None
        left: list[TimeLeft] = []
        if (after := _seconds((self.plan.get("stop") or {}).get("after"))) is not None:
            left.append(TimeLeft(max(0.0, began + after - self.now), "time"))
        if self.rounds_planned and self._ends:
            done = max(self._ends)
            first = max(0, done - PACE)
            since = self._ends.get(first, began if first == 0 else None)
            if since is not None and done > first:
                pace = (self._ends[done] - since) / (done - first)
                ends = self._ends[done] + pace * (self.rounds_planned - done)
                left.append(TimeLeft(max(0.0, ends - self.now), "rounds"))
        return min(left, default=None)

    def next_fault(self) -> NextFault | None:
        """The next planned fault that was neither made nor skipped. Faults with a time come before those with a
        round."""
        trained = self.now - (self.now if self.training_began is None else self.training_began)
        for fault in self._timed[bisect_right(self._timed, trained, key=itemgetter("at")) :]:
            if fault["id"] not in self.seen_faults:
                return NextFault(fault, fault["at"] - trained, None)
        for fault in self._by_round[bisect_left(self._by_round, self.round, key=itemgetter("round")) :]:
            if fault["id"] not in self.seen_faults:
                return NextFault(fault, None, fault["round"])
        return None

    # What a page has not seen yet

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

    def _point(self, series: str, id: int | None, *values: Any) -> None:
        if id is not None:
            self._series[series].append((id, list(values)))

    def _add_metric(
        self, id: int | None, t: float, node: str, round: int | None, scope: str, name: str, value: float | None
    ) -> None:
        if value is None or not math.isfinite(value):
            return
        if name not in self._curves:
            if not self._any_name or len(self._curves) >= MOST_CURVES:
                return
            self._curves.add(name)
        metric = Metric(t, node, round, scope, name, value)
        if node not in self.many_devices:
            self._metrics[name, scope].setdefault(node, []).append(metric)
            self._point("metrics", id, _round(t), node, round, scope, name, value)
        elif round is not None:
            self._add_to_band(id, metric, round)
        if scope == "global" and node in self.leaders:
            if len(self.leaders) == 1 or round not in self._reported[name]:
                self._latest[name] = {node: metric}
            elif any(row.round == round for row in self._latest[name].values()):
                self._latest[name][node] = metric
            self._reported[name].add(round)

    def _add_to_band(self, id: int | None, metric: Metric, round: int) -> None:
        t, _, _, scope, name, value = metric
        key, of = (name, scope, round), self._bands[name, scope]
        self._banded[key] += 1
        before = of.get(round, Band(t, value, value, value))
        mean = before.mean + (value - before.mean) / self._banded[key]
        of[round] = band = Band(t, min(before.low, value), max(before.high, value), mean)
        if id is not None:
            self._band_points.pop(key, None)
            self._band_points[key] = id, [_round(t), round, scope, name, band.low, band.high, band.mean]

    def _add_state(self, id: int | None, t: float, node: str, state: str, detail: str) -> None:
        self.latest_states[node] = found = State(t, node, state, detail)
        self._states.append(found)

    def _add_fault(
        self, id: int | None, t: float, fault: int, action: str, target: str, phase: str, round: int | None, detail: str
    ) -> None:
        self._phases.append((t, fault, action, target, phase, round, detail))
        if phase != "end":
            self.seen_faults.add(fault)
        if phase == "start":
            self.in_force[fault] = t
            self.begun.add(fault)
        else:
            self.in_force.pop(fault, None)
        self._point("faults", id, _round(t), fault, phase, round)

    def _add_event(
        self,
        id: int | None,
        t: float,
        node: str | None,
        name: str,
        round: int | None,
        edge_round: int | None,
        data: str,
    ) -> None:
        if name not in self._events and name not in _FOLDED:
            return
        event = Event(t, node, name, round, _object(json.loads(data)), edge_round)
        self._number += 1
        if name in self._events:
            self._events[name].append((self._number, event))
        if name == "training" and self._training is None:
            self._training = t
        elif name == INJECTED and node is None:
            planned = self.by_hand[event.data["fault"]] = event.data["planned"]
            who = str(event.data["user"]), str(event.data.get("via", ""))
            self._point("by_hand", id, _round(t), told_fault({**planned, "id": event.data["fault"]}), *who)
        elif name == "overrun":
            steps, seconds = self._overruns.get(node or "?", (0, 0.0))
            late = (event.data.get("taken") or 0.0) - (event.data.get("asked") or 0.0)
            self._overruns[node or "?"] = steps + 1, seconds + late
        elif name in Rounds.EVENTS:
            self._add_round(id, event)

    def _add_round(self, id: int | None, event: Event) -> None:
        self._rounds.add(event)
        if event.name != "round" or event.node is None or event.round is None:
            return
        self.round = max(self.round, event.round)
        phase = "start" if event.data.get("phase") == "start" else "end"
        if phase == "end" and event.node in self.leaders:
            self._ends[event.round] = event.t
        place = event.round, event.edge_round
        self._point("rounds", id, _round(event.t), event.node, *place, phase, bool(event.data.get("abandoned")))

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
        self.now, self._packets = max(self.now, row.t), (self._packets or 0) + row.delivered
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

    def _add_resources(self, id: int | None, t: float, node: str, cpu_seconds: float, rss: int) -> None:
        used, before = self.cpu[node], self.cpu[node].total
        used.read(t, cpu_seconds)
        if self._training is not None and t >= self._training:
            self._trained[node] += used.total - before
        self.rss[node] = rss

    def _pass_time(self, id: int | None, t: float) -> None:
        pass  # a row of which only the time counts


_TABLES: Mapping[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "state": (("t", "node", "state", "detail"), Story._add_state),
    "fault": (("t", "fault", "action", "target", "phase", "round", "detail"), Story._add_fault),
    "event": (("t", "node", "name", "round", "edge_round", "data"), Story._add_event),
    "metric": (("t", "node", "round", "scope", "name", "value"), Story._add_metric),
    "resources": (("t", "node", "cpu_seconds", "rss"), Story._add_resources),
    "probe": (("t",), Story._pass_time),
    "outcome": (("t",), Story._pass_time),
}

_CARRIED = (
    (LINKS, Story._take_links, Story._take_links_together),
    (FLOWS, Story._take_sent, Story._take_sent_together),
)


def told_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    """What a page shows of a fault of plan.json: id, action, target, at, round, duration."""
    sides = " | ".join(text.some(side) for side in fault.get("between") or ())
    keys = ("id", "action", "at", "round", "duration")
    return {key: fault.get(key) for key in keys} | {"target": fault.get("node") or sides}


def _planned(plan: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The planned faults that have this key, in its order."""
    return sorted((fault for fault in plan.get("faults", ()) if fault.get(key) is not None), key=itemgetter(key))


def _seconds(value: Any) -> float | None:
    """A duration of plan.json, in seconds."""
    return parse_duration(value) if isinstance(value, str) else value


def _round(t: float) -> float:
    return round(t, 3)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
