"""A run so far, folded from the rows of its record as they come: one answer to each question about a running run
(`orchestrator.results.checks.registry` has the verdict).

The orchestrator hands each row to its story as it is recorded. Others read the record: each row once, in the order of
recording, and in pieces, so that no transaction is long.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Literal, Self, cast

from netem.units import parse_duration
from node.catalogue.tasks import CLIENTS
from orchestrator.record.events.links import LossAudit
from orchestrator.record.events.network import NetworkReading
from orchestrator.record.events.nodes import (
    BadMessage,
    Frozen,
    LinesDropped,
    ProgramEnded,
    Resumed,
    RoundReached,
)
from orchestrator.record.events.overload import Overload
from orchestrator.record.events.run import Continued, Gap, HostChanged, Injected, NodeMoved, StackInForce, Training
from orchestrator.record.reader import outcome_of
from orchestrator.record.rows import Event, FaultPhase, Metric, Outcome, ProbeResult, Round, State
from orchestrator.results.facts import (
    CUT_OFF,
    IN_ROUND,
    RUNNING,
    WAITING,
    Facts,
    Fold,
)
from orchestrator.results.folds import EventFold, Overruns, Reports, Rounds
from orchestrator.results.forecast import NextFault, TimeLeft
from orchestrator.results.history import History
from orchestrator.results.latest import LatestReports
from orchestrator.results.traffic.usage import Usage

PIECE = 20_000  # rows of a table that are read in one go
CURVES = ("accuracy", "loss")
MOST_CURVES = 24  # metrics, which may have any name
PACE = 5  # rounds by which the time left is estimated
KEPT = (
    Training.NAME,
    Resumed.NAME,
    Continued.NAME,
    HostChanged.NAME,
    NodeMoved.NAME,
    Injected.NAME,
    Gap.NAME,
    Frozen.NAME,
    Overload.NAME,
    LossAudit.NAME,
    NetworkReading.NAME,
    StackInForce.NAME,
    BadMessage.NAME,
    ProgramEnded.NAME,
    LinesDropped.NAME,
)
"""The names of the events that the checks of a running run read. Others may be many."""
_FOLDED = frozenset((*Overruns.EVENTS, *Rounds.EVENTS))
NumberedEvent = tuple[int, Event]  # an event with its place among all events
Planned = dict[str, Any]  # a fault as in plan.json


class Story(Facts):
    """A run so far. ``behind``: the record has more rows, so call `read` again immediately."""

    plan: dict[str, Any]
    driver = engine = ""
    status: Literal["running", "finished", "crashed"] = "running"
    outcome: Outcome | None = None
    seconds = 0.0

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.round = 0  # the latest that a coordinator started
        self.latest_states: dict[str, State] = {}  # by node
        self.usage = Usage()
        self.in_force: dict[int, float] = {}  # by fault, since when
        self._planned = {fault["id"]: fault for fault in plan.get("faults", ())}
        self.begun: set[int] = set()  # faults that took effect
        self.seen_faults: set[int] = set()  # started or skipped
        self.by_hand: dict[int, dict[str, Any]] = {}  # faults made manually, by id, each as in plan.json
        self.behind = True
        self._timed = _sorted_by("at", self._planned.values())
        self._by_round = _sorted_by("round", self._planned.values())
        self.driver = str(plan.get("driver") or "")
        self.engine = str(plan.get("engine") or "")
        self._events: dict[str, list[NumberedEvent]] = {name: [] for name in KEPT}
        self._number = 0  # of events so far
        self._states: list[State] = []
        self._probes: list[ProbeResult] = []
        self._phases: list[FaultPhase] = []
        self._rounds = Rounds()
        self._overruns = Overruns()
        self._folds: dict[type[EventFold], EventFold] = {}
        self._folds[Rounds] = self._rounds
        self._folds[Overruns] = self._overruns
        self._ends: dict[int, float] = {}  # by round, when the last leader ended it
        self._done = 0  # the latest of these rounds
        self._reports: dict[tuple[str, str], Reports] = {}  # by metric and scope
        self._latest: dict[str, Metric] = {}  # by metric, the latest report of the leading node
        self.latest_of_leaders: defaultdict[str, LatestReports] = defaultdict(LatestReports)  # of several leading nodes
        self._trained_in: dict[str, int] = {}  # by node, the round of its latest report of training
        self._curves = {*CURVES, CLIENTS, self.main_metric, self.goal}  # the metrics that are kept
        self._looked = False  # whether the record was read
        self._read = dict.fromkeys(_TABLES, 0)

    # The rows

    def add_row(self, table: str, row: tuple[Any, ...]) -> None:
        """Take a row that has just been recorded, with all columns of its table."""
        match table, row:
            case "meta", ("engine", value):
                self.engine = json.loads(value)
            case "probe", _:
                self._probes.append(ProbeResult(*row))
            case "outcome", (t, facts):
                self.status = "finished"
                self.outcome = outcome_of(t, facts)
            case _ if table in _TABLES:
                self._add(table, row)
            case _:
                self.usage.add_row(table, row)

    @classmethod
    def of(cls, history: History) -> Self:
        """The run so far, from its record."""
        story = cls(history.plan)
        while story.behind:
            story.read(history)
        return story

    def read(self, history: History) -> None:
        """Take in at most ``PIECE`` new rows of each table. The first call leaves the carried bytes to the next."""
        first = not self._looked
        self._looked = True
        self.behind = first
        self.driver = history.driver
        self.engine = history.engine
        self.status = history.status
        self.outcome = history.outcome
        for table, (columns, _) in _TABLES.items():
            rows = history.after(table, columns, self._read[table], PIECE)
            for _, *row in rows:
                self._add(table, row)
            if rows and table == "probe":
                self._probes = history.probes()
            if rows:
                self._read[table] = rows[-1][0]
            self.behind |= len(rows) == PIECE
        if not first:  # states and faults first: they are shown sooner
            self.behind |= self.usage.read(history)
            self.seconds = max(self.seconds, self.usage.now)

    @classmethod
    def to_continue(cls, history: History) -> Self:
        """As of `of`, in the process that carries out the run. `add_row` takes the rows from then on."""
        story = cls.of(history)
        story.usage.read_names(history)
        story.status = "running"
        return story

    def _add(self, table: str, row: Sequence[Any]) -> None:
        columns, add = _TABLES[table]
        self.seconds = max(self.seconds, row[0])
        add(self, *row[: len(columns)])

    # Facts

    @property
    def packets(self) -> int | None:
        return self.usage.packets

    def events(self, *names: str) -> list[Event]:
        """The events of these names, which are among `KEPT`, in the order of recording."""
        numbered = [self._events[name] for name in names]
        in_order = merge(*numbered, key=itemgetter(0))
        return [event for _, event in in_order]

    def states(self) -> list[State]:
        return self._states

    def probes(self) -> list[ProbeResult]:
        return self._probes

    def fault_phases(self) -> list[FaultPhase]:
        return self._phases

    def changes(self) -> int:
        return len(self._phases) + len(self._events[Injected.NAME])

    def folded(self, kind: type[Fold]) -> Fold:
        return cast("Fold", self._folds[kind])

    def reports(self, name: str, scope: str) -> Reports:
        """The reports of a metric; of many devices only their bands."""
        return self._reports.get((name, scope)) or self._no_reports()

    def metric_names(self) -> list[tuple[str, str]]:
        return sorted((scope, name) for name, scope in self._reports)

    def latest_round(self, node: str) -> Round | None:
        """The latest round that a coordinator has started."""
        return self._rounds.latest(node)

    def _no_reports(self) -> Reports:
        return Reports(self.many_devices, self.counts, keeps_all=False)

    # The answers

    def faults_in_force(self) -> list[dict[str, Any]]:
        """The faults that have started and are not over, each as in plan.json."""
        known = [fault for fault in self.in_force if fault in self._planned]
        return [self._planned[fault] | {"id": fault} for fault in known]

    def activities(self) -> dict[str, str]:
        """What each node does: its state, and of a running node, as in the report (`orchestrator.report.activity`):
        it is "cut off" while a fault disconnects it, "in a round" while it leads one, or, if it trains, from the start
        of its parent's round until its last report of training in it, and otherwise "waiting". It is only "running" if
        neither it nor its parent has rounds."""
        cut = set()
        for fault in self.faults_in_force():
            if fault["action"] == "disconnect":
                cut.add(fault.get("node"))
        return {name: self._activity(name, name in cut) for name in self.nodes}

    def _activity(self, node: str, cut: bool) -> str:
        if node in self.latest_states:
            state = self.latest_states[node].state
        else:
            state = "planned"
        if state != RUNNING:
            return state
        own = self.latest_round(node)
        led = self.latest_round(self.nodes[node].get("parent") or "")
        if cut:
            return CUT_OFF
        latest = own or led
        if latest is None:
            return RUNNING
        reported = own is None and self._trained_in.get(node) == latest.round
        if latest.end is None and not reported:
            return IN_ROUND
        return WAITING

    def latest(self, name: str) -> float | None:
        """The latest value of a metric on the global test set: the last of `global_series`."""
        if len(self.leaders) == 1:
            report = self._latest.get(name)
            if report is None:
                return None
            return report.value
        return self.latest_of_leaders[name].mean()

    def time_left(self) -> TimeLeft | None:
        """How long the run still takes: by the duration that its scenario allows, or by the rounds that are missing, at
        the pace of the latest ``PACE``. None if neither is known. Its accuracy may end it earlier."""
        began = self.training_began
        if began is None:
            return None
        left: list[TimeLeft] = []
        stop = self.plan.get("stop") or {}
        after = _seconds(stop.get("after"))
        if after is not None:
            seconds = began + after - self.seconds
            left.append(TimeLeft(max(0.0, seconds), "time"))
        end = self._end_of_rounds(began)
        if end is not None:
            seconds = end - self.seconds
            left.append(TimeLeft(max(0.0, seconds), "rounds"))
        return min(left, default=None)

    def _end_of_rounds(self, began: float) -> float | None:
        """When the planned rounds will be done, at the pace of the latest ``PACE``; None if that is not known."""
        done = self._done
        if not self.rounds_planned or not done:
            return None
        first = max(0, done - PACE)
        since = self._ends.get(first)
        if since is None and first == 0:
            since = began
        if since is None or done <= first:
            return None
        latest = self._ends[done]
        pace = (latest - since) / (done - first)
        return latest + pace * (self.rounds_planned - done)

    def next_fault(self) -> NextFault | None:
        """The next planned fault that was neither made nor skipped: first those with a time, then with a round."""
        began = self.training_began
        trained = 0.0
        if began is not None:
            trained = self.seconds - began
        next_timed = bisect_right(self._timed, trained, key=itemgetter("at"))
        for place in range(next_timed, len(self._timed)):
            fault = self._timed[place]
            if fault["id"] not in self.seen_faults:
                return NextFault(fault, fault["at"] - trained, None)
        next_by_round = bisect_left(self._by_round, self.round, key=itemgetter("round"))
        for place in range(next_by_round, len(self._by_round)):
            fault = self._by_round[place]
            if fault["id"] not in self.seen_faults:
                return NextFault(fault, None, fault["round"])
        return None

    def _add_metric(
        self,
        t: float,
        node: str,
        round: int | None,
        scope: str,
        name: str,
        value: float | None,
    ) -> None:
        if scope == "train" and round is not None:
            self._trained_in[node] = round
        if value is None:
            value = math.nan  # the record has NULL for NaN
        if name not in self._curves:
            if len(self._curves) >= MOST_CURVES:
                return
            self._curves.add(name)
        metric = Metric(t, node, round, scope, name, value)
        reports = self._reports.get((name, scope))
        if reports is None:
            reports = self._reports[name, scope] = self._no_reports()
        reports.add(metric)
        if scope == "global" and node in self.leaders:
            self._latest[name] = metric
            if self.counts(node):
                self.latest_of_leaders[name].add(metric)

    def _add_resources(self, *row: Any) -> None:
        self.usage.add_resources(*row)

    def _add_channel(self, t: float, channel: str, *counts: Any) -> None:
        seconds = counts[-1]
        self.usage.add_channel(t, channel, seconds)

    def _add_time(self, t: float) -> None:
        """Take a row that only shows how long the run has lasted: `_add` has done that."""

    def _add_state(self, t: float, node: str, state: str, detail: str) -> None:
        latest = State(t, node, state, detail)
        self.latest_states[node] = latest
        self._states.append(latest)

    def _add_fault(
        self,
        t: float,
        fault: int,
        action: str,
        target: str,
        phase: str,
        round: int | None,
        detail: str,
    ) -> None:
        self._phases.append(FaultPhase(t, fault, action, target, phase, round, detail))
        if phase != "end":
            self.seen_faults.add(fault)
        if phase == "start":
            self.in_force[fault] = t
            self.begun.add(fault)
        else:
            self.in_force.pop(fault, None)

    def _add_event(
        self,
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
        if name == Injected.NAME and node is None:
            injected = Injected.from_json(event.data)
            self.by_hand[injected.fault] = injected.planned
            self._planned[injected.fault] = injected.planned
        elif name in Overruns.EVENTS:
            self._overruns.add(event)
        elif name in Rounds.EVENTS:
            self._add_round(event)

    def _add_round(self, event: Event) -> None:
        self._rounds.add(event)
        if event.name != RoundReached.NAME or event.node is None or event.round is None:
            return
        self.round = max(self.round, event.round)
        if event.data.get("phase") != "start" and event.node in self.leaders:
            self._ends[event.round] = event.t
            self._done = max(self._done, event.round)


_TABLES: Mapping[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "state": (("t", "node", "state", "detail"), Story._add_state),
    "fault": (("t", "fault", "action", "target", "phase", "round", "detail"), Story._add_fault),
    "event": (("t", "node", "name", "round", "edge_round", "data"), Story._add_event),
    "metric": (("t", "node", "round", "scope", "name", "value"), Story._add_metric),
    "resources": (("t", "node", "cpu_seconds", "rss", "pss"), Story._add_resources),
    "channel": (("t", "channel", "member", "packets", "bytes", "seconds"), Story._add_channel),
    "probe": (("t",), Story._add_time),
    "outcome": (("t",), Story._add_time),
}
"""The columns that are read of a table, its first ones, and what takes them. Of some only the time counts."""


def _sorted_by(key: str, faults: Iterable[Planned]) -> list[Planned]:
    """The faults that are planned by this key, such as "at" or "round", in its order."""
    planned = [fault for fault in faults if fault.get(key) is not None]
    return sorted(planned, key=itemgetter(key))


def _seconds(value: Any) -> float | None:
    """A duration of plan.json, in seconds."""
    return parse_duration(value) if isinstance(value, str) else value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
