"""What is known of a run: its plan and the rows of its record, and what follows from them.

`orchestrator.results.history` reads the rows from the record. `orchestrator.results.story` gathers them in memory, as
they are recorded. What follows from rows is computed here and in `orchestrator.results.folds`, once for both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from node.catalogue.tasks import CLIENTS, MAIN_METRIC
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.nodes import Resumed
from orchestrator.record.events.run import Continued, Training
from orchestrator.record.rows import (
    POPULATION,
    Event,
    FaultPhase,
    FaultSpan,
    Metric,
    Outcome,
    ProbeResult,
    Recorded,
    Round,
    State,
)
from orchestrator.results.fault_spans import fault_spans
from orchestrator.results.folds import EventFold, Overruns, Reports, Rounds
from orchestrator.results.means import Band, Coverage, clients_of, mean_series, without_samples
from orchestrator.scenario.sections.drivers import LinkKind, kind_of, link_kind

RUNNING = "running"  # this and the next ones: what a running node does
IN_ROUND = "in a round"
WAITING = "waiting"
CUT_OFF = "cut off"
DEVICE_SCOPES = ("global", "own", "train")  # of what a device reports, the first is shown
DEVICES = 40  # with more devices, figures show the range and the mean of what they report


E = TypeVar("E", bound=RecordedEvent)
Fold = TypeVar("Fold", bound=EventFold)
Series = dict[str, list[Metric]]  # by node


class Facts(Protocol):
    """A run so far. ``plan`` is that of plan.json. ``seconds``: the duration of the run so far. ``packets``: how many
    packets the links have delivered in training; None if their counters were never read."""

    _fault_spans: tuple[int, list[FaultSpan]] | None = None  # with the number of changes when they were put together

    @cached_property
    def plan(self) -> dict[str, Any]: ...

    @property
    def main_metric(self) -> str:
        """The metric that results are compared by: accuracy, or mae of a regression."""
        return MAIN_METRIC[(self.plan.get("data") or {}).get("task", "classification")]

    @property
    def goal(self) -> str:
        """The metric that the run is to bring to a value (`stop.target`), or its main metric."""
        target = (self.plan.get("stop") or {}).get("target") or {}
        return str(target.get("name") or self.main_metric)

    @property
    def driver(self) -> str: ...

    @property
    def engine(self) -> str: ...

    @property
    def status(self) -> Literal["running", "finished", "crashed"]: ...

    @property
    def outcome(self) -> Outcome | None: ...

    @property
    def seconds(self) -> float: ...

    @property
    def packets(self) -> int | None: ...

    def events(self, *names: str) -> list[Event]: ...

    def recorded(self, kind: type[E]) -> list[Recorded[E]]:
        """The events of a kind in the order of recording."""
        recorded = []
        for event in self.events(kind.NAME):
            typed = kind.from_json(event.data)
            recorded.append(Recorded(event.t, event.node, event.round, typed))
        return recorded

    def states(self) -> list[State]: ...

    def probes(self) -> list[ProbeResult]: ...

    def fault_phases(self) -> list[FaultPhase]:
        """The phases of faults in the order of recording."""

    def changes(self) -> int:
        """Another number when the record has other rows of faults than before."""

    def metric_names(self) -> list[tuple[str, str]]:
        """The scope and name of every reported metric, in alphabetical order."""

    def folded(self, kind: type[Fold]) -> Fold:
        """What follows from the events of a kind of fold."""

    def reports(self, name: str, scope: str) -> Reports:
        """The reports of a metric."""

    # The plan

    @cached_property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """The planned nodes by name, in the plan's order."""
        return {node["name"]: node for node in self.plan.get("nodes", [])}

    @cached_property
    def nodes_by_tier(self) -> Counter[str]:
        """The number of nodes of each tier. A population counts with its clients, for which one node stands."""
        tiers = Counter(str(node["tier"]) for node in self.nodes.values())
        if self.clients:
            tier = str(self.nodes[POPULATION]["tier"])
            tiers[tier] += self.clients - 1
        return tiers

    @property
    def clients(self) -> int:
        """The number of clients of a population, for which one node stands; 0 without a population."""
        return int((self.plan.get(POPULATION) or {}).get("size", 0))

    @cached_property
    def link_classes(self) -> dict[tuple[str, str], str]:
        """The class of each planned direction (source, target)."""
        classes = {}
        for link in self.plan.get("links", []):
            classes[link["source"], link["target"]] = link["link_class"]
        return classes

    @cached_property
    def link_kinds(self) -> dict[tuple[str, str], LinkKind]:
        """The kind of each planned direction (source, target)."""
        driver = self.driver
        kinds = {}
        for link in self.plan.get("links", []):
            is_real = bool(link["profile"].get("real"))
            kinds[link["source"], link["target"]] = link_kind(driver, real=is_real)
        return kinds

    @cached_property
    def leaders(self) -> tuple[str, ...]:
        """The nodes that lead the training: the cloud, or all edges if there is none."""
        return tuple(name for name, node in self.nodes.items() if node.get("leads"))

    @cached_property
    def many_devices(self) -> frozenset[str]:
        """The devices, if there are so many that figures show what they report together; none if there are few."""
        devices = []
        for name, node in self.nodes.items():
            if node.get("tier") == "device":
                devices.append(name)
        return frozenset(devices if len(devices) > DEVICES else ())

    @property
    def rounds_planned(self) -> int | None:
        rounds = (self.plan.get("stop") or {}).get("rounds")
        if rounds is None:
            return None
        return int(rounds)

    @property
    def simulated(self) -> bool:
        """Whether nodes, links and time were modelled."""
        return kind_of(self.driver).simulated

    @property
    def virtual(self) -> bool:
        """Whether nodes were real, in virtual time."""
        return kind_of(self.driver).virtual

    @property
    def calibrated(self) -> bool:
        """Whether the run only measured its links."""
        return self.outcome is not None and self.outcome.ended == "calibrated"

    # Faults

    def faults(self) -> list[FaultSpan]:
        """The course of every fault: the planned ones in the plan's order, then the manual ones. They are needed in
        many places, so they are put together again only if the record has changed."""
        changes = self.changes()
        if self._fault_spans is None or self._fault_spans[0] != changes:
            self._fault_spans = changes, fault_spans(self, self.fault_phases())
        return list(self._fault_spans[1])

    # Times and rounds

    def rounds(self) -> list[Round]:
        """The rounds of all coordinators in order of their start. A round that a restart repeats is listed again."""
        return self.folded(Rounds).all

    def overruns(self) -> dict[str, tuple[int, float]]:
        """By node: its steps that took longer than configured, and the seconds that they took longer."""
        return self.folded(Overruns).by_node

    @property
    def training_began(self) -> float | None:
        """The time at which training started. Fault times in the scenario count from it."""
        began = self.events(Training.NAME)
        if began:
            return began[0].t
        starts = [round.start for round in self.rounds()]
        return min(starts, default=None)

    @property
    def training_ended(self) -> float:
        """The time at which the last round of a leading node ended; the run's last time, if none was finished."""
        led = [round for round in self.rounds() if round.node in self.leaders]
        ends = [round.end for round in led if round.end]
        if ends:
            return max(ends)
        return self.seconds

    def rounds_done(self) -> int:
        """The number of rounds that every leading node has finished, including unrecorded rounds of a checkpoint."""
        restarts = [event.round or 0 for event in self.events(Continued.NAME)]
        kept = max(restarts, default=0)
        before = set(range(1, kept + 1))
        done: defaultdict[str, set[int]] = defaultdict(before.copy)
        for event in self.events(Resumed.NAME):
            restored = event.round or 0
            done[event.node or ""].update(range(1, restored + 1))
        for round in self.rounds():
            if round.end is not None:
                done[round.node].add(round.round)
        numbers = [len(done[leader]) for leader in self.leaders]
        return min(numbers, default=0)

    def rounds_with_ends(self) -> list[tuple[Round, float]]:
        """Each round with its end. One that did not end lasts until its node's next, or to the end of the run."""
        last = self.seconds
        next_start = dict[str, float]()  # by node
        backwards = []
        for round in reversed(self.rounds()):
            end = round.end
            if end is None:
                end = next_start.get(round.node, last)
            backwards.append((round, end))
            next_start[round.node] = round.start
        return backwards[::-1]

    def current_states(self) -> dict[str, State]:
        """The latest state of each planned node; "planned" for a node without recorded states."""
        latest = {name: State(0.0, name, "planned", "") for name in self.nodes}
        return latest | {state.node: state for state in self.states()}

    # Metrics

    def series(self, name: str, scope: str) -> dict[str, list[Metric]]:
        """A metric by node, in the order of reporting."""
        return self.reports(name, scope).by_node

    def bands(self, name: str) -> dict[int, Band]:
        """A metric of many devices by round, of the first of `DEVICE_SCOPES` that any of them reports."""
        for scope in DEVICE_SCOPES:
            by_round = self.reports(name, scope).bands.by_round()
            if by_round:
                return by_round
        return {}

    def global_series(self, name: str) -> list[Metric]:
        """A metric on the global test set, by round: the leading node's, or the mean over several leading nodes, as in
        `mean_series`."""
        by_node = self.series(name, "global")
        if len(self.leaders) == 1:
            return list(by_node.get(self.leaders[0], ()))
        reports: list[Metric] = []
        for leader in self.leaders:
            if self.counts(leader):
                reports += by_node.get(leader, ())
        reports.sort(key=lambda report: report.t)
        return mean_series(reports)

    def counts(self, node: str) -> bool:
        """Whether a node counts in means: it holds training samples, or has some below it."""
        return node not in self._without_samples

    @cached_property
    def _without_samples(self) -> frozenset[str]:
        return without_samples(self.nodes)

    def coverage(self) -> Coverage | None:
        """What the means of `global_series` of the main metric cover; None if they are no means over nodes."""
        if len(self.leaders) > 1:
            reporting = self.series(self.main_metric, "global")
            leaders = [leader for leader in self.leaders if self.counts(leader)]
            covers = sum(leader in reporting for leader in leaders)
            if covers:
                return Coverage(covers, len(leaders), "leading node")
            return None
        for leader in self.leaders:
            counted = self.series(CLIENTS, "global").get(leader)
            if counted:
                covers = round(counted[-1].value)
                return Coverage(covers, clients_of(self.plan, self.nodes, self.counts))
        return None

    def edge_series(self, name: str) -> Series:
        """A metric of each edge: on the global test set if the edge reports that, else on its own test set."""
        return self.tier_series(name, "edge", "global", "own")

    def tier_series(self, name: str, tier: str, *scopes: str) -> Series:
        """A metric of each node of a tier, of the first of these scopes that the node reports."""
        series: Series = {}
        for scope in reversed(scopes):
            series |= self.series(name, scope)
        of_tier = {}
        for name, node in self.nodes.items():
            if name in series and node["tier"] == tier:
                of_tier[name] = series[name]
        return of_tier
