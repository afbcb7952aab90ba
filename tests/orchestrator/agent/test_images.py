"""Images that are brought to agents, and that these pull, from the orchestrator's side. Their Engines are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.images import Images
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.calls import HostImages
from orchestrator.drivers.swarm import image_copies
from orchestrator.drivers.swarm.image_copies import CopyProgress, copy_images, images_of
from orchestrator.errors import DriverError, HostError
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.making import make_plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.e2e.harness import wait_for
from tests.fakes.docker import PIECES, SAVINGS, FakeEngine, FakeSaving, image
from tests.orchestrator.agent.stage import PATIENCE, Stage, spread
from tests.texts import containing

HOSTS = ("pc-1", "pc-2", "pc-3")
SCENARIO = "algorithm: {name: fedavg, rounds: 1}\ntopology: {edges: 0, devices: 2}\n"


class World:
    """Engines by host; the orchestrator has that of pc-1."""

    def __init__(self, tmp_path: Path, stack: AsyncExitStack) -> None:
        self.engines = {host: FakeEngine() for host in HOSTS}
        self.engines["pc-1"].images["edgebed-node"] = image("a")
        hosts = tuple(HostFacts(host, "127.0.0.1", "amd64", 1, 1) for host in HOSTS)
        self.plan = replace(spread(make_plan(parse(SCENARIO, "played.yaml"), None), HOSTS), hosts=hosts)
        folder = tmp_path / "hosts"
        folder.mkdir()
        self.stage = Stage(self.plan, RunDirectory.create(tmp_path / "runs", "played"), folder, stack)
        self._folder = folder
        self.told: list[str] = []

    async def open(self) -> None:
        for host, engine in self.engines.items():
            images = Images(self._folder, engine.connected, engine.load, engine.pull)
            await self.stage.join(host, _nothing_opens, images=images)

    async def bring(self) -> list[str]:
        architectures = {each.name: each.architecture for each in self.plan.hosts}
        wanted, given, programs = images_of(self.plan), self.plan.images, bool(self.plan.programs)
        return await copy_images(wanted, architectures, self.stage.agents, self.told.append, given, programs=programs)

    def layers(self) -> list[str | None]:
        """That of each host's image of nodes."""
        found = [engine.image("edgebed-node") for engine in self.engines.values()]
        return [None if each is None else each["RootFS"]["Layers"][0] for each in found]


async def _nothing_opens(*_: Any) -> Any:
    raise AssertionError("nothing is opened")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    SAVINGS.clear()
    async with AsyncExitStack() as stack:
        made = World(tmp_path, stack)
        monkeypatch.setattr(Engine, "connect", lambda: made.engines["pc-1"])
        monkeypatch.setattr(image_copies, "Saving", FakeSaving)
        await made.open()
        yield made


async def test_hosts_get_the_image_of_the_orchestrators_engine_at_once(world: World) -> None:
    world.engines["pc-3"].images["edgebed-node"] = image("o")
    assert await world.bring() == []
    assert world.layers() == ["a", "a", "a"]
    assert len(SAVINGS) == 1
    assert SAVINGS[0].closed
    assert [len(each.loading) for each in world.engines.values()] == [0, PIECES, PIECES]
    assert world.told[:2] == [
        "bringing the image edgebed-node (30 kB) to pc-2, pc-3",
        "edgebed-node to pc-2, pc-3: 10% (3 kB of about 30 kB)",
    ]
    assert world.told[-1] == "pc-2, pc-3: the image edgebed-node is there"
    assert len(world.told) == 2 + 9
    await world.bring()
    assert (len(SAVINGS), len(world.told)) == (1, 2 + 9)  # what is there costs nothing


PROGRAMS = """
driver: swarm
programs: {cloud: {command: serve, image: edgebed-node}, device: {command: ask, image: asking}}
topology: {edges: 0, devices: 2}
"""


async def test_only_hosts_that_need_it_get_the_image_of_a_program(world: World) -> None:
    world.plan = replace(spread(make_plan(parse(PROGRAMS, "played.yaml"), None), HOSTS), hosts=world.plan.hosts)
    program = image("p")
    program["Config"] = {}
    world.engines["pc-1"].images["asking"] = program
    await world.bring()  # the cloud lives on pc-1
    assert [engine.images.keys() - {"sha256:p"} for engine in world.engines.values()] == [
        {"edgebed-node", "asking"},
        {"asking"},
        {"asking"},
    ]
    del world.engines["pc-1"].images["asking"], world.engines["pc-3"].images["asking"]
    with pytest.raises(HostError, match=r"pc-3: no image to make.*amd64"):
        await world.bring()


async def test_a_slow_engine_holds_the_image_up_and_nothing_else(world: World) -> None:
    slow = world.engines["pc-2"]
    slow.reading.clear()
    bringing_it = asyncio.create_task(world.bring())
    await asyncio.to_thread(wait_for, lambda: SAVINGS or None, "the first piece")
    for _ in range(3):  # other requests are answered
        await world.stage.agents.call("pc-2", HostImages.images, [])
    assert PIECES - SAVINGS[0].left <= 1
    slow.reading.set()
    await asyncio.wait_for(bringing_it, PATIENCE)
    assert world.layers() == ["a", "a", "a"]


async def test_an_image_that_is_copied_in_part_is_none(world: World) -> None:
    slow = world.engines["pc-2"]
    slow.reading.clear()
    bringing_it = asyncio.create_task(world.bring())
    assert await asyncio.to_thread(slow.taking.wait, PATIENCE)
    bringing_it.cancel()
    await asyncio.gather(bringing_it, return_exceptions=True)
    slow.reading.set()
    closed = slow.closed
    await world.stage.leave("pc-2")
    assert slow.closed > closed
    assert (SAVINGS[0].closed, world.layers()) == (True, ["a", None, None])
    with pytest.raises(DriverError, match="pc-3: the image other has not"):
        await world.stage.agents.call("pc-3", HostImages.load, "other", b"x", first=False)


async def test_a_disk_that_gets_full_is_reported_with_its_host(world: World) -> None:
    world.engines["pc-3"].full = True
    with pytest.raises(HostError, match="pc-3: loading: the disk is full"):
        await world.bring()
    assert world.layers() == ["a", None, None]


async def test_hosts_pull_the_image_of_a_registry_by_one_digest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBED_IMAGE", "registry:5000/node:1")
    first = world.engines["pc-1"]
    first.registry = {"Descriptor": {"digest": "sha256:abc"}, "Platforms": [{"architecture": "amd64"}]}
    assert await world.bring() == [containing("nodes", "from the image registry:5000/node@sha256:abc")]
    assert first.looked_up == ["registry:5000/node:1"]
    for engine in world.engines.values():
        assert engine.pulled == [("registry:5000/node", "sha256:abc", "who I am")]
        there = engine.image("registry:5000/node:1")
        assert there is not None
        assert there["RepoDigests"] == ["registry:5000/node@sha256:abc"]
    assert SAVINGS == []
    await world.bring()
    assert [len(engine.pulled) for engine in world.engines.values()] == [1, 1, 1]


async def test_the_progress_and_the_error_of_a_pull_arrive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBED_IMAGE", "registry:5000/node")
    monkeypatch.setattr("orchestrator.agent.images.LOOK_EVERY", 0.01)
    world.engines["pc-1"].registry = {"Descriptor": {"digest": "sha256:abc"}}
    slow = world.engines["pc-2"]
    slow.full = True
    slow.reading.clear()
    pulling = asyncio.create_task(world.bring())
    progress = "pc-2 pulls registry:5000/node: 30% (30 B of about 100 B)"
    await asyncio.to_thread(wait_for, lambda: progress in world.told or None, progress, PATIENCE)
    slow.reading.set()
    with pytest.raises(HostError, match="pc-2: pulling: the disk is full"):
        await asyncio.wait_for(pulling, PATIENCE)


async def test_a_registry_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBED_IMAGE", "registry:5000/node")
    with pytest.raises(HostError, match="the registry is away"):
        await world.bring()


def test_each_tenth_is_reported_once_and_the_end_is_not() -> None:
    told: list[str] = []
    progress = CopyProgress(told.append)
    for done in (0, 5, 10, 19, 35, 99, 120):
        progress.at(done, 100)
    progress.at(1, 0)
    assert [each.split()[0] for each in told] == ["10%", "30%", "90%"]
