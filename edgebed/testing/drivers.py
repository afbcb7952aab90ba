"""What every driver must do: each case takes a `Stage` with a driver that is open.

    from edgebed.testing.drivers import claimed, open_stage

    @pytest.mark.parametrize("case", claimed("processes"), ids=str)
    async def test_my_driver(case, tmp_path):
        async with AsyncExitStack() as stack:
            await case(await open_stage(my_driver, RunDirectory.create(tmp_path, "stage"), stack))

The nodes register at a real control plane and never train. pytest is not needed to import this.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from edgebed.testing.host import traces_of, wait_for
from node.assignment import Assignment
from node.messaging.control import ControlServer
from node.process.main import EXIT_FAILED
from orchestrator.drivers.base import CanPause, Control, Driver, DriverEntry, Exit, LeavesTraces
from orchestrator.drivers.docker import leftovers
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.assignments import assignments, seen_from_inside, write
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.learning.dataset import prepare_data
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse

__all__ = ["CASES", "Case", "Power", "Stage", "claimed", "open_stage"]

PATIENCE = 60.0  # s until a case that hangs fails
BEAT = 0.1  # s between a node's signs of life
SILENCE = 10 * BEAT

SCENARIO = f"""\
name: stage
algorithm: {{name: fedavg, rounds: 1}}
model: mlp
topology: {{edges: 0, devices: 2}}
hardware: {{device: raspberry-pi-4}}
timeouts: {{beat: {BEAT * 1000:.0f}ms, lost_after: 10s, lease: 60s}}
"""


@dataclass
class Stage:
    """A run of a cloud and two devices. ``traces`` lists what of the run the host shows, ``runs`` whether the process
    of a node does."""

    driver: Driver
    plan: Plan
    directory: RunDirectory
    control: Control
    traces: Callable[[], list[str]]
    runs: Callable[[int], bool] = lambda pid: Path(f"/proc/{pid}").exists()

    async def start(self, name: str) -> int:
        """Start a node; the id of its process."""
        node = self.plan.node(name)
        handle = await self.driver.start(node, self.assignment(name), self.log(name))
        return handle.pid

    async def ready(self, name: str) -> int:
        """Start a node and wait until it handles signals, which its first beat shows; the id of its process."""
        pid = await self.start(name)
        await self.hear(name, "register")
        await self.hear(name, "beat")
        return pid

    async def hear(self, name: str, kind: str) -> dict[str, Any]:
        """The next message of this kind from this node."""
        async with asyncio.timeout(PATIENCE):
            async for node, message in self.control.messages():
                if (node, message["type"]) == (name, kind):
                    return message
        raise AssertionError("the control plane ended")

    async def silent(self, name: str) -> bool:
        """Whether a node sends nothing for ten beats, once what was under way has arrived."""
        for _ in range(3):
            try:
                async with asyncio.timeout(SILENCE):
                    await self.hear(name, "beat")
            except TimeoutError:
                return True
        return False

    async def exit(self) -> Exit:
        async with asyncio.timeout(PATIENCE):
            return await self.driver.exits.get()

    async def logged(self, name: str, text: str, times: int) -> None:
        """Wait until a node's log has a text so many times."""
        log = self.log(name)

        def is_logged() -> bool | None:
            return log.read_text().count(text) >= times or None

        await asyncio.to_thread(wait_for, is_logged, f"'{text}' in {log}")

    def assignment(self, name: str) -> Path:
        return self.directory.nodes / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.directory.logs / f"{name}.log"


async def open_stage(entry: DriverEntry, directory: RunDirectory, stack: AsyncExitStack) -> Stage:
    """The stage of a driver that its module has opened, with its links; ``stack`` closes all. ``directory``: of a new
    run. HostError if this host cannot provide it."""
    plan = _plan(directory)
    environment = await entry.open_environment(plan, directory, stack, 1, print)
    for name, assignment in environment.assignments.items():
        write(assignment, directory.nodes / f"{name}.json")

    def traces() -> list[str]:
        of_driver = entry.traces(directory.run) if isinstance(entry, LeavesTraces) else ()
        return traces_of(directory.run) + [trace.node for trace in of_driver]

    return Stage(environment.driver, plan, directory, environment.control, traces)


async def opened(
    make: Callable[[Path], Driver],
    directory: RunDirectory,
    stack: AsyncExitStack,
) -> Stage:
    """The stage of a driver alone, without links, made with the folder of the prepared data and opened; ``stack``
    closes it. Its nodes have a file tree of their own."""
    plan = _plan(directory)
    address = f"ipc://{directory.socket}"
    keys = RunKeys.make([node.name for node in plan.nodes])
    for name, assignment in assignments(plan, directory, keys, address).items():
        write(seen_from_inside(assignment), directory.nodes / f"{name}.json")
    driver = make(Path(plan.data_directory))
    control = ControlServer(address, keys.orchestrator, keys.public)
    stack.push_async_callback(control.close)
    stack.push_async_callback(driver.close)
    await driver.open()

    def traces() -> list[str]:
        containers = [container.node for container in leftovers.listed(directory.run)]
        return traces_of(directory.run) + containers

    return Stage(driver, plan, directory, control, traces)


def _plan(directory: RunDirectory) -> Plan:
    """The plan of the stage, with the nodes' data."""
    scenario = parse(SCENARIO, "stage.yaml")
    data = prepare_data(scenario.data, Path.cwd())
    plan = make_plan(scenario, PreparedLabels.read(data))
    plan.shards.write(directory.shards)
    return plan


Power = Literal["processes", "namespaces", "pause"]
"""What a case needs of a driver, in addition to the methods of `Driver`:

processes    nodes are processes of this host that run `python -m node` or the same
namespaces   each node has Linux namespaces of its own
pause        the driver has the methods of `CanPause`
"""


@dataclass(frozen=True)
class Case:
    """A case: call it with a `Stage`. AssertionError if the driver does not do what it must. ``needs``: the powers
    without which a driver does not claim it."""

    run: Callable[[Stage], Awaitable[None]]
    needs: frozenset[Power]

    async def __call__(self, stage: Stage) -> None:
        await self.run(stage)

    def __str__(self) -> str:
        return self.run.__name__


CASES: list[Case] = []
"""All cases."""


def claimed(*powers: Power) -> list[Case]:
    """The cases for a driver with these powers. Others are not claimed: what they test is not part of the driver."""
    return [case for case in CASES if case.needs <= set(powers)]


Function = Callable[[Stage], Awaitable[None]]


def case(*needs: Power) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        CASES.append(Case(function, frozenset(needs)))
        return function

    return add


def namespace(pid: int | str, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def interfaces(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    return [line.split(":")[0].strip() for line in lines]


@case("processes", "namespaces")
async def nodes_have_namespaces_of_their_own(stage: Stage) -> None:
    pids = await asyncio.gather(stage.start("cloud"), stage.start("device-0"))
    for kind in ("net", "pid", "mnt", "uts", "ipc"):
        namespaces = {namespace(pid, kind) for pid in (*pids, "self")}
        assert len(namespaces) == 3
    assert interfaces(pids[0]) == ["lo"]


@case("processes")
async def a_terminated_node_has_failed_and_can_be_started_again(stage: Stage) -> None:
    pid = await stage.ready("device-0")
    os.kill(pid, signal.SIGTERM)
    assert await stage.exit() == Exit("device-0", NodeHandle(pid), EXIT_FAILED)
    await stage.logged("device-0", "ended by SIGTERM, which did not come from the orchestrator", 1)
    again = await stage.ready("device-0")
    assert again != pid
    await stage.logged("device-0", "ready", 2)


@case()
async def a_kill_is_a_signal(stage: Stage) -> None:
    pid = await stage.ready("device-0")
    other = await stage.ready("device-1")
    await stage.driver.kill("device-0")
    assert await stage.exit() == Exit("device-0", NodeHandle(pid), -9)
    assert stage.runs(other)


@case("processes")
async def a_node_that_fails_says_so_with_its_code(stage: Stage) -> None:
    path = stage.assignment("device-0")
    path.write_text(replace(Assignment.load(path), algorithm="nothing").to_json())
    pid = await stage.start("device-0")
    assert await stage.exit() == Exit("device-0", NodeHandle(pid), 1)
    await stage.logged("device-0", "no algorithm 'nothing'", 1)


@case("pause")
async def a_paused_node_is_silent_and_continues(stage: Stage) -> None:
    driver = stage.driver
    assert isinstance(driver, CanPause)
    pid = await stage.ready("device-0")
    await stage.control.send("device-0", {"type": "start"})  # from now on it beats
    await stage.hear("device-0", "beat")
    await driver.pause("device-0")
    assert await stage.silent("device-0")
    await driver.resume("device-0")
    await stage.hear("device-0", "beat")
    await driver.pause("device-0")
    await stage.driver.kill("device-0")
    assert await stage.exit() == Exit("device-0", NodeHandle(pid), -9)


@case()
async def a_node_that_does_not_run_cannot_be_killed(stage: Stage) -> None:
    error: OrchestratorError | None = None
    try:
        await stage.driver.kill("device-1")
    except OrchestratorError as refusal:
        error = refusal
    assert "device-1" in str(error)


@case()
async def closing_leaves_nothing(stage: Stage) -> None:
    pids = [await stage.ready(name) for name in ("cloud", "device-0")]
    assert all(isinstance(note, str) for note in stage.driver.notes())
    assert stage.traces()
    await stage.driver.close()

    def has_ended() -> bool | None:
        return not any(map(stage.runs, pids)) or None

    await asyncio.to_thread(wait_for, has_ended, "the end of its nodes", 5.0)
    assert not stage.driver.lost.is_set()
