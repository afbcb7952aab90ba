"""Programs of nodes on several hosts: what the driver asks for, and what the agents answer. Their drivers are fakes."""

from __future__ import annotations

import asyncio
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.drivers.base import ProgramEnd
from orchestrator.drivers.hosts.programs import HostsProgramsDriver
from orchestrator.errors import DriverError, LostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.kernel.usage import ProcessUsage
from orchestrator.planning.making import make_plan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.scenario.reading import parse
from tests.e2e.harness import wait_for
from tests.fakes.driver import FakeProgramsDriver
from tests.orchestrator.agent.stage import PATIENCE
from tests.orchestrator.agent.test_worker import HOSTS, World

SCENARIO = """
driver: swarm
programs:
  cloud: {command: serve, image: served, ready: {port: 80}}
  watcher: {on: cloud, command: watch, image: watched}
  device: {command: "ask {files}", image: served, environment: {COLOUR: blue}}
topology: {cloud: true, edges: 0, devices: 1}
links: {device-cloud: {latency: 20ms}}
"""


class Programs(World):
    """The cloud lives on pc-1, the device on pc-2."""

    @property
    def driver(self) -> HostsProgramsDriver:
        assert isinstance(self.stage.driver, HostsProgramsDriver)
        return self.stage.driver

    @property
    def programs(self) -> dict[str, ProgramPlan]:
        return {each.label: each for each in self.plan.programs}

    def fake(self, host: str) -> FakeProgramsDriver:
        driver = self.drivers[host]
        assert isinstance(driver, FakeProgramsDriver)
        return driver

    async def run(self, label: str) -> None:
        await self.driver.run(self.programs[label], self.directory.logs / f"{label}.log")

    def files(self, host: str) -> Path:
        """Those of the run there."""
        return self.hosts / host / self.directory.run


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Programs]:
    folder, plan = tmp_path / "scenario", make_plan(parse(SCENARIO, "played.yaml"), None)
    folder.mkdir()
    (folder / "ask.py").write_text("pass\n")
    async with AsyncExitStack() as stack:
        made = Programs(tmp_path, stack, replace(plan, folder=str(folder)), FakeProgramsDriver)
        await made.open()
        yield made


def _content(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


async def test_each_host_receives_the_folder_of_the_scenario_and_no_data(world: Programs) -> None:
    for host in HOSTS:
        assert _content(world.files(host) / "scenario.tar") == ["ask.py"]
        assert list(world.stage.datasets_of(host).iterdir()) == []


async def test_a_program_starts_on_the_host_of_its_node(world: Programs) -> None:
    handle = await world.start("device-0")
    assert handle == NodeHandle(101, "pc-2")
    await world.run("device-0")
    assert world.fake("pc-2").programs == {"device-0": world.programs["device-0"]}
    assert world.fake("pc-1").programs == {}
    assert world.fake("pc-2").assignments == {"device-0": None}  # a program knows nothing of edgebed


async def test_what_a_program_has_printed_arrives_before_its_end(world: Programs) -> None:
    await world.start("cloud")
    await world.run("cloud.watcher")
    await world.driver.signal(world.programs["cloud.watcher"], signal.SIGTERM)
    ended = await asyncio.wait_for(world.driver.ends.get(), PATIENCE)
    assert ended == ProgramEnd(world.programs["cloud.watcher"], -15)
    assert (world.directory.logs / "cloud.watcher.log").read_text() == "cloud.watcher\n" * 2


async def test_a_host_reports_what_its_nodes_use_and_on_which_ports_they_listen(world: Programs) -> None:
    nodes = {node: await world.start(node) for node in ("cloud", "device-0")}
    world.fake("pc-1").ports[80] = ["0.0.0.0"]
    assert await world.driver.listening_on(nodes["cloud"], 80) == ["0.0.0.0"]
    assert await world.driver.listening_on(nodes["cloud"], 81) == []
    assert await world.driver.usage(nodes) == dict.fromkeys(nodes, ProcessUsage(0.5, 101))
    await world.driver.release("cloud", 3)
    assert world.fake("pc-1").requests[-1] == ("release", "cloud", 3)


async def test_a_host_is_lost_and_its_programs_restart_when_it_is_back(world: Programs) -> None:
    nodes = {node: await world.start(node) for node in ("cloud", "device-0")}
    await world.stage.leave("pc-2")
    assert (await world.driver.exits.get()).node == "device-0"
    assert await world.driver.usage(nodes) == {"cloud": ProcessUsage(0.5, 101)}
    assert await world.driver.listening_on(nodes["device-0"], 80) == []
    with pytest.raises(LostError):
        await world.run("device-0")
    assert (await world.changes(1))[0][:2] == ("pc-2", "lost")

    waiting = asyncio.create_task(world.driver.ready("device-0"))
    await world.stage.join("pc-2", world.player("pc-2"))
    assert await asyncio.wait_for(waiting, PATIENCE) is None
    assert _content(world.files("pc-2") / "scenario.tar") == ["ask.py"]
    await world.start("device-0")
    await world.run("device-0")
    assert list(world.fake("pc-2").programs) == ["device-0"]


async def test_an_end_that_another_host_reports_is_none(world: Programs) -> None:
    for host, label in (("pc-1", "device-0"), ("pc-2", "nobody")):
        world.driver.hear(host, {"name": "program", "label": label, "code": 0})
    assert world.driver.ends.empty()


async def test_the_files_of_nodes_come_back_when_the_run_ends(world: Programs) -> None:
    await world.start("device-0")
    there = world.files("pc-2") / "checkpoints" / "device-0" / "models"
    await asyncio.to_thread(there.mkdir, parents=True)
    (there / "last.checkpoint").write_bytes(b"model")
    (there / os.fsdecode(b"caf\xe9")).write_bytes(b"coffee")  # a name in Latin-1
    (there / "secret").symlink_to(world.hosts)
    await world.driver.close()
    kept = world.directory.checkpoints_of("device-0")
    found = {bytes(each.relative_to(kept)) for each in kept.rglob("*")}
    assert found == {b"models", b"models/last.checkpoint", b"models/caf\xe9"}
    assert (kept / "models" / "last.checkpoint").read_bytes() == b"model"


async def test_files_that_cannot_be_fetched_are_reported(world: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    there = world.files("pc-2") / "checkpoints" / "device-0"
    await asyncio.to_thread(there.mkdir, parents=True)
    (there / "model").write_bytes(b"model")
    (world.directory.checkpoints_of("device-0")).write_text("in the way")
    with pytest.raises(DriverError, match="device-0 were not fetched from pc-2"):
        await world.driver.close()


@pytest.mark.slow
async def test_programs_move_with_their_node_to_a_host_that_has_their_images(world: Programs) -> None:

    async def moved(_: object) -> None:
        pass

    world.driver.on_move = moved
    await world.start("device-0")
    await world.stage.leave("pc-2")
    assert (await world.changes(1))[0][:2] == ("pc-2", "lost")
    assert await asyncio.wait_for(world.driver.ready("device-0"), PATIENCE) is None
    assert (await world.start("device-0")).host == "pc-1"
    await world.run("device-0")
    assert list(world.fake("pc-1").programs) == ["device-0"]
    await asyncio.to_thread(wait_for, lambda: (world.directory.logs / "device-0.log").exists() or None, "its output")
