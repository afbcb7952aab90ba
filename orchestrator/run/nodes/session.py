"""A run in progress: the reports of its nodes and its driver, and what follows from them.

The session receives the messages of nodes, follows rounds, runs the faults and the link schedules, and writes
the record. `NodeProcesses` starts and ends the processes of nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator import text
from orchestrator.drivers.base import Environment, HostChange, HostReadings, NodeMove, UsesHosts
from orchestrator.drivers.programs import Programs
from orchestrator.planning.faults.timeline import Fault
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.links import CrossTraffic, ScheduleFailed, ScheduleStep
from orchestrator.record.events.nodes import Left, LinesDropped, ProgramEnded, RoundReached
from orchestrator.record.events.run import HostChanged, Injected, NodeMoved
from orchestrator.run.context import RunContext
from orchestrator.run.control.injection import FaultInjector
from orchestrator.run.links.media import Media
from orchestrator.run.links.schedules import Schedules
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.addresses import Addresses
from orchestrator.run.nodes.messages import LONGEST_TEXT, Message, MessageRecorder
from orchestrator.run.nodes.moves import Moves
from orchestrator.run.nodes.processes import NodeProcesses, NodeState
from orchestrator.run.tasks import Works

TOUCHED = (
    "faults were made manually from {at:g} s of training on ({user}): the run does not follow from its scenario and "
    "its seed alone"
)


@dataclass
class Progress:
    """``round``: the latest of a leading node. ``real``: in words, by two hosts that real links join."""

    round: int = 0
    real: dict[str, str] = field(default_factory=dict)


News = HostChange | NodeMove | HostReadings


class Session:
    """See the module's docstring."""

    def __init__(self, run: RunContext, environment: Environment) -> None:
        plan = run.plan
        past = run.past
        self.plan = plan
        self.past = past
        self._run = run
        self._works = Works(run.directory)
        self.ended = self._works.ended
        self.finish = self._works.finish
        self.spawn = self._works.spawn
        self.processes = NodeProcesses(run, environment, self._works)
        self.nodes = self.processes.nodes
        self.progress = Progress(round=past.round)
        links = Links(plan.links, environment.fabric)
        self.media = Media(plan.media, environment.fabric)
        self.faults = FaultInjector(
            plan,
            self.processes,
            links,
            self.media,
            note=self._note_fault,
            spawn=self.spawn,
            readdress=self._readdress,
            move=self._move,
        )
        self.moves = Moves(
            plan,
            self.processes,
            links,
            driver=environment.driver,
            spawn=self.spawn,
        )
        self.schedules = Schedules(
            plan,
            links,
            self.media,
            note=self._note_schedule,
            spawn=self.spawn,
        )
        self.on_message: Callable[[], None] = lambda: None  # called after each message of a node
        self.round_began: Callable[[int], None] = lambda round: None  # called when a round of the run starts
        self._began: float | None = None  # when training started, on the run's clock
        self._by_hand: dict[int, str] = {}  # the user, by the fault's id
        for span in past.faults:
            if span.by:
                self._by_hand[span.id] = span.by
        self._record = run.record
        self._clock = run.clock
        self._show = run.view.line
        self._control = environment.control
        self._driver = environment.driver
        self._fabric = environment.fabric
        self._flooding: set[str] = set()  # nodes with dropped lines
        self._addresses = Addresses(self.processes, environment)
        self._recorder = MessageRecorder(self.nodes, run.record, run.clock)

    # Start and end

    def listen(self) -> None:
        """Start to listen to the nodes, the driver and the fabric."""
        self.spawn(self._handle_messages())
        self.processes.watch()
        self.spawn(self._fabric.watch())
        if isinstance(self._control, Programs):
            self._control.over.add_done_callback(self._finish_with_programs)
        if isinstance(self._driver, UsesHosts):
            news = self._driver.news
            self.spawn(self._handle_news(news))

    def _finish_with_programs(self, over: asyncio.Future[tuple[str, str | None]]) -> None:
        reason, error = over.result()
        self.finish(reason, error)

    async def start_training(self) -> None:
        """Let every registered node start training, and start the faults and the schedules."""
        self._began = self._clock() - self.past.training
        elapsed = self.past.training
        await self.processes.train()
        self.faults.begin(self.past)
        self.schedules.begin(elapsed)
        for traffic in self.plan.cross_traffic:
            carrying = self.media.carry(traffic, elapsed, self._note_traffic)
            self.spawn(carrying)

    @property
    def trained(self) -> float | None:
        """The seconds since training began, without those between an interruption and its continuation; None before."""
        if self._began is None:
            return None
        return self._clock() - self._began

    async def make_by_hand(
        self,
        fault: Fault,
        user: str,
        facts: Mapping[str, Any],
    ) -> None:
        """Make a user's fault immediately; ``facts`` are recorded with it. OrchestratorError if it is not possible
        now."""

        def took_effect() -> None:
            first = not self._by_hand
            self._by_hand[fault.id] = user
            injected = Injected(
                fault=fault.id,
                user=user,
                **facts,
                planned=fault.to_json(),
            )
            self._note(injected)
            if first:
                note = TOUCHED.format(at=fault.at, user=user)
                self._run.note(note)

        await self.faults.make(fault, took_effect)

    async def _readdress(self, node: str) -> None:
        changed = await self._addresses.change(node)
        self._note(changed)
        self._show(f"{node} has the address {changed.present} now, and not {changed.former}")

    async def _move(self, device: str, edge: str) -> None:
        moved = await self.moves.move(device, edge)
        self._note(moved)

    async def stop_nodes(self, grace: float) -> None:
        """Ask every node to end, and wait up to ``grace`` seconds for them. The driver's close ends the others."""
        for course in self.schedules.end():
            self._note(course.ended())
        await self.processes.stop(grace)

    async def close(self) -> None:
        """Stop listening. The driver ends the processes that still run."""
        await self._works.close()
        self._recorder.end()

    # Hosts

    async def _handle_news(self, news: asyncio.Queue[News]) -> None:
        while True:
            match await news.get():
                case HostReadings(host, readings, ago):
                    t = max(0.0, self._clock() - ago)
                    self._record.sensors(t, host, readings)
                case HostChange() as change:
                    self._note_host(HostChanged(*change))
                case NodeMove() as move:
                    self._note_node_move(move)

    def _note_node_move(self, move: NodeMove) -> None:
        checkpoint = move.checkpoint
        if checkpoint is not None:
            checkpoint = round(checkpoint, 1)
        moved = NodeMoved(
            move.node,
            move.source,
            move.target,
            move.reason,
            checkpoint,
        )
        self._note_host(moved)

    def _note_host(self, event: HostChanged | NodeMoved) -> None:
        self._note(event)
        self._show(str(event))

    # Messages of nodes

    async def _handle_messages(self) -> None:
        async for node, message in self._control.messages():
            if node not in self.nodes or self.nodes[node].precedes(message):
                continue
            self.schedules.message_arrived()
            if self._recorder.take(node, message):
                self._follow(self.nodes[node], message)
            self.on_message()

    def _follow(self, state: NodeState, message: Message) -> None:
        """React to a message that has been checked."""
        leads = state.plan.leads
        if leads:
            follows_rules = self.plan.has_one_leader and not self.plan.programs
            if not follows_rules:
                self._apply_stop_rules(message)
        match message:
            case {"type": "register"}:
                state.settled.set()
            case {"type": "event", "name": RoundReached.NAME, "phase": "end"}:
                state.restarts = 0
            case {"type": "event", "name": RoundReached.NAME, "round": round}:
                if leads:
                    self._follow_round(round)
            case {"type": "event"}:
                self._follow_event(state, message)
            case {"type": "done"}:
                self.processes.done(state, message["reason"])
            case {"type": "failed"}:
                state.error = message["error"][:LONGEST_TEXT]
                if message.get("lasting"):
                    name = state.name
                    self.finish("failed", f"{name} failed: {state.error}: see `logs {name}`")

    def _follow_round(self, round: int) -> None:
        """React to the start of a round of a leading node."""
        is_latest = round > self.progress.round
        self.progress.round = max(self.progress.round, round)
        self.faults.round_started(round)
        if is_latest:
            self.round_began(round)

    def _follow_event(self, state: NodeState, event: Message) -> None:
        """React to an event of a node that is not about a round."""
        node = state.name
        name = event["name"]
        self.faults.event_reported(name)
        if name == Left.NAME:
            peer = event.get("peer")
            if isinstance(peer, str):
                self.moves.goodbye_received(node, peer)
        elif name == ProgramEnded.NAME:
            if self.plan.programs and event.get("code") == 0:
                how = text.how_ended(0)
                self._show(f"program {event['program']} ended ({how})")
        elif name == LinesDropped.NAME and node not in self._flooding:
            self._flooding.add(node)
            self._show(f"{node} prints too many lines for the record: the rest is dropped")

    def _apply_stop_rules(self, message: Message) -> None:
        """End the run if what a program has printed, or the mean over several leading nodes, meets a stop rule. A role
        that leads alone follows the rules itself."""
        stop = self.plan.stop
        match message:
            case {"type": "event", "name": RoundReached.NAME, "phase": "end", "round": round}:
                last = stop.rounds
                if self.plan.programs and last is not None and round >= last:
                    self.finish("rounds")
            case {"type": "metric", "values": {"scope": "global"} as values}:
                means = {"scope": "global", **self._means(values)}
                reached = stop.of_nodes.reached(means)
                if reached is not None:
                    self.finish(reached)

    def _means(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The means over the leading nodes of what one of them reports on the global test set; the values themselves if
        it leads alone. Without those that an online leading node has not reported yet."""
        if self.plan.has_one_leader:
            return values
        story = self._run.story
        online = set()
        for name, state in self.nodes.items():
            is_online = state.plan.leads and state.up
            if is_online and story.counts(name):
                online.add(name)
        means = {}
        for metric in values:
            reports = story.latest_of_leaders[metric]
            mean = reports.mean()
            if mean is not None and online <= reports.nodes:
                means[metric] = mean
        return means

    # The record

    def _note(self, event: RecordedEvent) -> None:
        """Record an event with the present round."""
        t = self._clock()
        round = self.progress.round or None
        self._record.add_event(t, event, round)

    def _note_schedule(self, event: ScheduleStep | ScheduleFailed) -> None:
        self._note(event)
        if isinstance(event, ScheduleFailed):
            self._show(f"schedule: {event.link} could not be changed ({event.error})")

    def _note_traffic(self, event: CrossTraffic) -> None:
        self._note(event)
        over = " is over" if event.phase == "end" else ""
        rate = text.rate(event.rate)
        self._show(f"cross traffic on {event.channel}{over}: {event.kind}, {rate}")

    def _note_fault(self, fault: Fault, phase: str, detail: str) -> None:
        self._record.fault(
            self._clock(),
            fault.id,
            fault.action,
            fault.target,
            phase=phase,
            round=self.progress.round or None,
            detail=detail,
        )
        what = "manual fault" if fault.id in self._by_hand else "fault"
        sentence = f"{what}: {fault.action} {fault.target}"
        if fault.direction and fault.medium is None:
            sentence += f" {fault.direction}"
        if fault.to:
            sentence += f" to {fault.to}"
        if phase == "end":
            sentence += " is over"
        elif phase == "skipped":
            sentence += " skipped"
        if detail:
            sentence += f" ({detail})"
        self._show(sentence)
