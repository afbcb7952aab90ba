"""The nodes of a run under random ends and faults: what the orchestrator records is what their processes do."""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import booleans, sampled_from, sets

from node.runtime.clock import VirtualLoop
from orchestrator.drivers.base import Driver, Environment
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.context import RunContext
from orchestrator.run.display.snapshot import View
from orchestrator.run.nodes.processes import LAST_WORD, REGISTER_TIMEOUT, RESTART_LIMIT, NodeProcesses
from orchestrator.run.tasks import Works
from orchestrator.scenario.reading import parse
from tests.fakes.driver import FakeControl, FakeDriver
from tests.fakes.fabric import FakeFabric

SCENARIO = """\
name: played
algorithm: {{name: hierfavg, rounds: 5}}
topology: {{edges: 1, devices_per_edge: 3}}
restart: {restart}
faults:
  - {{at: 1s, node: device-0-2, action: join}}
"""
LEADER = "cloud"
LATE = "device-0-2"
DEVICES = ("device-0-0", "device-0-1", LATE)
NAMES = ("cloud", "edge-0", *DEVICES)
LAG = 0.3  # s that a signal takes, if any
GOODBYE = 0.05  # s from the request to leave to the end of a process
GRACE = 5.0  # s
MOMENT = 0.001  # s in which all that is due is handled

nodes = sampled_from(NAMES)
devices = sampled_from(DEVICES)
codes = sampled_from([1, -9, -11])
waits = sampled_from([0.1, 0.4, 0.7, 3.0])


@functools.cache
def planned(restart: str) -> Plan:
    return make_plan(parse(SCENARIO.format(restart=restart), "played.yaml"), None)


class Rows:
    """The part of a record that is needed here: ``crashes`` counts the recorded ends that no fault explains."""

    def __init__(self) -> None:
        self.crashes: Counter[str] = Counter()

    def state(self, t: float, node: str, state: str, detail: str = "") -> None:
        if state == "crashed" and detail != "fault":
            self.crashes[node] += 1


@dataclass
class Fault:
    """A fault of a node. ``handle``: the process that it met. ``begin``, ``end``: the tasks that start and end it."""

    verb: str
    node: str
    number: int
    factor: float
    handle: NodeHandle | None
    begin: asyncio.Task[bool]
    end: asyncio.Task[None] | None = None

    @property
    def starting(self) -> bool:
        return not self.begin.done()

    @property
    def took_effect(self) -> bool:
        return self.begin.done() and self.begin.result()

    @property
    def active(self) -> bool:
        return self.took_effect and self.end is None

    @property
    def ending(self) -> bool:
        return self.end is not None and not self.end.done()


class Processes(RuleBasedStateMachine):
    """``ends`` counts each node's own ends, and ``tries`` those since its last round. ``absent`` says why a node stays
    away; ``over``: the run must have ended."""

    @initialize(
        restart=sampled_from(["on-failure", "never"]),
        lag=sampled_from([0.0, LAG]),
        silent=sets(nodes, max_size=2),
        calm=booleans(),
        training=sampled_from([True, True, False]),
    )
    def bring_up(self, restart: str, lag: float, silent: set[str], calm: bool, training: bool) -> None:
        """``calm``: all faults are over before the run ends. ``training``: all nodes have come up at the start."""
        self.loop = VirtualLoop()
        self.folder = tempfile.TemporaryDirectory()
        self.calm = calm
        self.restart = restart
        self.training = False
        self.over = False
        self.ends: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.absent = {LATE: "planned"}
        self.asked: dict[str, NodeHandle] = {}  # the process that was asked to leave
        self.faults: list[Fault] = []
        self.joins = 0
        self.numbers = itertools.count()
        self.starts: Counter[str] = Counter()  # messages "start" before a node's latest process has registered
        self.registered: dict[str, NodeHandle] = {}
        self.run(self._open(planned(restart), lag))
        if not training:
            for node in silent:
                self._hush(node)
        self.coming = self.loop.create_task(self.processes.bring_up_all())
        self.run()
        if training:
            self.train()

    async def _open(self, plan: Plan, lag: float) -> None:
        directory = RunDirectory.create(Path(self.folder.name), "played")
        self.control = FakeControl()
        self.driver = FakeDriver(self.control)
        self.driver.lag = lag
        self.fabric = FakeFabric()
        self.rows = Rows()
        view = cast(View, SimpleNamespace(line=lambda line: None))
        self.context = RunContext(plan, directory, cast(Record, self.rows), self.loop.time, view)
        self.works = Works(directory)
        environment = Environment(cast(Driver, self.driver), self.fabric, self.control)
        self.processes = NodeProcesses(self.context, environment, self.works)
        self.processes._starting = asyncio.Semaphore(2)  # so that some nodes wait
        self.works.spawn(self._handle_messages())
        self.works.spawn(self._end_silence())
        self.processes.watch()

    async def _handle_messages(self) -> None:
        async for node, message in self.control.messages():
            state = self.processes.nodes[node]
            if message["type"] == "register":
                self.starts[node] = self._starts(node)
                self.registered[node] = self.driver.running[node]
                self.control.speeds.pop(node, None)
                state.settled.set()
            else:
                self.processes.done(state, message["reason"])

    async def _end_silence(self) -> None:
        """Every process registers in time."""
        while True:
            await asyncio.sleep(REGISTER_TIMEOUT / 3)
            for node in list(self.driver.silent):
                self._register(node)

    def run(self, work: Awaitable[Any] | None = None, seconds: float = 0.0) -> None:
        """Do ``work``, then let time pass."""

        async def both() -> None:
            if work is not None:
                await work
            await asyncio.sleep(seconds + MOMENT)

        self.loop.run_until_complete(both())

    def _starts(self, node: str) -> int:
        return self.control.sent.count((node, "start"))

    def _hush(self, node: str) -> None:
        """The next processes of a node do not register by themselves."""
        self.driver.silent.add(node)

    def _doomed(self, node: str) -> bool:
        """Whether a fault has ended, or is about to end, a node's present process."""
        handle = self.driver.running.get(node)
        if self.asked.get(node) == handle:
            return True
        crashes = self._faults("crash", node)
        return any(fault.starting or fault.took_effect for fault in crashes if fault.handle == handle)

    def _faults(self, verb: str, node: str) -> list[Fault]:
        return [fault for fault in self.faults if (fault.verb, fault.node) == (verb, node)]

    def _pausing(self, node: str) -> bool:
        """Whether a pause of a node, or its end, is on its way."""
        return any(fault.starting or fault.ending for fault in self._faults("pause", node))

    def _can_end(self, node: str) -> bool:
        return node in self.driver.running and not self._doomed(node)

    def _can_finish(self, node: str) -> bool:
        is_running = self.processes.nodes[node].state == "running"
        return is_running and self._can_end(node) and not self._pausing(node)

    def _own_end(self, node: str) -> None:
        """Expect what follows from the end of a node that no fault explains."""
        self.ends[node] += 1
        if self.restart == "on-failure" and self.tries[node] < RESTART_LIMIT:
            self.tries[node] += 1
            return
        self.absent[node] = "gave up"
        if node == LEADER or not self.training:
            self.over = True

    # What nodes do

    @rule(seconds=waits)
    def wait(self, seconds: float) -> None:
        self.run(seconds=seconds)

    @precondition(lambda self: not self.over)
    @rule(node=nodes)
    def hush(self, node: str) -> None:
        self._hush(node)

    @precondition(lambda self: not self.over)
    @rule(node=nodes)
    def register(self, node: str) -> None:
        self._register(node)
        self.run()

    def _register(self, node: str) -> None:
        self.driver.silent.discard(node)
        handle = self.driver.running.get(node)
        if handle is not None and self.registered.get(node) != handle:
            self.control.say(node, "register")

    @precondition(lambda self: not self.over)
    @rule(node=nodes, code=codes)
    def end(self, node: str, code: int) -> None:
        """A node fails, or somebody kills it."""
        if not self._can_end(node):
            return
        self.driver.end(node, code)
        self._own_end(node)
        self.run()

    @precondition(lambda self: not self.over)
    @rule(node=nodes, verb=sampled_from(["wait", "crash", "pause"]))
    def end_without_a_last_message(self, node: str, verb: str) -> None:
        """A node exits with code 0. Meanwhile no fault can do anything to it."""
        if not self._can_finish(node):
            return
        self.driver.end(node, 0)
        self.run()
        if verb != "wait":
            fault = self._begin(verb, node)
            self.run()
            assert not fault.took_effect
        self.run(seconds=LAST_WORD)
        self._own_end(node)

    @precondition(lambda self: not self.over)
    @rule(node=devices, exit_first=booleans())
    def finish(self, node: str, exit_first: bool) -> None:
        if not self._can_finish(node):
            return
        if exit_first:
            self.driver.end(node, 0)
            self.run(seconds=1.0)
        self.control.say(node, "done", reason="rounds")
        self.run()
        if not exit_first:
            self.driver.end(node, 0)
            self.run()
        self.absent[node] = "done"

    @precondition(lambda self: not self.over)
    @rule(node=nodes)
    def end_round(self, node: str) -> None:
        self.processes.nodes[node].restarts = 0
        self.tries[node] = 0

    @precondition(lambda self: not self.over and not self.training and self.coming.done())
    @rule()
    def train(self) -> None:
        self.training = True
        self.run(self.processes.train())

    # What faults do

    def _begin(self, verb: str, node: str, factor: float = 1.0) -> Fault:
        number = next(self.numbers)
        processes = self.processes
        act: Coroutine[Any, Any, None]
        match verb:
            case "crash":
                act = processes.crash(node)
            case "power-off":
                act = processes.crash(node, without_power=True)
            case "pause":
                act = processes.pause(node, number)
            case "slow":
                act = processes.slow(node, number, factor)
            case "leave":
                act = processes.leave(node)
            case "join":
                act = processes.join(node)
            case _:
                act = self._move(node)

        async def begin() -> bool:
            try:
                await act
            except OrchestratorError:
                return False
            return True

        kind = "crash" if verb == "power-off" else verb
        handle = self.driver.running.get(node)
        fault = Fault(kind, node, number, factor, handle, self.loop.create_task(begin()))
        self.faults.append(fault)
        return fault

    async def _move(self, node: str) -> None:
        state = self.processes.running(node)
        await self.processes.ask_to_move(state, "edge-1")
        await state.gone.wait()
        await self.processes.bring_back(state)

    @precondition(lambda self: self.training and not self.over)
    @rule(verb=sampled_from(["crash", "power-off", "pause"]), node=nodes)
    def inject(self, verb: str, node: str) -> None:
        self._begin(verb, node)
        self.run()

    @precondition(lambda self: self.training and not self.over and self.driver.lag)
    @rule(node=nodes, verb=sampled_from(["crash", "pause", "resume"]), code=codes)
    def end_meanwhile(self, node: str, verb: str, code: int) -> None:
        """A node ends by itself while its host still answers to the signal of a fault."""
        if not self._can_finish(node):
            return
        if verb == "crash":
            self.driver.unreachable.add(node)
        fault = self._begin("crash" if verb == "crash" else "pause", node)
        if verb == "resume":
            self.run(seconds=2 * LAG)
            assert fault.took_effect == (node not in self.driver.unreachable)
            if fault.took_effect:
                self._undo(fault)
        self.run(seconds=LAG / 2)
        if fault.starting or fault.ending:
            self.driver.end(node, code)
            if verb != "crash":
                self._own_end(node)
        self.run(seconds=LAG)
        assert fault.took_effect == (verb == "crash") or verb == "resume"

    @precondition(lambda self: self.training and not self.over and self.driver.lag)
    @rule(node=devices)
    def finish_meanwhile(self, node: str) -> None:
        """The last message of a node arrives while it is being paused."""
        if not self._can_finish(node):
            return
        fault = self._begin("pause", node)
        self.run()
        self.control.say(node, "done", reason="rounds")
        self.run(seconds=3 * LAG)
        assert not fault.took_effect
        assert node not in self.driver.paused
        self.driver.end(node, 0)
        self.absent[node] = "done"
        self.run()

    @precondition(lambda self: self.training and not self.over)
    @rule(node=nodes, code=codes)
    def pause_again(self, node: str, code: int) -> None:
        """A paused node ends and is paused again after its restart."""
        if not self._can_finish(node):
            return
        for ends in (True, False):
            if self._can_finish(node) and not self.over:
                self._begin("pause", node)
                self.run(seconds=2 * LAG)
                if ends:
                    self.driver.end(node, code)
                    self._own_end(node)
                    self.run(seconds=1.0)

    @precondition(lambda self: self.training and not self.over)
    @rule(node=nodes, factor=sampled_from([2.0, 4.0, 8.0]))
    def slow(self, node: str, factor: float) -> None:
        self._begin("slow", node, factor)
        self.run()

    @precondition(lambda self: self.training and not self.over)
    @rule(verb=sampled_from(["leave", "move"]), node=devices)
    def ask_to_end(self, verb: str, node: str) -> None:
        """A node that is asked to leave, or to move, ends soon."""
        if self._doomed(node) or self._pausing(node):
            return
        handle = self.driver.running.get(node)
        requests = self.control.sent.count((node, "leave"))
        self._begin(verb, node)
        self.run()
        if self.control.sent.count((node, "leave")) == requests:
            return
        assert handle is not None
        self.asked[node] = handle
        self.loop.call_later(GOODBYE, self.driver.end, node, 0)
        if verb == "leave":
            self.absent[node] = "left"

    @precondition(lambda self: self.training and not self.over and self.joins < 3)
    @rule()
    def join(self) -> None:
        self.joins += 1
        fault = self._begin("join", LATE)
        self.run()
        if self.absent.get(LATE) == "planned":
            assert fault.starting or fault.took_effect
            del self.absent[LATE]
        else:
            assert not fault.starting
            assert not fault.took_effect

    @precondition(lambda self: self._undoable())
    @rule(place=sampled_from(range(8)))
    def undo(self, place: int) -> None:
        """A fault is over."""
        faults = self._undoable()
        self._undo(faults[place % len(faults)])
        self.run()

    def _undoable(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.active and fault.verb in ("crash", "pause", "slow")]

    def _undo(self, fault: Fault) -> None:
        self.driver.unreachable.discard(fault.node)
        match fault.verb:
            case "crash":
                undo = self.processes.revive(fault.node)
            case "pause":
                undo = self.processes.resume(fault.node, fault.number)
            case _:
                undo = self.processes.speed_up(fault.node, fault.number)
        fault.end = self.loop.create_task(undo)

    @rule(node=nodes)
    def lose_host(self, node: str) -> None:
        """The host of a node does not answer any more, or does again."""
        self.driver.unreachable ^= {node}

    # What must hold

    @invariant()
    def states_are_those_of_processes(self) -> None:
        for name, state in self.processes.nodes.items():
            running = self.driver.running.get(name)
            assert state.handle == running
            assert self.over or self.fabric.attached.get(name) == running
            assert state.gone.is_set() or running is not None or not self.driver.started.count(name)
            if running is None:
                assert not state.up
            else:
                assert state.state not in ("planned", "done")
                assert self._doomed(name) or state.up or state.state == "starting"

    @invariant()
    def a_node_is_paused_while_a_fault_of_its_process_is_active(self) -> None:
        for name, state in self.processes.nodes.items():
            if self._pausing(name) or self._doomed(name):
                continue
            pauses = [fault for fault in self._faults("pause", name) if fault.active]
            assert (state.state == "paused") == any(fault.handle == state.handle for fault in pauses)
            assert (state.state == "paused") == (name in self.driver.paused)

    @invariant()
    def a_process_that_trains_was_started_once(self) -> None:
        for name, state in self.processes.nodes.items():
            started = self._starts(name) - self.starts[name]
            if state.state in ("running", "paused"):
                assert self.training
                assert self.registered[name] == state.handle
                assert started == 1
            elif state.state == "registered":
                assert not self.training
                assert started == 0

    @invariant()
    def processes_are_as_slow_as_their_faults(self) -> None:
        for name, state in self.processes.nodes.items():
            if state.state in ("running", "paused"):
                factors = [fault.factor for fault in self._faults("slow", name) if fault.active]
                assert self.control.speeds.get(name, 1.0) == 1 / math.prod(factors)

    @invariant()
    def own_ends_are_recorded_and_no_others(self) -> None:
        assert self.rows.crashes == self.ends
        assert self.works.ended.done() == self.over

    def teardown(self) -> None:
        try:
            if self.calm and not self.over:
                self._calm_down()
            self._stop()
        finally:
            self.run(self._close())
            self.loop.close()
            self.folder.cleanup()

    async def _close(self) -> None:
        await self.works.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _calm_down(self) -> None:
        """When all faults are over, every node is back that has a reason to be."""
        for name in NAMES:
            self._register(name)
        self.run(seconds=1.0)
        for fault in self._undoable():
            self._undo(fault)
        self.run(seconds=10.0)
        states = {"planned": "planned", "left": "left", "gave up": "crashed", "done": "done"}
        for name, state in self.processes.nodes.items():
            present = "running" if self.training else "registered"
            assert state.state == states.get(self.absent.get(name, ""), present)

    def _stop(self) -> None:
        """The run ends: nodes that are asked to stop do so, none starts, and none is missed."""
        self.driver.unreachable.clear()
        self.works.finish("rounds")
        started = list(self.driver.started)
        begun = self.loop.time()
        sent = len(self.control.sent)
        stopping = self.loop.create_task(self.processes.stop(GRACE))
        self.run(seconds=2 * LAG)
        for node, kind in self.control.sent[sent:]:
            if kind == "stop" and node in self.driver.running:
                self.control.say(node, "done", reason="stopped")
                self.driver.end(node, 0)
        self.run(stopping)
        assert self.loop.time() - begun < GRACE
        assert self.driver.started == started
        assert self.rows.crashes == self.ends


TestProcesses: Any = Processes.TestCase
TestProcesses.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
