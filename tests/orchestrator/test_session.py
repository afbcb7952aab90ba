"""A run in progress on a virtual clock: nodes, driver and links are played by the test, the record is real."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from node.clock import run_virtual
from node.control import ControlServer
from orchestrator.drivers.base import Driver, Exit
from orchestrator.fabric.base import Fabric
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import NodePlan, Plan, make_plan
from orchestrator.results.history import History
from orchestrator.results.record import Record
from orchestrator.scenario.reading import parse
from orchestrator.session import RESTART_LIMIT, Session

SCENARIO = """\
name: played
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 1, devices_per_edge: 2}
"""


class PlayedControl:
    """The control plane: what the session sends is kept, what the nodes say is put in by the test."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.sent: list[tuple[str, str]] = []

    async def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        while True:
            yield await self.said.get()

    async def send(self, node: str, message: dict[str, Any]) -> None:
        self.sent.append((node, message["type"]))

    def say(self, node: str, type: str, **fields: Any) -> None:
        self.said.put_nowait((node, {"type": type, **fields}))


class PlayedDriver:
    """Nodes register as soon as they are started; ``dies`` makes one end."""

    name = "played"
    breakdown = "the player"

    def __init__(self, control: PlayedControl) -> None:
        self.control = control
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.pids: dict[str, int] = {}
        self.started: list[str] = []
        self.doomed: set[str] = set()  # end right after they have registered

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> int:
        self.pids[node.name] = len(self.started) + 100
        self.started.append(node.name)
        self.control.say(node.name, "register")
        return self.pids[node.name]

    def dies(self, node: str, code: int) -> None:
        self.exits.put_nowait(Exit(node, self.pids[node], code))

    async def kill(self, node: str) -> None:
        self.dies(node, -9)

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...


class PlayedFabric:
    """Links that remember which nodes are attached."""

    def __init__(self) -> None:
        self.attached: set[str] = set()

    async def attach(self, node: NodePlan, pid: int) -> None:
        self.attached.add(node.name)

    async def detach(self, node: NodePlan) -> None:
        self.attached.discard(node.name)


class Stage:
    """Everything a session needs."""

    def __init__(self, tmp_path: Path, scenario: str) -> None:
        self.plan: Plan = make_plan(parse(scenario, "played.yaml"), None)
        self.directory = RunDirectory.create(tmp_path, "played")
        self.record = Record.create(self.directory.path, "{}", {})
        self.control = PlayedControl()
        self.driver = PlayedDriver(self.control)
        self.fabric = PlayedFabric()
        self.lines: list[str] = []
        self.session = Session(
            self.plan,
            self.directory.path,
            self.record,
            cast(ControlServer, self.control),
            cast(Driver, self.driver),
            cast(Fabric, self.fabric),
            asyncio.get_running_loop().time,
            self.lines.append,
        )

    async def train(self) -> None:
        self.session.listen()
        await self.session.bring_up_all()
        await self.session.start_training()

    def states(self, node: str) -> list[str]:
        with History.open(self.directory.path) as history:
            return [state.state for state in history.states() if state.node == node]


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

        run_virtual(main())

    return run


def test_nodes_come_up_and_are_told_to_start(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        assert stage.fabric.attached == {"cloud", "edge-0", "device-0-0", "device-0-1"}
        assert sorted(stage.control.sent) == sorted((node, "start") for node in stage.fabric.attached)
        assert stage.states("edge-0") == ["starting", "registered", "running"]

    play(act, SCENARIO)


def test_the_run_ends_when_its_leader_is_done(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.control.say("cloud", "done", reason="accuracy")
        assert (await stage.session.ended).reason == "accuracy"

    play(act, SCENARIO)


def test_a_node_that_fails_is_restarted_and_started(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.driver.dies("device-0-0", -9)
        await asyncio.sleep(10.0)
        assert stage.states("device-0-0")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
        assert stage.driver.started.count("device-0-0") == 2
        assert "device-0-0" in stage.fabric.attached

    play(act, SCENARIO)


def test_a_node_that_fails_again_and_again_stays_away(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        for _ in range(RESTART_LIMIT + 1):
            stage.driver.dies("device-0-0", 1)
            await asyncio.sleep(10.0)
        assert stage.driver.started.count("device-0-0") == RESTART_LIMIT + 1
        assert stage.states("device-0-0")[-1] == "crashed"
        assert not stage.session.ended.done()

    play(act, SCENARIO)


def test_a_leader_that_stays_away_ends_the_run_with_its_reason(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.control.say("cloud", "failed", error="no memory left")
        await asyncio.sleep(1.0)
        stage.driver.dies("cloud", 1)
        ending = await stage.session.ended
        assert ending.reason == "failed"
        assert ending.error == "cloud ended (exit code 1: no memory left) and is not restarted again: see `logs cloud`"

    play(act, SCENARIO + "restart: never\n")


def test_the_end_of_the_driver_ends_the_run(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        stage.driver.lost.set()
        assert (await stage.session.ended).reason == "failed"

    play(act, SCENARIO)


def test_a_crash_by_a_fault_is_not_a_failure(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        await asyncio.sleep(20.0)
        assert stage.states("device-0-1")[3:] == ["crashed", "restarting", "starting", "registered", "running"]
        with History.open(stage.directory.path) as history:
            (node,) = [state for state in history.states() if state.state == "crashed"]
        assert (node.t, node.detail) == (5.0, "fault")

    play(act, SCENARIO + "faults:\n  - {at: 5s, node: device-0-1, action: crash, for: 8s}\n")


def test_a_late_joiner_comes_when_it_is_due(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()
        assert "device-0-1" not in stage.fabric.attached
        stage.control.say("cloud", "event", name="round", round=3, phase="start")
        await asyncio.sleep(1.0)
        assert stage.states("device-0-1")[-1] == "running"

    play(act, SCENARIO + "faults:\n  - {round: 3, node: device-0-1, action: join}\n")


def test_a_broken_helper_ends_the_run_with_one_error(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.train()

        async def broken() -> None:
            raise OSError("no space left on device")

        stage.session.spawn(broken())
        ending = await stage.session.ended
        assert (ending.reason, ending.error) == ("failed", "no space left on device")

    play(act, SCENARIO)


def test_a_helper_that_has_not_begun_when_the_session_closes_is_closed_with_it(play: Play) -> None:
    async def act(stage: Stage) -> None:
        work = asyncio.sleep(1.0)
        stage.session.spawn(work)
        await stage.session.close()
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED

    play(act, SCENARIO)
