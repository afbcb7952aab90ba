"""A run in progress on a virtual clock: nodes, driver and links are played by the test, the record is real."""

from __future__ import annotations

import asyncio
import errno
import inspect
import json
import math
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.messaging.control import ControlServer
from node.runtime.clock import run_virtual
from orchestrator.drivers.base import Driver, Environment
from orchestrator.errors import DriverError, FabricError, HostError, RunError
from orchestrator.planning.assignments import assignments
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.nodes import LinesDropped, ProgramEnded
from orchestrator.record.rows import Event, FaultSpan, State
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.summary import summary
from orchestrator.run.context import RunContext
from orchestrator.run.control.manual import Commands
from orchestrator.run.display.snapshot import View
from orchestrator.run.nodes.messages import MessageRecorder
from orchestrator.run.nodes.processes import EXIT_NOTICE, LAST_WORD, REGISTER_TIMEOUT, RESTART_DELAY, RESTART_LIMIT
from orchestrator.run.nodes.session import Session
from orchestrator.run.resume import NOTHING, Past
from orchestrator.scenario.reading import parse
from tests.fakes.driver import FakeControl, FakeDriver
from tests.fakes.fabric import FakeFabric
from tests.texts import containing
from tests.virtual import virtual

SCENARIO = """\
name: played
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 1, devices_per_edge: 2}
"""


class Stage:
    """Everything a session needs."""

    def __init__(
        self,
        tmp_path: Path,
        scenario: str,
        past: Past = NOTHING,
        driver_of: Callable[[FakeControl], FakeDriver] = FakeDriver,
    ) -> None:
        self.plan: Plan = make_plan(parse(scenario, "played.yaml"), None)
        self.directory = RunDirectory.create(tmp_path, "played")
        self.record = Record.create(self.directory.path, json.dumps(self.plan.to_json()), {})
        self.control = FakeControl()
        self.driver = driver_of(self.control)
        self.fabric = FakeFabric()
        self.lines: list[str] = []
        self.view = cast(View, SimpleNamespace(line=self.lines.append))
        run = RunContext(self.plan, self.directory, self.record, asyncio.get_running_loop().time, self.view, past)
        self.story = run.story
        told = {} if self.plan.programs else assignments(self.plan, self.directory, RunKeys.none(), address="")
        driver = cast(Driver, self.driver)
        self.session = Session(
            run, Environment(driver, self.fabric, cast(ControlServer, self.control), assignments=told)
        )

    async def train(self) -> None:
        self.session.listen()
        await self.session.processes.bring_up_all()
        await self.session.start_training()

    def states(self, node: str) -> list[str]:
        return [state.state for state in self.all_states(node)]

    def details(self, node: str, state: str) -> list[str]:
        return [each.detail for each in self.all_states(node) if each.state == state]

    def all_states(self, node: str) -> list[State]:
        with History.open(self.directory.path) as history:
            return [state for state in history.states() if state.node == node]

    def events(self, *names: str) -> list[Event]:
        self.record.flush()
        with History.open(self.directory.path) as history:
            return history.events(*names)


Play = Callable[[Callable[[Stage], Awaitable[None]], str], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(act: Callable[[Stage], Awaitable[None]], scenario: str = SCENARIO) -> None:
        async def main() -> None:
            stage = Stage(tmp_path, scenario)
            try:
                await act(stage)
            finally:
                await stage.session.close()
                stage.record.close()
            with History.open(stage.directory.path) as history:
                read = Story.of(history)
            for fact in ("states", "rounds", "probes", "overruns", "metric_names"):
                assert getattr(stage.story, fact)() == getattr(read, fact)(), fact
            heard, spans = ([span._replace(planned={}) for span in each.faults()] for each in (stage.story, read))
            assert heard == spans

        run_virtual(main())

    return run


def played(scenario: str = SCENARIO) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Play], None]]:
    """Play a test on a stage with this scenario."""
    return lambda act: lambda play: play(act, scenario)


@played()
async def test_nodes_come_up_and_are_started(stage: Stage) -> None:
    await stage.train()
    assert stage.fabric.attached.keys() == {"cloud", "edge-0", "device-0-0", "device-0-1"}
    assert sorted(stage.control.sent) == sorted((node, "start") for node in stage.fabric.attached)
    assert stage.states("edge-0") == ["starting", "registered", "running"]


@played()
async def test_the_run_ends_when_its_leader_is_done(stage: Stage) -> None:
    await stage.train()
    stage.control.say("cloud", "done", reason="accuracy")
    assert (await stage.session.ended).reason == "accuracy"


@played()
async def test_a_node_that_fails_is_restarted_and_started(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(10.0)
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
    assert stage.driver.started.count("device-0-0") == 2
    assert "device-0-0" in stage.fabric.attached


@played(SCENARIO + "hardware: {device: {class: raspberry-pi-3, memory: 512mib}}\n")
async def test_a_node_that_ran_out_of_memory_is_restarted_and_its_limit_recorded(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", -9, out_of_memory=True)
    await asyncio.sleep(10.0)
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
    assert stage.details("device-0-0", "crashed") == [containing("its limit is 512mib")]
    (event,) = stage.events("out of memory")
    assert (event.node, event.data) == ("device-0-0", {"limit": 512 * 2**20})


@played(SCENARIO + "stack: {device: {congestion: bbr, retries2: 8}, edge: {retries2: 9}}\n")
async def test_tcp_settings_in_force_are_recorded_and_a_refused_one_is_noted(stage: Stage) -> None:
    """The fake link engine has CUBIC alone."""
    await stage.train()
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(10.0)
    found = [event.data for event in stage.events("stack")]
    device = {"tcp_congestion_control": "cubic", "tcp_retries2": "8"}
    assert {str(each["node"]): each for each in found} == {
        "edge-0": {"node": "edge-0", "tcp_retries2": "9"},
        "device-0-0": {"node": "device-0-0", **device},
        "device-0-1": {"node": "device-0-1", **device},
    }
    assert len(found) == 4  # one device has restarted
    notes = sorted({event.data["text"] for event in stage.events("note")})
    assert notes == [containing(f"TCP of {node} has", "cubic and not bbr") for node in ("device-0-0", "device-0-1")]


@played()
async def test_no_assignment_outlasts_the_start_of_its_node(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(10.0)
    assert len(stage.driver.started) == 5  # four nodes, one of them twice
    assert None not in stage.driver.assignments.values()
    assert list(stage.directory.nodes.iterdir()) == []  # the secret keys


@played()
async def test_a_node_that_fails_again_and_again_stays_away(stage: Stage) -> None:
    await stage.train()
    for _ in range(RESTART_LIMIT + 1):
        stage.driver.end("device-0-0", 1)
        await asyncio.sleep(10.0)
    assert stage.driver.started.count("device-0-0") == RESTART_LIMIT + 1
    assert stage.states("device-0-0")[-1] == "crashed"
    assert not stage.session.ended.done()


@played(SCENARIO + "restart: never\n")
async def test_a_leader_that_stays_away_ends_the_run_with_its_reason(stage: Stage) -> None:
    await stage.train()
    stage.control.say("cloud", "failed", error="no memory left")
    await asyncio.sleep(1.0)
    stage.driver.end("cloud", 1)
    ending = await stage.session.ended
    assert ending.reason == "failed"
    assert ending.error == containing("cloud ended (exit code 1: no memory left)", "`logs cloud`")


@played()
async def test_an_error_that_a_node_reports_ends_the_run_at_once(stage: Stage) -> None:
    """A node that raises an error would raise it again; one that was ended from outside would not."""
    await stage.train()
    stage.control.say("device-0-0", "failed", error="Terminated: from outside", lasting=False)
    await asyncio.sleep(1)
    assert not stage.session.ended.done()
    stage.control.say("device-0-0", "failed", error="mine.py:3: ValueError: lost", lasting=True)
    ending = await stage.session.ended
    assert ending.reason == "failed"
    assert ending.error == "device-0-0 failed: mine.py:3: ValueError: lost: see `logs device-0-0`"


@played()
async def test_the_end_of_the_driver_ends_the_run(stage: Stage) -> None:
    await stage.train()
    stage.driver.lost.set()
    assert (await stage.session.ended).reason == "failed"


@played(SCENARIO + "faults:\n  - {at: 5s, node: device-0-1, action: crash, for: 8s}\n")
async def test_a_crash_by_a_fault_is_not_a_failure(stage: Stage) -> None:
    await stage.train()
    await asyncio.sleep(20.0)
    assert stage.states("device-0-1")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
    with History.open(stage.directory.path) as history:
        (node,) = [state for state in history.states() if state.state == "crashed"]
    assert (node.t, node.detail) == (5.0, "fault")
    assert stage.details("device-0-1", "restarting") == ["fault over"]


SLOW = """\
faults:
  - {at: 1s, node: device-0-0, action: slow, factor: 2, for: 20s}
  - {at: 2s, node: device-0-0, action: slow, factor: 4, for: 8s}
  - {at: 9s, node: device-0-0, action: pause, for: 2s}
  - {at: 10s, node: device-0-0, action: slow, factor: 8}
"""


@played(SCENARIO + SLOW)
async def test_the_factors_of_a_slow_node_multiply_also_in_its_next_process_and_while_it_is_paused(
    stage: Stage,
) -> None:
    """The fourth fault is skipped: at 10 s the node is paused."""
    await stage.train()
    for until, speed in ((1.5, 1 / 2), (3.0, 1 / 8)):
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        assert stage.control.speeds == {"device-0-0": speed}
    stage.control.speeds.clear()
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(2.0)
    assert stage.control.speeds == {"device-0-0": 1 / 8}
    for until, speed in ((12.0, 1 / 2), (22.0, 1.0)):
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        assert stage.control.speeds == {"device-0-0": speed}


@played(SCENARIO + "faults:\n  - {round: 3, node: device-0-1, action: join}\n")
async def test_a_late_joiner_comes_when_it_is_due(stage: Stage) -> None:
    await stage.train()
    assert "device-0-1" not in stage.fabric.attached
    stage.control.say("cloud", "event", name="round", round=3, phase="start")
    await asyncio.sleep(1.0)
    assert stage.states("device-0-1")[-1] == "running"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (RunError("it is broken"), "it is broken"),
        (KeyError("edge-0"), "KeyError: 'edge-0' (a bug of edgebed"),
    ],
)
def test_a_broken_helper_ends_the_run_with_one_error(play: Play, error: Exception, words: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()

        async def broken() -> None:
            raise error

        stage.session.spawn(broken())
        ending = await stage.session.ended
        assert ending.reason == "failed"
        assert words in (ending.error or "")

    play(act, SCENARIO)


@played()
async def test_a_node_that_is_killed_before_it_registers_is_restarted_at_once(stage: Stage) -> None:
    stage.driver.early["edge-0"] = [-9]
    await stage.train()
    assert asyncio.get_running_loop().time() < 2 * RESTART_DELAY
    assert stage.states("edge-0") == ["starting", "crashed", "restarting", "starting", "registered", "running"]
    assert stage.details("edge-0", "crashed") == ["SIGKILL; its log ends with: ValueError: of no use"]
    assert stage.details("edge-0", "restarting") == ["restart 1"]
    assert "edge-0" in stage.fabric.attached


@pytest.mark.parametrize(("restart", "starts"), [("on-failure", 1 + RESTART_LIMIT), ("never", 1)])
def test_a_node_that_always_ends_before_it_registers_ends_the_run(play: Play, restart: str, starts: int) -> None:
    async def act(stage: Stage) -> None:
        stage.driver.early["device-0-0"] = [1] * 10
        stage.session.listen()
        coming = asyncio.create_task(stage.session.processes.bring_up_all())
        ending = await stage.session.ended
        assert ending.error == containing("device-0-0 ended (exit code 1", "ValueError: of no use")
        await coming
        assert asyncio.get_running_loop().time() < 10
        assert stage.driver.started.count("device-0-0") == starts

    play(act, SCENARIO + f"restart: {restart}\n")


@played()
async def test_a_node_that_has_not_registered_is_not_waited_for_at_the_end(stage: Stage) -> None:
    stage.driver.silent.add("device-0-0")
    stage.session.listen()
    coming = asyncio.create_task(stage.session.processes.bring_up_all())
    await asyncio.sleep(0.1)
    for node in ("cloud", "edge-0", "device-0-1"):
        stage.driver.end(node, 0)
    start = asyncio.get_running_loop().time()
    await stage.session.stop_nodes(5.0)
    assert asyncio.get_running_loop().time() - start < 1.0
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)


REVIVAL = "faults:\n  - {at: 5s, node: device-0-1, action: crash, for: 5s}\n"


@pytest.mark.parametrize(("restart", "starts"), [("on-failure", 2 + RESTART_LIMIT), ("never", 2)])
def test_a_revived_node_that_does_not_register_ends_and_the_restart_policy_decides(
    play: Play, restart: str, starts: int
) -> None:
    """It is killed after the time to register, and gets its restarts. Then it stays away, with the reason."""

    async def act(stage: Stage) -> None:
        await stage.train()
        stage.driver.silent.add("device-0-1")
        await asyncio.sleep(10.0 + (starts - 1) * (REGISTER_TIMEOUT + 2 * RESTART_DELAY))
        assert stage.states("device-0-1")[-1] == "crashed"
        reason = stage.details("device-0-1", "crashed")[-1]
        assert reason == containing("SIGKILL", f"did not register within {REGISTER_TIMEOUT:.0f} s")
        assert stage.driver.started.count("device-0-1") == starts
        assert "device-0-1" not in stage.driver.running
        assert not stage.session.ended.done()

    play(act, SCENARIO + REVIVAL + f"restart: {restart}\n")


@played(SCENARIO + REVIVAL)
async def test_a_revived_node_that_cannot_be_killed_stays_away_with_the_reason(stage: Stage) -> None:
    await stage.train()
    await asyncio.sleep(6.0)
    stage.driver.silent.add("device-0-1")
    stage.driver.unreachable.add("device-0-1")
    await asyncio.sleep(5.0 + REGISTER_TIMEOUT + EXIT_NOTICE)
    assert stage.states("device-0-1")[-1] == "crashed"
    assert stage.details("device-0-1", "crashed")[-1] == containing("did not register")
    assert not stage.session.ended.done()


@played()
async def test_a_node_that_does_not_register_at_the_start_ends_the_run(stage: Stage) -> None:
    stage.driver.silent.add("device-0-1")
    stage.session.listen()
    with pytest.raises(DriverError, match="device-0-1 did not register"):
        await stage.session.processes.bring_up_all()


@played()
async def test_the_registration_of_a_former_process_does_not_count_for_the_next_one(stage: Stage) -> None:
    """It is read when the next process has started and has not registered."""
    await stage.train()
    stage.driver.silent.add("device-0-1")
    stage.driver.end("device-0-1", -9)
    await asyncio.sleep(2 * RESTART_DELAY)
    stage.control.say("device-0-1", "register", start=1)
    await asyncio.sleep(1.0)
    assert stage.states("device-0-1")[-1] == "starting"
    stage.control.say("device-0-1", "register", start=2)
    await asyncio.sleep(1.0)
    assert stage.states("device-0-1")[-2:] == ["registered", "running"]


@played()
async def test_each_process_of_a_node_gets_its_number(stage: Stage) -> None:
    await stage.train()
    first = json.loads(stage.driver.assignments["device-0-1"] or b"")
    stage.driver.end("device-0-1", -9)
    await asyncio.sleep(2 * RESTART_DELAY)
    second = json.loads(stage.driver.assignments["device-0-1"] or b"")
    assert (first["start"], second["start"]) == (1, 2)


@played(SCENARIO + "faults:\n  - {at: 1s, node: device-0-1, action: join}\n")
async def test_a_node_that_joins_late_and_always_ends_early_stays_away(stage: Stage) -> None:
    stage.driver.early["device-0-1"] = [1] * 10
    await stage.train()
    await asyncio.sleep(30)
    assert stage.driver.started.count("device-0-1") == 1 + RESTART_LIMIT
    assert stage.states("device-0-1")[-1] == "crashed"
    assert not stage.session.ended.done()


@played()
async def test_what_an_earlier_process_said_is_not_the_reason_of_a_later_ones_end(stage: Stage) -> None:
    await stage.train()
    stage.control.say("device-0-0", "failed", error="ValueError: of no use")
    await asyncio.sleep(1)
    stage.driver.end("device-0-0", 1)
    await asyncio.sleep(10)
    stage.driver.end("device-0-0", -11)
    await asyncio.sleep(10)
    assert stage.details("device-0-0", "crashed") == [
        "exit code 1: ValueError: of no use",
        "SIGSEGV; its log ends with: device-0-0 at 10.77.0.3",
    ]


@played()
async def test_a_node_that_ends_before_it_is_attached_is_an_exit_and_no_error_of_the_links(stage: Stage) -> None:
    def refuse(node: str) -> None:
        if stage.driver.started.count(node) == 1 and node == "edge-0":
            asyncio.get_running_loop().call_later(1.0, stage.driver.end, node, -9)
            raise HostError("`ip -batch -` failed (Error: Invalid netns value)")

    stage.fabric.refuse_node = refuse
    await stage.train()
    assert stage.states("edge-0")[1:3] == ["crashed", "restarting"]
    assert stage.states("edge-0")[-1] == "running"


@played()
async def test_links_that_cannot_be_made_to_a_living_node_are_an_error(stage: Stage) -> None:
    def refuse(node: str) -> None:
        if node == "edge-0":
            raise HostError("no more interfaces")

    stage.fabric.refuse_node = refuse
    stage.session.listen()
    with pytest.raises(HostError, match="no more interfaces"):
        await stage.session.processes.bring_up_all()
    assert not [task for task in asyncio.all_tasks() if "bring_up" in str(task)]  # nobody is left half way


@played()
async def test_a_link_engine_that_breaks_ends_the_run(stage: Stage) -> None:
    stage.session.listen()
    stage.fabric.failed.set_exception(FabricError("the switch ended (SIGKILL): see `logs switch`"))
    ending = await stage.session.ended
    assert (ending.reason, ending.error) == ("failed", "the switch ended (SIGKILL): see `logs switch`")


def test_work_that_never_starts_is_closed(play: Play) -> None:
    async def work() -> None:
        await asyncio.sleep(1)

    async def act(stage: Stage) -> None:
        before, after = work(), work()
        stage.session.spawn(before)
        await stage.session.close()
        stage.session.spawn(after)
        assert {inspect.getcoroutinestate(each) for each in (before, after)} == {inspect.CORO_CLOSED}

    play(act, SCENARIO)


ODD: list[tuple[str, dict[str, Any]]] = [
    ("event", {}),
    ("event", {"name": ["round"]}),
    ("event", {"name": "x" * 1_000_000}),
    ("event", {"name": "round", "round": "three", "phase": "start"}),
    ("event", {"name": "round", "round": -1, "phase": "start"}),
    ("event", {"name": "round", "round": 2**63, "phase": "start"}),
    ("event", {"name": "round", "phase": "start"}),
    ("event", {"name": "overrun", "asked": "long", "taken": 1.0}),
    ("event", {"name": "overrun", "asked": math.nan, "taken": 1.0}),
    ("event", {"name": "overload"}),
    ("event", {"name": "peers", "shares": [1]}),
    ("event", {"name": "lost", "peer": {"deep": 1}}),
    ("event", {"name": "x", "value": 10**400}),
    ("event", {"name": "x", "value": {"a": [(-(10**400),)]}}),
    ("event", {"name": "x", "value": {10**400: 1}}),
    ("failed", {}),
    ("done", {}),
    ("done", {"reason": ["rounds"]}),
    ("beat", {"cpu": [1.0], "rss": 1}),
    ("beat", {"cpu": math.nan, "rss": 1}),
    ("beat", {"cpu": 1.0, "rss": -1}),
    ("metric", {"round": 1}),
    ("metric", {"round": "one", "values": {"loss": 1.0}}),
    ("metric", {"round": 1, "values": {"scope": ["global"], "loss": 1.0}}),
    ("metric", {"round": 1, "values": {"loss": "small"}}),
    ("metric", {"round": 1, "values": {"loss": True}}),
    ("metric", {"round": 1, "values": {"loss": 10**400}}),
    ("metric", {"round": 1, "values": {"loss": Fraction(10**400)}}),
    ("metric", {"round": 1, "values": {"accuracy": 10.5}}),
    ("metric", {"round": 1, "values": {"accuracy": -0.1}}),
    ("metric", {"round": 1, "values": {"accuracy": math.inf}}),
    ("metric", {"round": 1, "values": {f"loss {number}": 1.0 for number in range(100_000)}}),
    ("metric", {"round": 1, "values": {3: 1.0}}),
    ("beat", {"cpu": 10**400, "rss": 1}),
    ("traffic", {}),
    ("traffic", {"peers": {"edge-0": 1}}),
    ("traffic", {"peers": [{"peer": "edge-0"}]}),
    ("traffic", {"peers": [{"peer": "nobody", "kind": "model", "direction": "sent", "messages": 1, "bytes": 1}]}),
    ("traffic", {"peers": [{"peer": "edge-0", "kind": "model", "direction": "sent", "messages": 1, "bytes": "1"}]}),
    ("unreadable", {"reason": "not msgpack"}),
    ("nonsense", {}),
]


@pytest.mark.parametrize(("type", "fields"), ODD, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("node", ["cloud", "device-0-0"])
def test_an_odd_message_is_an_event_and_the_run_continues(
    play: Play, node: str, type: str, fields: dict[str, Any]
) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.control.say(node, type, **fields)
        stage.control.say("cloud", "event", name="round", round=2, phase="start")
        await asyncio.sleep(1)
        assert not stage.session.ended.done()
        assert stage.session.progress.round == 2
        (bad,) = stage.events("bad_message")
        assert (bad.node, bad.data["count"]) == (node, 1)
        assert 0 < len(bad.data["reason"]) < 300
        judged = summary(History.open(stage.directory.path))  # nothing of it is in the way of a report
        assert judged["rounds"] == 0
        assert judged["accuracy"]["global"] is None
        (check,) = [each for each in judged["checks"] if each["name"] == "messages accepted"]
        assert (check["verdict"], bad.data["reason"] in check["detail"]) == ("fail", True)

    play(act, SCENARIO)


PROGRAMS = """\
programs: {cloud: {command: serve}, device: {command: ask}}
topology: {cloud: true, edges: 0, devices: 1}
stop: {rounds: 2, accuracy: 80%}
"""


@pytest.mark.parametrize(
    ("type", "fields", "ended"),
    [
        ("event", {"name": "round", "round": 2, "phase": "end"}, "rounds"),
        ("event", {"name": "round", "round": 1, "phase": "end"}, None),
        ("metric", {"round": 1, "values": {"scope": "global", "accuracy": 0.81}}, "accuracy"),
        ("metric", {"round": 1, "values": {"scope": "global", "accuracy": 1}}, "accuracy"),  # as JSON has it
        ("metric", {"round": 1, "values": {"scope": "global", "accuracy": 0.79}}, None),
        ("metric", {"round": 1, "values": {"scope": "global", "accuracy": 81}}, None),
        ("metric", {"round": 1, "values": {"scope": "global", "accuracy": True}}, None),
        ("metric", {"round": 1, "values": {"scope": "own", "accuracy": 0.9}}, None),
    ],
)
def test_what_a_program_prints_may_meet_a_stop_rule(
    play: Play, type: str, fields: dict[str, Any], ended: str | None
) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.control.say("device-0", type, **fields)  # it does not lead
        await asyncio.sleep(1)
        assert not stage.session.ended.done()
        stage.control.say("cloud", type, **fields)
        await asyncio.sleep(1)
        assert (stage.session.ended.result().reason if stage.session.ended.done() else None) == ended

    play(act, PROGRAMS)


def test_the_end_of_a_program_is_recorded_and_said(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.control.say("device-0", "event", name=ProgramEnded.NAME, program="device-0", code=0)
        await asyncio.sleep(1)
        (event,) = stage.events(ProgramEnded.NAME)
        assert (event.node, event.data) == ("device-0", {"program": "device-0", "code": 0})
        assert "program device-0 ended (exit code 0)" in stage.lines

    play(act, PROGRAMS)


def test_a_flood_of_lines_is_said_once(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        for lines in (3, 4):
            stage.control.say("device-0", "event", name=LinesDropped.NAME, lines=lines)
        await asyncio.sleep(1)
        assert [event.data["lines"] for event in stage.events(LinesDropped.NAME)] == [3, 4]
        assert sum("too many lines" in line for line in stage.lines) == 1

    play(act, PROGRAMS)


LEADING_EDGES = """\
algorithm: {name: onlyedge, rounds: 3}
data: {dataset: digits, partition: iid}
model: mlp
topology: {cloud: false, edges: 2, devices_per_edge: 1}
stop: {accuracy: 80%}
"""


def test_the_mean_of_several_leading_nodes_meets_a_stop_rule(play: Play) -> None:
    """edge-0 has 0.9 first; (0.9 + 0.6) / 2 is below 0.8, (0.9 + 0.7) / 2 is not, whoever is online."""

    async def act(stage: Stage) -> None:
        await stage.train()

        async def say(node: str, accuracy: float) -> bool:
            stage.control.say(node, "metric", round=1, values={"scope": "global", "accuracy": accuracy})
            await asyncio.sleep(1)
            return stage.session.ended.done()

        assert not await say("edge-0", 0.9)  # edge-1 has not reported yet
        assert not await say("edge-1", 0.6)
        stage.session.nodes["edge-1"].state = "left"
        assert not await say("edge-0", 0.91)
        assert await say("edge-1", 0.7)
        assert stage.session.ended.result().reason == "accuracy"

    play(act, LEADING_EDGES)


@played()
async def test_a_list_that_never_ends_is_refused(stage: Stage) -> None:
    await stage.train()
    deep: list[Any] = []
    endless: OrderedDict[str, Any] = OrderedDict()
    endless["it"] = endless
    for _ in range(100_000):
        deep = [deep]
    stage.control.say("cloud", "event", name="deep", what=deep)
    stage.control.say("cloud", "event", name="endless", what=endless)
    stage.control.said.put_nowait(("cloud", {"type": deep}))
    await asyncio.sleep(1)
    reasons = [event.data["reason"] for event in stage.events("bad_message")]
    assert reasons == [
        containing("event 'deep'", "nested more than 32"),
        containing("event 'endless'", "nested more than 32"),
        containing("type list of 1"),
    ]
    while deep:
        deep = deep.pop()  # or its end would need as many frames of the interpreter


@played()
async def test_a_flood_of_odd_messages_is_counted_and_does_not_fill_the_disk(stage: Stage) -> None:
    await stage.train()
    for _ in range(10_000):
        stage.control.say("device-0-0", "nonsense")
    await asyncio.sleep(1)
    await stage.session.close()
    counts = [event.data["count"] for event in stage.events("bad_message")]
    # The first ten, then each time that there are twice as many, and the sum at the end.
    assert counts == [*range(1, 11), 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000]
    assert not stage.session.ended.done()


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
_keys = ("type", "name", "round", "phase", "values", "scope", "peers", "peer", "error", "reason", "cpu", "rss")
_types = ("event", "metric", "traffic", "beat", "done", "failed", "register", "overrun")
_words = st.sampled_from((*_keys, *_types, "start", "end", "accuracy", "global"))
_anything = st.recursive(
    _scalars | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words | _scalars, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageRecorder]:
    with closing(Record.create(tmp_path_factory.mktemp("heard"), "{}", {})) as record:
        yield MessageRecorder({"cloud"}, record, lambda: 0.0)


@given(message=st.dictionaries(_words | _scalars, _anything, max_size=5))
def test_whatever_a_node_says_can_be_taken(hearing: MessageRecorder, message: dict[Any, Any]) -> None:
    for type in (message.get("type"), "event", "metric", "beat", "done", "traffic"):
        hearing.take("cloud", {**message, "type": type})


EDGES = """\
name: played
algorithm: {name: onlyedge, rounds: 5}
topology: {cloud: false, edges: 2, devices_per_edge: 1}
"""


@pytest.mark.parametrize("reasons", [("accuracy", "rounds"), ("rounds", "accuracy")])
def test_a_run_that_one_of_its_leaders_ended_early_has_not_done_all_rounds(
    play: Play, reasons: tuple[str, str]
) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        for edge, reason in zip(("edge-0", "edge-1"), reasons, strict=True):
            stage.control.say(edge, "done", reason=reason)
        assert (await stage.session.ended).reason == "accuracy"

    play(act, EDGES)


@played(SCENARIO + "restart: never\n")
async def test_a_leader_that_was_stopped_by_nobodys_order_has_not_ended_the_run(stage: Stage) -> None:
    await stage.train()
    stage.control.say("cloud", "done", reason="stopped")
    await asyncio.sleep(0.1)
    stage.driver.end("cloud", 0)
    ending = await stage.session.ended
    assert ending.reason == "failed"
    assert "cloud ended (exit code 0" in str(ending.error)


@played(EDGES + "faults:\n  - {at: 5s, node: edge-1, action: leave}\n")
async def test_the_run_ends_when_its_last_leader_leaves(stage: Stage) -> None:
    await stage.train()
    stage.control.say("edge-0", "done", reason="rounds")
    async with asyncio.timeout(6.0):
        assert (await stage.session.ended).reason == "rounds"


@virtual
async def test_a_leader_that_left_before_an_interruption_is_not_waited_for_after_it(tmp_path: Path) -> None:
    leave = FaultSpan(1, "leave", "edge-1", 5.0, None, None, 2, "", ("edge-1",), {})
    stage = Stage(tmp_path, EDGES, Past(faults=(leave,)))
    try:
        await stage.train()
        stage.control.say("edge-0", "done", reason="rounds")
        async with asyncio.timeout(1.0):
            assert (await stage.session.ended).reason == "rounds"
    finally:
        await stage.session.close()
        stage.record.close()


@played()
async def test_the_last_word_of_a_life_that_is_over_is_not_the_next_ones(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(0.1)
    stage.control.say("device-0-0", "done", reason="rounds")
    await asyncio.sleep(1.0)
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]


@played()
async def test_a_last_word_may_be_received_after_the_exit(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", 0)
    await asyncio.sleep(0.1)
    stage.control.say("device-0-0", "done", reason="rounds")
    await asyncio.sleep(5.0)
    assert stage.states("device-0-0")[3:] == ["done"]


@played()
async def test_without_a_last_word_an_exit_is_a_failure_whatever_its_code(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-0", 0)
    await asyncio.sleep(LAST_WORD + 4.0)
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]


def operation(stage: Stage, **request: Any) -> Awaitable[dict[str, Any]]:
    """What a command of this process's user does."""
    run = RunContext(stage.plan, stage.directory, stage.record, asyncio.get_running_loop().time, stage.view)
    decided = Commands(run, stage.session, None).of(os.geteuid())[request.pop("op")](**request)
    return cast("Awaitable[dict[str, Any]]", decided["work"])


@played()
async def test_a_manual_fault_is_made_and_recorded_with_its_user(stage: Stage) -> None:
    crash = {"action": "crash", "node": "device-0-0", "for": "5s"}
    early = await operation(stage, op="inject", fault=crash)
    assert early["refused"] == [{"action": "crash", "target": "device-0-0", "reason": "the training has not started"}]
    await stage.train()
    await asyncio.sleep(3.0)
    stage.control.say("cloud", "event", name="round", phase="start", round=2)
    await asyncio.sleep(0.0)
    reply = await operation(stage, op="inject", fault=crash, via="a test")
    (made,) = reply["faults"]
    assert (made["fault"], made["at"], made["for"]) == (1, 3.0, 5.0)
    assert stage.states("device-0-0")[-1] == "crashed"
    again = await operation(stage, op="inject", fault=crash)
    assert again["refused"][0]["reason"] == "device-0-0 is not running but crashed"
    await asyncio.sleep(6.0)
    assert stage.states("device-0-0")[-1] == "running"
    (event,) = stage.events("injected")
    assert (event.data["uid"], event.data["via"]) == (os.geteuid(), "a test")
    assert event.data["written"] == {"at": "3s", "node": "device-0-0", "action": "crash", "for": "5s"}
    assert [each.data["text"][:38] for each in stage.events("note")] == [containing("faults", "made manually from 3 s")]
    with History.open(stage.directory.path) as history:
        (span,) = history.faults()
        assert (span.by != "", span.nodes) == (True, ("device-0-0",))
        assert span.start == pytest.approx(3.01)
    stage.session.finish("rounds")
    late = await operation(stage, op="inject", fault=crash)
    assert late["refused"][0]["reason"] == "the run is ending"


@played()
async def test_what_a_driver_cannot_do_is_said(stage: Stage) -> None:
    await stage.train()
    stage.session.processes._driver = cast(Driver, SimpleNamespace(name="plain"))
    reply = await operation(stage, op="inject", fault={"action": "pause", "nodes": ["edge-0", "device-0-1"]})
    assert [each["reason"] for each in reply["refused"]] == [
        "the driver plain cannot pause edge-0",
        "the driver plain cannot pause device-0-1",
    ]
    reply = await operation(stage, op="inject", fault={"action": "join", "node": "device-0-1"})
    assert reply["refused"][0]["reason"] == containing("device-0-1 has joined already", "running")
    with pytest.raises(ValueError, match="works in real time"):
        operation(stage, op="pace", to="10x")
    assert stage.events("injected") == []


@played(SCENARIO + "faults:\n  - {at: 5s, node: device-0-1, action: join}\n")
async def test_a_node_that_has_joined_manually_does_not_join_again(stage: Stage) -> None:
    await stage.train()
    assert "device-0-1" not in stage.driver.started
    await asyncio.sleep(1.0)
    assert (await operation(stage, op="inject", fault={"action": "join", "node": "device-0-1"}))["refused"] == []
    assert stage.states("device-0-1")[-1] == "running"
    await asyncio.sleep(10.0)
    assert stage.driver.started.count("device-0-1") == 1
    with History.open(stage.directory.path) as history:
        planned, by_hand = history.faults()
        assert (planned.skipped, planned.detail) == (5.0, containing("device-0-1 has joined already", "running"))
        assert by_hand.start == pytest.approx(1.0)


@played(SCENARIO + "faults:\n  - {at: 5s, node: device-0-0, action: crash, for: 8s}\n")
async def test_after_a_crash_that_failed_the_next_end_is_the_nodes_own(stage: Stage) -> None:
    stage.driver.unreachable.add("device-0-0")
    await stage.train()
    await asyncio.sleep(6.0)
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(2.0)
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
    assert stage.details("device-0-0", "crashed") != ["fault"]


@played(SCENARIO + "faults:\n  - {at: 5s, node: device-0-0, action: crash, for: 1s}\n")
async def test_a_node_that_takes_long_to_die_is_restarted_once_it_has_ended(stage: Stage) -> None:
    """The fault is over 2 s before the end of the process that it kills."""
    stage.driver.lag = 3.0
    await stage.train()
    await asyncio.sleep(10.0)
    assert stage.driver.started.count("device-0-0") == 2
    assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
    with History.open(stage.directory.path) as history:
        times = [state.t for state in history.states() if (state.node, state.state) == ("device-0-0", "restarting")]
    assert times == [8.0]


@pytest.mark.parametrize(("end", "states"), [(5.5, []), (7.5, ["paused"])])
def test_a_node_that_ends_while_it_is_paused_or_resumed_is_restarted(play: Play, end: float, states: list[str]) -> None:
    """Each signal takes a second: the pause from 5 to 6 s, its end from 7 to 8 s."""

    async def act(stage: Stage) -> None:
        stage.driver.lag = 1.0
        await stage.train()
        await asyncio.sleep(end)
        stage.driver.end("device-0-0", -9)
        await asyncio.sleep(6.0)
        assert stage.states("device-0-0")[3:] == [
            *states,
            *("crashed", "restarting", "starting", "registered", "running"),
        ]

    play(act, SCENARIO + "faults:\n  - {at: 5s, node: device-0-0, action: pause, for: 1s}\n")


PAUSES = """\
faults:
  - {at: 5s, node: device-0-0, action: pause, for: 5s}
  - {at: 8s, node: device-0-0, action: pause, for: 5s}
"""


@played(SCENARIO + PAUSES)
async def test_the_end_of_a_pause_does_not_end_that_of_the_next_process(stage: Stage) -> None:
    await stage.train()
    await asyncio.sleep(6.0)
    stage.driver.end("device-0-0", -9)
    await asyncio.sleep(6.0)  # the first pause was over at 10 s
    assert stage.states("device-0-0")[-1] == "paused"
    await asyncio.sleep(2.0)
    assert stage.states("device-0-0")[-1] == "running"


@played(SCENARIO + "faults:\n  - {at: 100s, node: device-0-1, action: join}\n")
async def test_a_node_that_waits_for_its_start_does_not_join_twice(stage: Stage) -> None:
    """No more than so many nodes start at a time; here as many are starting."""
    processes = stage.session.processes
    await stage.train()
    processes._starting = asyncio.Semaphore(0)
    joining = asyncio.create_task(processes.join("device-0-1"))
    await asyncio.sleep(1.0)
    with pytest.raises(DriverError, match="device-0-1"):
        await processes.join("device-0-1")
    processes._starting.release()
    await joining
    assert stage.driver.started.count("device-0-1") == 1


@played(SCENARIO + "faults:\n  - {at: 5s, node: device-0-1, action: crash}\n")
async def test_a_crash_by_a_fault_that_ends_after_the_run_is_not_a_failure(stage: Stage) -> None:
    stage.driver.lag = 1.0
    await stage.train()
    await asyncio.sleep(5.5)
    stage.session.finish("rounds")
    await asyncio.sleep(1.0)
    assert stage.session.nodes["device-0-1"].handle is None
    assert stage.details("device-0-1", "crashed") == ["fault"]


@played()
async def test_no_node_restarts_after_the_end_of_the_run(stage: Stage) -> None:
    await stage.train()
    started = list(stage.driver.started)
    stage.session.finish("rounds")
    await stage.session.processes.bring_back(stage.session.nodes["device-0-0"])
    assert stage.driver.started == started
