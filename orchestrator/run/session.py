"""A run in progress: the state of every node, and the reaction to each message and exit of a node.

The session receives messages (control plane) and exits (driver), keeps each node's state, applies the restart policy,
writes the record, and decides when the run is over. Faults act on nodes through the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.drivers.base import (
    CanPause,
    CopiesAssignments,
    EndsRuns,
    Environment,
    Exit,
    HostChange,
    HostReadings,
    LosesHosts,
    NodeMove,
)
from orchestrator.errors import DriverError, LostError, OrchestratorError
from orchestrator.fabric.base import Handle
from orchestrator.host import tail
from orchestrator.planning.assignments import handed_out
from orchestrator.planning.plan import NodePlan
from orchestrator.planning.timeline import Fault
from orchestrator.results.presence import in_words
from orchestrator.results.record import HOST, INJECTED, MOVED
from orchestrator.results.verdicts import Assessment, Verdict
from orchestrator.run.context import RunContext
from orchestrator.run.hearing import Hearing
from orchestrator.run.injection import FaultInjector
from orchestrator.run.link_schedules import Schedules
from orchestrator.run.link_states import Links
from orchestrator.run.messages import LONGEST_TEXT

EXIT_NOTICE = 2.0  # s to wait for the driver to report the exit of a process that is already gone
REGISTER_TIMEOUT = 180.0  # s from the start of a node's process to its registration; emulated processors are slow
RESTART_LIMIT = 3  # automatic restarts of one node without a round that it finished in between
RESTART_DELAY = 0.5  # s
LAST_WORD = 1.0  # s after a node's exit for messages that it sent before
TOUCHED = (
    "faults were made by hand from {at:g} s of training on ({user}): the run does not follow from its scenario and its "
    "seed alone"
)
AT_ONCE = 4  # nodes brought up at the same time


@dataclass
class NodeState:
    """One node as the orchestrator sees it."""

    plan: NodePlan
    state: str = "planned"
    handle: Handle | None = None  # None: it has no running process
    restarts: int = 0
    expected_end: bool = False  # a fault or the end of the run ends its process, not the node itself
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # its latest process has registered, or ended
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # its latest process has ended
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    error: str = ""  # the error that its latest process reported
    log_size: int = 0  # bytes, when its latest process began

    @property
    def up(self) -> bool:
        return self.state in ("registered", "running", "paused")


@dataclass(frozen=True)
class Ending:
    """Why a run ended: "rounds", "accuracy", "after", "programs", "interrupted" or "failed" with its error."""

    reason: str
    error: str | None = None


@dataclass
class Progress:
    """The figures for the live view and for its verdict.

    ``late`` has the seconds by which each node's steps were slower than its hardware. ``probed`` is the verdict on the
    probed links, ``network`` that on the network between hosts. ``real``: by two hosts that real links join, the latest
    measurement in words. ``faults_started`` counts the planned ones.
    """

    round: int = 0
    accuracy: float | None = None
    loss: float | None = None
    late: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    probed: Verdict = "pass"
    network: Assessment = "pass", ""
    real: dict[str, str] = field(default_factory=dict)
    faults_started: int = 0
    faults_by_hand: int = 0


class Session:
    """See the module's docstring."""

    def __init__(self, run: RunContext, environment: Environment) -> None:
        plan, past = run.plan, run.past
        self.plan, self.past = plan, past
        gone = past.left
        self.nodes = {node.name: NodeState(node, "left" if node.name in gone else "planned") for node in plan.nodes}
        self.progress = Progress(round=past.round)
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.training = False
        links = Links(plan.links, environment.fabric)
        self.faults = FaultInjector(plan, self, links, self._note_fault, self.spawn)
        self.schedules = Schedules(plan, links, self._note_schedule, self.spawn)
        self.heard: Callable[[], None] = lambda: None  # called after each message of a node
        self.round_began: Callable[[int], None] = lambda round: None  # called when a round of the run begins
        self._began: float | None = None  # when training began, on the run's clock
        self._by_hand = {span.id: span.by for span in past.faults if span.by}  # the user, by the fault's id
        self._directory = run.directory
        self._record, self._clock, self._say = run.record, run.clock, run.view.line
        self._control, self._driver, self._fabric = environment.control, environment.driver, environment.fabric
        self._assignments = environment.assignments
        self._starting = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stop_reason = "rounds"
        self._changed = asyncio.Event()
        self._closed = False
        self._hearing = Hearing(self.nodes, run.record, run.clock)

    # The life of the session

    def listen(self) -> None:
        """Start to listen to the nodes, the driver and the fabric."""
        self.spawn(self._hear_messages())
        self.spawn(self._hear_exits())
        self.spawn(self._hear_driver())
        self.spawn(self._fabric.watch())
        if isinstance(self._control, EndsRuns):
            self.spawn(self._hear_over(self._control))
        if isinstance(self._driver, LosesHosts):
            self.spawn(self._hear_news(self._driver.news))

    async def bring_up_all(self) -> None:
        """Start, attach and register every node that is present from the beginning. Waits for restarts as well."""
        left, joined = self.past.left, self.past.joined
        there = {node.name for node in self.plan.nodes if node.joins is None or node.name in joined} - left
        tasks = [asyncio.ensure_future(self.bring_up(node)) for node in self.plan.nodes if node.name in there]
        try:
            await asyncio.gather(*tasks)
            while any(self.nodes[name].state in ("restarting", "starting") for name in there):
                self._changed.clear()
                await self._changed.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start_training(self) -> None:
        """Tell every registered node to start training, and begin the faults and the schedules."""
        self.training, self._began = True, self._clock() - self.past.training
        for state in self.nodes.values():
            if state.state == "registered":
                await self._go(state)
        self.faults.begin(self.past)
        self.schedules.begin(self.past.training)

    @property
    def trained(self) -> float | None:
        """The seconds since training began, without those between an interruption and its continuation; None before."""
        return None if self._began is None else self._clock() - self._began

    async def make_by_hand(self, fault: Fault, user: str, facts: Mapping[str, Any]) -> None:
        """Make a fault at once, because a user asks for it. ``facts`` go into the record with it. OrchestratorError if
        it is not possible now."""

        def made() -> None:
            first = not self._by_hand
            self._by_hand[fault.id] = user
            data = {"fault": fault.id, "user": user, **facts, "planned": asdict(fault)}
            self._record.event(self._clock(), None, INJECTED, self.progress.round or None, data)
            if first:
                self._record.event(self._clock(), None, "note", None, {"text": TOUCHED.format(at=fault.at, user=user)})

        await self.faults.make(fault, made)

    def finish(self, reason: str, error: str | None = None) -> None:
        """End the run. Only the first call counts."""
        if not self.ended.done():
            self.ended.set_result(Ending(reason, error))

    async def stop_nodes(self, grace: float) -> None:
        """Ask every node to end, and wait up to ``grace`` seconds for them. The driver's close ends the others."""
        for course in self.schedules.end():
            self._note_schedule("schedule ended", course.to_json())
        for state in self.nodes.values():
            state.expected_end = True
            if state.state == "paused" and isinstance(self._driver, CanPause):
                await self._driver.resume(state.plan.name)
            if state.up:
                await self._control.send(state.plan.name, {"type": "stop"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                # The last message of a node that ended in order may arrive after its exit.
                while any(state.handle is not None or state.up for state in self.nodes.values()):
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        """Stop listening. The driver ends the processes that still run."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._hearing.end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` concurrently. An error in it ends the run with that error. Does nothing once the session is
        closing."""
        if self._closed:
            work.close()
            return

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.finish("failed", str(error) or type(error).__name__)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never starts ``work``

    # Bringing nodes up

    async def bring_up(self, node: NodePlan) -> None:
        """Start a node's process, attach it to its links and wait until it has registered. If it ends before that, the
        restart policy decides."""
        state = self.nodes[node.name]
        async with state.busy, self._starting, self._assigned(node.name) as assignment:
            log = self._log(state)
            state.settled.clear()
            state.gone.clear()
            state.expected_end, state.error, state.log_size = False, "", tail.size(log)
            self._set(state, "starting")
            state.handle = await self._driver.start(node, assignment, log)
            try:
                await self._fabric.attach(node, state.handle)
            except OrchestratorError:
                if not await _within(EXIT_NOTICE, state.gone):
                    raise  # the node lives, so the error is the link engine's
            if not await _within(REGISTER_TIMEOUT, state.settled):
                raise DriverError(
                    f"{node.name} did not register within {REGISTER_TIMEOUT:.0f} s: see `logs {node.name}`"
                )
            if state.handle is not None and not state.expected_end and state.state == "starting":
                self._set(state, "registered")
        if self.training and state.state == "registered":
            await self._go(state)

    @contextlib.asynccontextmanager
    async def _assigned(self, node: str) -> AsyncIterator[Path]:
        """The file with a node's assignment, which no host keeps after the start."""
        async with handed_out(self._assignments.get(node), self._directory.nodes / f"{node}.json") as file:
            try:
                yield file
            finally:
                if isinstance(self._driver, CopiesAssignments):
                    await self._driver.forget(node)

    async def _go(self, state: NodeState) -> None:
        await self._control.send(state.plan.name, {"type": "start"})
        self._set(state, "running")

    def _set(self, state: NodeState, name: str, detail: str = "") -> None:
        state.state = name
        self._changed.set()
        self._record.state(self._clock(), state.plan.name, name, detail)

    async def _hear_over(self, control: EndsRuns) -> None:
        self.finish(*await control.over)

    async def _hear_news(self, news: asyncio.Queue[HostChange | NodeMove | HostReadings]) -> None:
        while True:
            match await news.get():
                case HostReadings(host, readings, ago):
                    self._record.sensors(max(0.0, self._clock() - ago), host, readings)
                case HostChange() as change:
                    self._note_host(HOST, change._asdict())
                case NodeMove(node, source, target, reason, checkpoint):
                    data = {"node": node, "from": source, "to": target, "reason": reason}
                    self._note_host(MOVED, {**data, "checkpoint": None if checkpoint is None else round(checkpoint, 1)})

    def _note_host(self, name: str, data: dict[str, Any]) -> None:
        self._record.event(self._clock(), None, name, self.progress.round or None, data)
        self._say(in_words(name, data))

    # Messages of nodes

    async def _hear_messages(self) -> None:
        async for node, message in self._control.messages():
            if node in self.nodes:
                self.schedules.heard()
                if self._hearing.take(node, message):
                    self._follow(self.nodes[node], message)
                self.heard()

    def _follow(self, state: NodeState, message: dict[str, Any]) -> None:
        """React to a message that has been checked."""
        match message:
            case {"type": "register"}:
                state.settled.set()
            case {"type": "event", "name": "overrun", "asked": asked, "taken": taken}:
                self.progress.late[state.plan.name] += taken - asked
            case {"type": "event", "name": "round", "phase": "end"}:
                state.restarts = 0
            case {"type": "event", "name": "round", "round": round} if state.plan.leads:
                first, self.progress.round = round > self.progress.round, max(self.progress.round, round)
                self.faults.round_started(round)
                if first:
                    self.round_began(round)
            case {"type": "metric", "values": {"scope": "global", "accuracy": accuracy} as values} if state.plan.leads:
                self.progress.accuracy, self.progress.loss = _figure(accuracy), _figure(values.get("loss"))
            case {"type": "done"}:
                self._hear_done(state, message)
            case {"type": "failed"}:
                state.error = message["error"][:LONGEST_TEXT]
                if message.get("lasting"):
                    self.finish("failed", f"{state.plan.name} failed: {state.error}: see `logs {state.plan.name}`")

    def _hear_done(self, state: NodeState, message: dict[str, Any]) -> None:
        if not state.up and state.state != "crashed":
            return  # the message of a process that is over: the node has left, or is about to restart
        if message["reason"] == "stopped" and not self.ended.done():
            return  # the orchestrator has not asked it to stop: its exit is judged later
        state.expected_end = True
        self._set(state, "done")
        if state.plan.leads:
            if self._stop_reason != "accuracy":  # one of several leaders may reach it before all rounds are done
                self._stop_reason = message["reason"]
            self._finish_without_leaders()

    def _finish_without_leaders(self) -> None:
        leaders = [each for each in self.nodes.values() if each.plan.leads]
        if all(each.state in ("done", "left") for each in leaders):
            self.finish(self._stop_reason)

    # Exits of processes

    async def _hear_driver(self) -> None:
        await self._driver.lost.wait()
        self.finish("failed", f"the process that runs the nodes has ended: {self._driver.breakdown}")

    async def _hear_exits(self) -> None:
        while True:
            self._ended(await self._driver.exits.get())

    def _ended(self, exit: Exit) -> None:
        state = self.nodes[exit.node]
        if state.handle != exit.handle:
            return
        state.handle = None
        state.gone.set()
        state.settled.set()
        self._changed.set()
        if self.ended.done():
            if exit.code != 0:
                self._set(state, "crashed", self._detail(state, exit.code))
            return
        self.spawn(self._detach(state))
        if state.state == "done":
            return
        if state.expected_end:
            if state.state not in ("crashed", "left"):
                self._set(state, "left" if exit.code == 0 else "crashed", "fault")
        elif exit.code == 0 and state.up:
            self.spawn(self._hear_out(state))
        else:
            self._failed(state, exit.code)

    async def _hear_out(self, state: NodeState) -> None:
        """Wait for the last message of a node that exited with code 0. Without it, the node has failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD):
                while state.state != "done":
                    self._changed.clear()
                    await self._changed.wait()
        if state.up and state.handle is None:
            self._failed(state, 0)

    def _failed(self, state: NodeState, code: int) -> None:
        detail = self._detail(state, code)
        self._set(state, "crashed", detail)
        self._say(f"{state.plan.name} ended unexpectedly ({detail})")
        self._apply_restart_policy(state, detail)

    def _detail(self, state: NodeState, code: int) -> str:
        """How a node's process ended, and its error or the last line of its log."""
        how = text.how_ended(code)
        if state.error:
            return f"{how}: {state.error}"
        return tail.with_last_line(how, self._log(state), state.log_size)

    def _log(self, state: NodeState) -> Path:
        return self._directory.logs / f"{state.plan.name}.log"

    async def _detach(self, state: NodeState) -> None:
        async with state.busy:
            if state.handle is None:
                await self._fabric.detach(state.plan)

    def _apply_restart_policy(self, state: NodeState, detail: str) -> None:
        name = state.plan.name
        if self.plan.restart == "on-failure" and state.restarts < RESTART_LIMIT:
            state.restarts += 1
            self._set(state, "restarting", f"restart {state.restarts}")
            self.spawn(self._restart(state))
        else:
            self._give_up(state, f"{name} ended ({detail}) and is not restarted again: see `logs {name}`")

    def _give_up(self, state: NodeState, why: str) -> None:
        if state.plan.leads or not self.training:
            self.finish("failed", why)
        else:
            self._say(f"{state.plan.name} stays away")

    async def _restart(self, state: NodeState) -> None:
        await asyncio.sleep(RESTART_DELAY)
        if isinstance(self._driver, LosesHosts) and (why := await self._driver.ready(state.plan.name)) is not None:
            self._set(state, "crashed", why)
            self._give_up(state, f"{state.plan.name} ended with its host and cannot start again: {why}")
        elif not self.ended.done():
            await self._bring_back(state)

    async def _bring_back(self, state: NodeState) -> None:
        """Bring a node up. If its host is lost, wait for that host or another."""
        try:
            await self.bring_up(state.plan)
        except LostError:
            self.spawn(self._restart(state))

    # The actions of faults (`Powers` in orchestrator/run/injection.py)

    async def crash(self, node: str) -> None:
        state = self._running(node)
        state.expected_end = True
        await self._driver.kill(node)
        if state.state != "crashed":  # its exit may have been handled already
            self._set(state, "crashed", "fault")

    async def revive(self, node: str) -> None:
        state = self.nodes[node]
        if state.state == "crashed" and not self.ended.done():
            self._set(state, "restarting", "fault over")
            await self._bring_back(state)

    async def pause(self, node: str) -> None:
        state = self._running(node)
        if not isinstance(self._driver, CanPause):
            raise DriverError(f"the driver {self._driver.name} cannot pause {node}")
        await self._driver.pause(node)
        self._set(state, "paused", "fault")

    async def resume(self, node: str) -> None:
        state = self.nodes[node]
        if state.state == "paused" and isinstance(self._driver, CanPause):
            await self._driver.resume(node)
            self._set(state, "running", "resumed")

    async def slow(self, node: str, factor: float) -> None:
        self._running(node)
        await self._control.send(node, {"type": "slow", "factor": 1 / factor})  # of its speed

    async def join(self, node: str) -> None:
        state = self.nodes[node]
        if state.state != "planned":
            raise DriverError(f"{node} has joined already and is {state.state}")
        await self._bring_back(state)

    async def leave(self, node: str) -> None:
        state = self._running(node)
        state.expected_end = True
        await self._control.send(node, {"type": "leave"})
        self._set(state, "left", "fault")
        self._finish_without_leaders()

    def _running(self, node: str) -> NodeState:
        state = self.nodes[node]
        if state.state != "running":
            raise DriverError(f"{node} is not running but {state.state}")
        return state

    def _note_schedule(self, name: str, data: dict[str, Any]) -> None:
        self._record.event(self._clock(), None, name, self.progress.round or None, data)
        if name == "schedule failed":
            self._say(f"schedule: {data['link']} could not be changed ({data['error']})")

    def _note_fault(self, fault: Fault, phase: str, detail: str) -> None:
        round = self.progress.round or None
        self._record.fault(self._clock(), fault.id, fault.action, fault.target, phase, round, detail)
        by_hand = fault.id in self._by_hand
        if phase == "start" and by_hand:
            self.progress.faults_by_hand += 1
        elif phase == "start":
            self.progress.faults_started += 1
        over = {"start": "", "end": " is over", "skipped": " skipped"}[phase]
        what = "fault by hand" if by_hand else "fault"
        self._say(f"{what}: {fault.action} {fault.target}{over}{f' ({detail})' if detail else ''}")


def _figure(value: Any) -> float | None:
    return None if value is None else float(value)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait up to ``seconds`` for an event, and return whether it happened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
