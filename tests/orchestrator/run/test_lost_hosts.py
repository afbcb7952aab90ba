"""A session whose driver loses hosts, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from node.runtime.clock import run_virtual
from orchestrator.drivers.base import NodeMove
from orchestrator.errors import LostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.plan import NodePlan
from tests.fakes.driver import FakeControl, FakeHostsDriver
from tests.orchestrator.run.nodes.test_session import SCENARIO, Stage
from tests.texts import containing

AGAIN = ["crashed", "restarting", "starting", "registered", "running"]


class HostsDriver(FakeHostsDriver):
    """``away``: the nodes whose host is lost. ``ready`` answers with ``verdict``, after 20 s for nodes that are away.
    ``losing``: how many times the host of a node is lost just when the node starts."""

    def __init__(self, control: FakeControl) -> None:
        super().__init__(control)
        self.away: set[str] = set()
        self.verdict: str | None = None
        self.losing = 0

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        if self.losing:
            self.losing -= 1
            self.away.add(node.name)
        if node.name in self.away:
            raise LostError("c: its agent is away")
        return await super().start(node, assignment, log)

    async def ready(self, node: str) -> str | None:
        if node in self.away:
            await asyncio.sleep(20.0)
            if self.verdict is None:
                self.away.discard(node)
            return self.verdict
        return None

    def lose(self, *nodes: str) -> None:
        """Their host is lost, and so are they."""
        self.away |= set(nodes)
        for node in nodes:
            self.end(node, -9)


def play(tmp_path: Path, act: Callable[[Stage, HostsDriver], Awaitable[None]], scenario: str = SCENARIO) -> None:
    async def main() -> None:
        stage = Stage(tmp_path, scenario, driver_of=HostsDriver)
        driver = cast(HostsDriver, stage.driver)
        try:
            await stage.train()
            await act(stage, driver)
        finally:
            await stage.session.close()
            stage.record.close()

    run_virtual(main())


def test_a_node_waits_until_it_can_start_somewhere(tmp_path: Path) -> None:
    async def act(stage: Stage, driver: HostsDriver) -> None:
        driver.lose("device-0-0")
        await asyncio.sleep(15.0)
        assert stage.states("device-0-0")[3:] == AGAIN[:2]
        await asyncio.sleep(10.0)
        assert stage.states("device-0-0")[3:] == AGAIN

    play(tmp_path, act)


def test_a_node_with_its_next_host_lost_before_it_has_started_waits_again(tmp_path: Path) -> None:
    async def act(stage: Stage, driver: HostsDriver) -> None:
        driver.losing = 2
        driver.lose("device-0-0")
        await asyncio.sleep(65.0)
        assert stage.states("device-0-0")[3:] == [*AGAIN[:2], "starting", "starting", *AGAIN[2:]]
        assert driver.started.count("device-0-0") == 2

    play(tmp_path, act)


def test_a_node_that_cannot_start_anywhere_stays_away_and_a_leader_ends_the_run(tmp_path: Path) -> None:
    why = "host c away, a real raspberry-pi-4"

    async def act(stage: Stage, driver: HostsDriver) -> None:
        driver.verdict = why
        driver.lose("device-0-0")
        await asyncio.sleep(30.0)
        assert stage.details("device-0-0", "crashed")[1:] == [why]
        assert not stage.session.ended.done()
        driver.lose("cloud")
        assert (await stage.session.ended).error == containing("cloud", f"cannot start again: {why}")

    play(tmp_path, act)


def test_moves_are_recorded_and_reported(tmp_path: Path) -> None:
    async def act(stage: Stage, driver: HostsDriver) -> None:
        driver.news.put_nowait(NodeMove("edge-0", "c", "a", "silent; most cores free", 3.21))
        driver.news.put_nowait(NodeMove("device-0-0", "c", None, "it runs on a real raspberry-pi-4"))
        await asyncio.sleep(1.0)
        moved, stayed = stage.events("moved")
        assert (moved.node, stayed.node) == (None, None)
        place = {"from": "c", "to": "a", "reason": "silent; most cores free"}
        assert moved.data == {"node": "edge-0", **place, "checkpoint": 3.2}
        assert (stayed.data["node"], stayed.data["to"]) == ("device-0-0", None)
        assert stage.lines[-2:] == [
            "edge-0 moves from c to a, with its checkpoint of 3.2 s before: silent; most cores free",
            containing("device-0-0 cannot move from c", "raspberry-pi-4"),
        ]

    play(tmp_path, act)


def test_a_node_that_a_fault_has_crashed_comes_back_where_it_can(tmp_path: Path) -> None:
    """Its host is lost while it is down."""

    async def act(stage: Stage, driver: HostsDriver) -> None:
        await asyncio.sleep(7.0)
        driver.away.add("device-0-1")
        await asyncio.sleep(40.0)
        assert stage.states("device-0-1")[3] == "crashed"
        assert stage.states("device-0-1")[-1] == "running"
        assert stage.session.faults._until_next_round == []

    play(tmp_path, act, SCENARIO + "faults:\n  - {at: 5s, node: device-0-1, action: crash, for: 8s}\n")
