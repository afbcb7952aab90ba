"""The processes of a run's nodes: how they start, how they end, and which are restarted.

The restart policy of the scenario decides about a node that ended unexpectedly. Faults act on nodes here
(orchestrator/run/control/injection.py). Every change of a node's state is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node.assignment import Assignment
from node.resources import processors
from orchestrator.drivers.base import CanPause, Environment, Exit, UsesHosts
from orchestrator.drivers.programs import Programs
from orchestrator.errors import DriverError, LostError, OrchestratorError
from orchestrator.fabric.base import KeepsNetworks, NodeHandle
from orchestrator.host import tail
from orchestrator.host.kernel.connections import connections_of
from orchestrator.planning.assignments import handed_out
from orchestrator.planning.plan import NodePlan
from orchestrator.record.events.nodes import Connections, OutOfMemory
from orchestrator.record.events.run import Note, StackInForce
from orchestrator.run.context import RunContext
from orchestrator.run.tasks import Works
from orchestrator.together import Tasks, within

EXIT_NOTICE = 2.0  # s to wait for the driver to report the exit of a process that is already gone
REGISTER_TIMEOUT = 180.0  # s from the start of a node's process to its registration; emulated processors are slow
RESTART_LIMIT = 3  # automatic restarts of one node without a round that it finished in between
RESTART_DELAY = 0.5  # s
LINGER = 15.0  # s after a node's end for the kernel to send what it holds for it
LOOK_EVERY = 0.1  # s
LAST_WORD = 10.0  # s after a node's exit for messages that it sent before: a busy orchestrator reads them late
AT_ONCE = max(4, 2 * processors())  # nodes brought up at the same time


@dataclass
class NodeState:
    """One node as the orchestrator sees it."""

    plan: NodePlan
    state: str = "planned"
    handle: NodeHandle | None = None  # None: it has no running process
    starts: int = 0  # processes that were started
    restarts: int = 0
    without_power: bool = False  # a fault ends its process and its network with it
    expected_end: bool = False  # a fault or the end of the run ends its process, not the node itself
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # its latest process has registered, or ended
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # its latest process has ended
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    error: str = ""  # the error that its latest process reported
    log_size: int = 0  # bytes, when its latest process started
    paused_by: int | None = None  # the fault that has paused it last
    slowness: dict[int, float] = field(default_factory=dict)  # how many times as long its steps take, by fault

    @property
    def up(self) -> bool:
        return self.state in ("registered", "running", "paused")

    @property
    def name(self) -> str:
        return self.plan.name

    def precedes(self, message: Mapping[str, Any]) -> bool:
        """Whether a process before the latest one sent this registration. It is read late if the orchestrator is
        busy."""
        start = message.get("start")
        return message.get("type") == "register" and type(start) is int and 0 < start < self.starts

    @property
    def ending(self) -> bool:
        """Whether its end is awaited. The last message of a node that ended in order may arrive after its exit."""
        if self.up:
            return True
        return self.handle is not None and self.state != "starting"


class NodeProcesses:
    """The nodes of a run by name, and the start and end of their processes."""

    def __init__(self, run: RunContext, environment: Environment, works: Works) -> None:
        self._plan = run.plan
        self._past = run.past
        self.nodes: dict[str, NodeState] = {}
        for node in run.plan.nodes:
            state = "left" if node.name in run.past.left else "planned"
            self.nodes[node.name] = NodeState(node, state)
        self._training = False  # whether training has started
        self._works = works
        self._directory = run.directory
        self._record = run.record
        self._clock = run.clock
        self._record_event = run.record_event
        self._show = run.view.line
        self._control = environment.control
        self._driver = environment.driver
        self._fabric = environment.fabric
        self._assignments = dict(environment.assignments)
        self._starting = asyncio.Semaphore(AT_ONCE)
        self._stop_reason = "rounds"
        self._changed = asyncio.Event()

    def watch(self) -> None:
        """Start to watch the driver, and the exits of processes."""
        self._works.spawn(self._handle_exits())
        self._works.spawn(self._handle_breakdown())

    async def bring_up_all(self) -> None:
        """Start, attach and register every node that is present from the start. Waits for restarts as well."""
        left = self._past.left
        joined = self._past.joined
        present = []
        for node in self._plan.nodes:
            has_joined = node.joins is None or node.name in joined
            if has_joined and node.name not in left:
                present.append(node)

        def all_settled() -> bool:
            for node in present:
                if self.nodes[node.name].state in ("restarting", "starting"):
                    return False
            return True

        tasks = Tasks()
        try:
            starts = []
            for node in present:
                bringing_up = self.bring_up(node)
                starts.append(tasks.start(bringing_up))
            await asyncio.gather(*starts)
            await self._until(all_settled)
        finally:
            await tasks.cancel()

    async def _until(self, done: Callable[[], bool]) -> None:
        """Wait until the states of nodes are so."""
        while not done():
            self._changed.clear()
            await self._changed.wait()

    async def train(self) -> None:
        """Let every registered node start training. Nodes that register later start immediately."""
        self._training = True
        for state in self.nodes.values():
            if state.state == "registered":
                await self._start_training(state)

    async def stop(self, grace: float) -> None:
        """Ask every node to end, and wait up to ``grace`` seconds for them. The driver's close ends the others, and
        immediately those that have not registered: they take no requests."""
        driver = self._driver
        for state in self.nodes.values():
            state.expected_end = True
            if state.state == "paused" and isinstance(driver, CanPause):
                with contextlib.suppress(OrchestratorError):  # it has ended; the run has not failed by that
                    await driver.resume(state.name)
            if state.up:
                await self._send(state, "stop")

        def all_ended() -> bool:
            return not any(state.ending for state in self.nodes.values())

        ended = self._until(all_ended)
        await within(grace, ended)

    async def _send(self, state: NodeState, kind: str) -> None:
        """Send a node a message without content."""
        await self._control.send(state.name, {"type": kind})

    async def bring_up(self, node: NodePlan) -> None:
        """Start a node and wait until it has registered. If it ends before, the restart policy decides."""
        state = self.nodes[node.name]
        async with state.busy, self._starting, self._assigned(state) as assignment:
            log = self._log(state)
            state.settled.clear()
            state.gone.clear()
            state.expected_end = False
            state.without_power = False
            state.error = ""
            state.log_size = tail.size(log)
            self._set(state, "starting")
            state.handle = await self._driver.start(node, assignment, log)
            self._hold(state)
            await self._attach(state, node, state.handle)
            has_settled = await within(REGISTER_TIMEOUT, state.settled.wait())
            if not has_settled:
                await self._end_unregistered(state)
            runs = state.handle is not None and not state.expected_end
            if runs and state.state == "starting":
                self._set(state, "registered")
        if self._training and state.state == "registered":
            await self._start_training(state)

    async def _end_unregistered(self, state: NodeState) -> None:
        """End the process of a node that has not registered in time. Before the training this is an error of the run.
        Later it is an end like any other, about which the restart policy decides."""
        overdue = f"did not register within {REGISTER_TIMEOUT:.0f} s"
        advice = f"{state.name} {overdue}: see `logs {state.name}`"
        if not self._training:
            raise DriverError(advice)
        state.error = overdue
        with contextlib.suppress(OrchestratorError):  # it has just ended, or its host does not answer
            await self._driver.kill(state.name)
        has_ended = await within(EXIT_NOTICE, state.gone.wait())
        if not has_ended:
            self._set(state, "crashed", overdue)
            self._give_up(state, advice)

    async def _attach(
        self,
        state: NodeState,
        node: NodePlan,
        handle: NodeHandle,
    ) -> None:
        try:
            stack = await self._fabric.attach(node, handle)
            self._record_stack(node, stack)
        except OrchestratorError:
            has_ended = await within(EXIT_NOTICE, state.gone.wait())
            if not has_ended:
                raise  # the node runs, so the error is the link engine's

    def _hold(self, state: NodeState) -> None:
        if isinstance(self._control, Programs):
            self._control.hold(state.name, state.handle)

    def _record_stack(self, node: NodePlan, stack: Mapping[str, str]) -> None:
        """Record the TCP settings in force at a node with settings of its own, and what its kernel refused."""
        if not stack:
            return
        in_force = StackInForce(node.name, stack)
        self._record_event(in_force)
        for refused in in_force.refused(node.stack):
            note = f"TCP of {node.name} has {refused}, which its kernel refuses"
            self._record_event(Note(note))

    @contextlib.asynccontextmanager
    async def _assigned(self, state: NodeState) -> AsyncIterator[Path]:
        """The file with the assignment of a node's next process, which no host keeps after the start."""
        node = state.name
        state.starts += 1
        assignment = self._assignments.get(node)
        if assignment is not None:
            assignment = replace(assignment, start=state.starts)
        path = self._directory.nodes / f"{node}.json"
        with handed_out(assignment, path) as file:
            try:
                yield file
            finally:
                if isinstance(self._driver, UsesHosts):
                    await self._driver.forget(node)

    async def _start_training(self, state: NodeState) -> None:
        await self._send(state, "start")
        if state.slowness:
            await self._set_slowness(state)
        self._set(state, "running")

    def _set(
        self,
        state: NodeState,
        name: str,
        detail: str = "",
    ) -> None:
        state.state = name
        self._changed.set()
        t = self._clock()
        self._record.state(t, state.name, name, detail)

    def done(self, state: NodeState, reason: str) -> None:
        """React to the last message of a node. ``reason``: why its role ended."""
        if not state.up and state.state != "crashed":
            return  # the message of a process that is over: the node has left, or is about to restart
        if reason == "stopped" and not self._works.ended.done():
            return  # the orchestrator has not asked it to stop: its exit is judged later
        state.expected_end = True
        self._set(state, "done")
        if not state.plan.leads:
            return
        # One of several leaders may reach the accuracy or the target before all rounds are done.
        if self._stop_reason not in ("accuracy", "target"):
            self._stop_reason = reason
        self._finish_without_leaders()

    def _finish_without_leaders(self) -> None:
        for state in self.nodes.values():
            has_ended = state.state in ("done", "left")
            if state.plan.leads and not has_ended:
                return
        self._works.finish(self._stop_reason)

    # Exits of processes

    async def _handle_breakdown(self) -> None:
        await self._driver.lost.wait()
        self._works.finish("failed", f"the process that runs the nodes has ended: {self._driver.breakdown}")

    async def _handle_exits(self) -> None:
        while True:
            exit = await self._driver.exits.get()
            self._ended(exit)

    def _ended(self, exit: Exit) -> None:
        state = self.nodes[exit.node]
        if state.handle != exit.handle:
            return
        state.handle = None
        self._hold(state)
        state.gone.set()
        state.settled.set()
        self._changed.set()
        if self._works.ended.done():
            if exit.code != 0 and state.state not in ("crashed", "left"):
                detail = self._detail(state, exit)
                self._set(state, "crashed", detail)
            return
        lingers = not state.without_power
        detaching = self._detach(state, exit.handle, lingers=lingers)
        self._works.spawn(detaching)
        if state.state == "done":
            return
        if state.expected_end:
            if state.state not in ("crashed", "left", "restarting"):
                ended = "left" if exit.code == 0 else "crashed"
                self._set(state, ended, "fault")
        elif exit.code == 0 and state.up:
            waiting = self._wait_for_last_message(state, exit)
            self._works.spawn(waiting)
        else:
            self._failed(state, exit)

    async def _wait_for_last_message(self, state: NodeState, exit: Exit) -> None:
        """Wait for the last message of a node that exited with code 0. Without it, the node has failed."""
        done = self._until(lambda: state.state == "done")
        await within(LAST_WORD, done)
        if state.up and state.handle is None:
            self._failed(state, exit)

    def _failed(self, state: NodeState, exit: Exit) -> None:
        name = state.name
        detail = self._detail(state, exit)
        if exit.out_of_memory:
            t = self._clock()
            out_of_memory = OutOfMemory(state.plan.hardware.memory)
            self._record.add_event(t, out_of_memory, node=name)
        self._set(state, "crashed", detail)
        self._show(f"{name} ended unexpectedly ({detail})")
        self._apply_restart_policy(state, detail)

    def _detail(self, state: NodeState, exit: Exit) -> str:
        """How a node's process ended, and its error or the last line of its log."""
        how = exit.how(state.plan.hardware.memory)
        if state.error:
            return f"{how}: {state.error}"
        if exit.out_of_memory:
            return how  # a node prints nothing when it is killed
        log = self._log(state)
        return tail.with_last_line(how, log, state.log_size)

    def _log(self, state: NodeState) -> Path:
        return self._directory.logs / f"{state.name}.log"

    async def _detach(
        self,
        state: NodeState,
        handle: NodeHandle,
        *,
        lingers: bool,
    ) -> None:
        fabric = self._fabric
        if isinstance(fabric, KeepsNetworks) and lingers:
            sending = self._let_send(fabric, state, handle)
            await within(LINGER, sending)
        async with state.busy:
            if state.handle is None:
                await fabric.detach(state.plan)
        if isinstance(fabric, KeepsNetworks):
            with contextlib.suppress(OrchestratorError):  # then the namespace ends with the run
                await fabric.forget(handle)

    async def _let_send(
        self,
        fabric: KeepsNetworks,
        state: NodeState,
        handle: NodeHandle,
    ) -> None:
        """Wait until a node that has ended has sent what its kernel holds, or starts again."""
        with contextlib.suppress(OrchestratorError):
            sending = await fabric.unsent(handle)
            while sending and state.handle is None:
                await asyncio.sleep(LOOK_EVERY)  # the kernel reports no end
                sending = await fabric.unsent(handle)

    def _apply_restart_policy(self, state: NodeState, detail: str) -> None:
        name = state.name
        restarts_failed = self._plan.restart == "on-failure"
        if restarts_failed and state.restarts < RESTART_LIMIT:
            state.restarts += 1
            self._set(state, "restarting", f"restart {state.restarts}")
            self._works.spawn(self._restart(state))
        else:
            self._give_up(state, f"{name} ended ({detail}) and is not restarted again: see `logs {name}`")

    def _give_up(self, state: NodeState, why: str) -> None:
        if state.plan.leads or not self._training:
            self._works.finish("failed", why)
        else:
            self._show(f"{state.name} stays away")

    async def _restart(self, state: NodeState) -> None:
        name = state.name
        await asyncio.sleep(RESTART_DELAY)
        obstacle = None
        if isinstance(self._driver, UsesHosts):
            obstacle = await self._driver.ready(name)
        if obstacle is not None:
            self._set(state, "crashed", obstacle)
            self._give_up(state, f"{name} ended with its host and cannot start again: {obstacle}")
        else:
            await self.bring_back(state)

    async def bring_back(self, state: NodeState) -> None:
        """Bring a node up unless the run has ended. If its host is lost, wait for that host or another."""
        if self._works.ended.done():
            return
        try:
            await self.bring_up(state.plan)
        except LostError:
            self._works.spawn(self._restart(state))

    # The actions of faults. Each raises OrchestratorError if it is not possible now

    async def crash(self, node: str, *, without_power: bool = False) -> None:
        """Kill the processes of a node. ``without_power``: its network ends with them, and sends nothing more."""
        state = self.running(node)
        state.expected_end = True
        state.without_power = without_power
        try:
            await self._driver.kill(node)
        except OrchestratorError:
            if state.state != "crashed":
                state.expected_end = False  # its next end is its own
                state.without_power = False
                raise
        if state.state != "crashed":  # its exit may have been handled already
            self._set(state, "crashed", "fault")

    @property
    def programs(self) -> Programs:
        """The programs of the run. DriverError without any."""
        if not isinstance(self._control, Programs):
            raise DriverError("the nodes of this run have no programs")
        return self._control

    def record_connections(self) -> None:
        """Record the TCP connections of the nodes on this host: what the programs of an unfinished run wait for."""
        for name, state in self.nodes.items():
            handle = state.handle
            if handle is None or handle.host:
                continue
            connections = connections_of(handle.pid)
            if connections:
                self._record.add_event(self._clock(), Connections(connections), node=name)

    async def revive(self, node: str) -> None:
        """Restart a node that ``crash`` has ended, after the exit of its former process."""
        state = self.nodes[node]
        if state.handle is not None and state.state == "crashed":
            await state.gone.wait()
        run_has_ended = self._works.ended.done()
        if state.state == "crashed" and not run_has_ended:
            self._set(state, "restarting", "fault over")
            await self.bring_back(state)

    async def pause(self, node: str, fault: int) -> None:
        """Pause a node until `resume` with the same fault."""
        state = self.running(node)
        driver = self._driver
        if not isinstance(driver, CanPause):
            raise DriverError(f"the driver {driver.name} cannot pause {node}")
        handle = state.handle
        await driver.pause(node)
        if state.handle != handle:
            raise DriverError(f"{node} ended while it was being paused")
        if state.state != "running":  # its last message has arrived
            await driver.resume(node)
            raise DriverError(f"{node} is {state.state}")
        state.paused_by = fault
        self._set(state, "paused", "fault")

    async def resume(self, node: str, fault: int) -> None:
        """Resume a node that this fault has paused. Does nothing if that process has ended."""
        state = self.nodes[node]
        driver = self._driver
        if state.state != "paused" or state.paused_by != fault:
            return
        assert isinstance(driver, CanPause)
        await driver.resume(node)
        if state.state == "paused":  # it may have ended meanwhile
            self._set(state, "running", "resumed")

    async def slow(
        self,
        node: str,
        fault: int,
        factor: float,
    ) -> None:
        """Make each step of a node, also of its later processes, this many times as long until `speed_up`."""
        state = self.running(node)
        state.slowness[fault] = factor
        await self._set_slowness(state)

    async def speed_up(self, node: str, fault: int) -> None:
        state = self.nodes[node]
        del state.slowness[fault]
        if state.up:
            await self._set_slowness(state)

    async def _set_slowness(self, state: NodeState) -> None:
        factors = state.slowness.values()
        factor = 1 / math.prod(factors)  # of its speed
        message = {"type": "slow", "factor": factor}
        await self._control.send(state.name, message)

    async def join(self, node: str) -> None:
        state = self.nodes[node]
        if state.state != "planned":
            raise DriverError(f"{node} has joined already and is {state.state}")
        if state.busy.locked():  # its start waits for those of other nodes
            raise DriverError(f"{node} is about to join")
        await self.bring_back(state)

    async def ask_to_move(self, state: NodeState, edge: str) -> None:
        """Ask a node to end in order. `bring_back` starts it again."""
        state.expected_end = True
        await self._send(state, "leave")
        self._set(state, "restarting", f"moves to {edge}")

    async def leave(self, node: str) -> None:
        state = self.running(node)
        state.expected_end = True
        await self._send(state, "leave")
        self._set(state, "left", "fault")
        self._finish_without_leaders()

    def reassign(self, change: Callable[[Assignment], Assignment]) -> None:
        """Change the assignments that later processes get."""
        changed = {}
        for name, assignment in self._assignments.items():
            changed[name] = change(assignment)
        self._assignments = changed

    def running(self, node: str) -> NodeState:
        """The state of a node that runs; DriverError for any other."""
        state = self.nodes[node]
        if state.state != "running":
            raise DriverError(f"{node} is not running but {state.state}")
        return state
