"""Calls of the driver, the fabric and the prober of several hosts to their agents, with the fakes of these there."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from netem.media.profile import Crossing, CrossTraffic
from netem.profile import LinkProfile
from node.errors import WireError
from orchestrator.agent.host_run import HostRun
from orchestrator.agent.log_stream import LogStream
from orchestrator.agent.worker import Worker
from orchestrator.drivers.base import CanPause, Driver, Exit, HostChange, HostReadings, NodeMove
from orchestrator.drivers.hosts.agents.calls import HostDataSets, HostFiles, HostSetup
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.network import underlay
from orchestrator.drivers.hosts.network.fabric import HostsFabric
from orchestrator.drivers.hosts.network.underlay import HostsUnderlay
from orchestrator.drivers.swarm.starting import dismiss
from orchestrator.errors import DriverError, FabricError
from orchestrator.fabric.base import Fabric, LinkChange, NodeHandle
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.host.hashes import hash_of_files
from orchestrator.host.sensors.sensor import Reading, Sensor
from orchestrator.planning.hosts.inventory import Underlay
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Accelerated, Plan, channels_of
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.network import NetworkReading, PairReading
from orchestrator.scenario.reading import parse
from tests.e2e.harness import wait_for
from tests.fakes.driver import FakeControl, FakeDriver
from tests.fakes.fabric import FakeFabric
from tests.fakes.link_prober import FakeProber
from tests.orchestrator.agent.stage import LEASE, PATIENCE, Stage, spread
from tests.texts import containing

HOSTS = ("pc-1", "pc-2")
SCENARIO = """
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 3}
links: {device-cloud: {latency: 20ms, rate: 10mbit}}
"""
UNDERLAY = 0.005  # s


def setup_of(plan: Plan, host: str) -> HostSetup:
    programs = plan.programs or None
    return HostSetup(
        host, ["other"], [Accelerated(None, "cuda", ["x"])], programs, {"x": "10.0.0.1"}, wires_of(plan), None
    )


class World:
    """The stage of a run on two hosts, and the fakes of each."""

    def __init__(
        self, tmp_path: Path, stack: AsyncExitStack, plan: Plan, make_driver: Callable[[], FakeDriver]
    ) -> None:
        self.plan = spread(plan, HOSTS)
        self.directory = RunDirectory.create(tmp_path / "runs", "played")
        self.hosts = tmp_path / "hosts"
        self.hosts.mkdir()
        self.stage = Stage(self.plan, self.directory, self.hosts, stack)
        self._make_driver = make_driver
        self.drivers: dict[str, FakeDriver] = {}
        self.fabrics: dict[str, FakeFabric] = {}
        self.probers: dict[str, FakeProber] = {}
        self.opened: dict[str, Any] = {}
        self.shown: list[HostReadings] = []

    def player(self, host: str) -> Callable[..., Any]:
        async def make(setup: HostSetup, directory: RunDirectory, data: Path, stack: AsyncExitStack) -> HostRun:
            self.opened[host] = setup, [each.stat().st_size for each in data.glob("train.npy")]  # noqa: ASYNC240
            driver = self.drivers[host] = self._make_driver()
            fabric = self.fabrics[host] = FakeFabric()
            fabric.figures = {"forwarded": 5, "late_max": 0.5, "cpu_seconds": 0.25, "from_strangers": 3}
            fabric.figures["drops"] = {"somewhere": 1}
            fabric.refuse = lambda change: None if change.cut is None else "no scissors"
            stack.push_async_callback(fabric.close)
            prober = self.probers[host] = FakeProber()
            return HostRun(cast(Driver, driver), cast(Fabric, fabric), prober)

        return make

    def use(self, plan: Plan) -> None:
        """Another plan for the same hosts."""
        self.plan = self.stage.driver._plan = plan

    async def open(self) -> None:
        for host in HOSTS:
            await self.stage.join(host, self.player(host))
        await self.stage.driver.open()
        await self.stage.driver.open_links(lambda host: setup_of(self.plan, host))

    def fabric(self) -> HostsFabric:
        found = Underlay(UNDERLAY, None, 1500)
        self.stage.driver.between = {HOSTS: found, HOSTS[::-1]: found}
        return HostsFabric(self.stage.agents, self.plan, self.stage.driver)

    async def start(self, name: str, content: bytes = b"{}") -> NodeHandle:
        assignment = self.directory.nodes / f"{name}.json"
        if not self.plan.programs:
            assignment.write_bytes(content)
        return await self.stage.driver.start(self.plan.node(name), assignment, self.directory.logs / f"{name}.log")

    async def changes(self, number: int) -> list[HostChange | NodeMove]:
        """The next changes of hosts and moves. What hosts show meanwhile is kept in ``shown``."""
        found: list[HostChange | NodeMove] = []
        while len(found) < number:
            news = await asyncio.wait_for(self.stage.driver.news.get(), PATIENCE)
            if isinstance(news, HostReadings):
                self.shown.append(news)
            else:
                found.append(news)
        return found

    async def lose(self, host: str) -> HostsFabric:
        """A host that has nodes and links falls silent."""
        fabric = self.fabric()
        self.stage.driver.on_reopen, self.stage.driver.on_move = fabric.reshape, fabric.redirect
        await fabric.shape(self.plan.links)
        await self.start("device-0")
        await self.stage.leave(host)
        (change,) = await self.changes(1)
        assert change[:2] == (host, "lost")
        return fabric

    async def logged(self, name: str, text: str) -> None:
        log = self.directory.logs / f"{name}.log"
        await asyncio.to_thread(wait_for, lambda: (log.exists() and text in log.read_text()) or None, text, PATIENCE)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.npy").write_bytes(bytes(3 << 20))  # in several pieces
    plan = replace(make_plan(parse(SCENARIO, "played.yaml"), None), data_directory=str(data))
    async with AsyncExitStack() as stack:
        made = World(tmp_path, stack, plan, lambda: FakeDriver(FakeControl()))
        made.directory.shards.write_bytes(b"shards")
        (made.directory.plugins / "mine.py").write_text("pass\n")
        await made.open()
        yield made


async def test_a_host_gets_the_files_of_the_run_and_its_data_once(world: World) -> None:
    assert world.opened == {host: (setup_of(world.plan, host), [3 << 20]) for host in HOSTS}
    assert world.stage.driver.notes() == ["pc-1: a note", "pc-2: a note"]
    run = world.hosts / "pc-2" / world.directory.run
    assert (run / "shards.npz").read_bytes() == b"shards"
    assert (run / "plugins" / "mine.py").read_text() == "pass\n"
    with pytest.raises(DriverError, match="no file of the run"):
        await world.stage.agents.call("pc-2", HostFiles.put, Path("../../other"), b"x", first=True)


async def test_an_agent_is_named_after_its_run(tmp_path: Path) -> None:
    named: list[str] = []
    worker = Worker(tmp_path, lambda name, **fields: None, unasked, unasked, on_begin=named.append)
    await worker.answer("Host.begin", {"run": "mine-1"})
    assert named == ["mine-1"]
    await worker.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("Driver.fly", {}, r"no call 'Driver.fly': the agent"),
        ("Worker.close", {}, r"no call 'Worker.close': the agent"),
        ("RunsPrograms.release", {"node": "a", "code": 0}, r"no call 'RunsPrograms.release': a FakeDriver"),
        ("Driver.kill", {"node": 7}, r"'Driver.kill' .* \(node: Input should"),
        ("Driver.kill", {}, r"'Driver.kill' .* \(node: Field required"),
    ],
)
async def test_a_call_that_is_not_possible_is_refused(world: World, call: str, arguments: Message, error: str) -> None:
    with pytest.raises(DriverError, match=error):
        await world.stage.agents.request("pc-1", call, arguments)


async def unasked(*_: object) -> Any:
    raise AssertionError


async def test_a_host_keeps_the_data_set_for_the_next_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept,) = world.stage.datasets_of("pc-2").iterdir()
    assert kept.name == hash_of_files(Path(world.plan.data_directory))
    await world.stage.leave("pc-2")
    await world.changes(1)
    asked = []
    call = world.stage.agents.call

    async def noted(host: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        asked.append(method)
        return await call(host, method, *arguments, **named)

    monkeypatch.setattr(world.stage.agents, "call", noted)
    await world.stage.join("pc-2", world.player("pc-2"))
    assert await world.changes(1) == [HostChange("pc-2", "back")]
    assert (HostDataSets.has_data in asked, HostDataSets.put_data in asked) == (True, False)


async def test_a_node_runs_on_its_host_and_its_end_and_output_arrive(world: World) -> None:
    # cloud, device-0, device-1, device-2 alternate between the hosts
    handle = await world.start("device-0", b"secret")
    assert handle == NodeHandle(101, "pc-2")
    assert world.drivers["pc-2"].assignments == {"device-0": b"secret"}
    await world.logged("device-0", "device-0 at 10.77.0.2\n")
    secret = world.hosts / "pc-2" / world.directory.run / "nodes" / "device-0.json"
    assert await asyncio.to_thread(secret.exists)
    await world.stage.driver.forget("device-0")
    assert not await asyncio.to_thread(secret.exists)
    await world.stage.driver.pause("device-0")
    assert world.drivers["pc-2"].paused == {"device-0"}
    await world.stage.driver.resume("device-0")
    await world.stage.driver.kill("device-0")
    assert await asyncio.wait_for(world.stage.driver.exits.get(), PATIENCE) == Exit(
        "device-0", NodeHandle(101, "pc-2"), -9
    )
    assert (world.directory.logs / "device-0.log").read_text().endswith("killed\n")  # before its end
    await world.start("device-2", b"secret")
    world.drivers["pc-2"].end("device-2", -9, out_of_memory=True)
    ended = await asyncio.wait_for(world.stage.driver.exits.get(), PATIENCE)
    assert (ended.node, ended.out_of_memory) == ("device-2", True)


async def answer(world: World) -> None:
    """Wait until the agent of pc-2 answers a call, with a refusal."""
    with pytest.raises(DriverError, match="does not run"):
        await world.stage.agents.call("pc-2", CanPause.pause, "device-2")


async def test_a_slow_disk_of_the_orchestrator_does_not_stop_its_loop(world: World) -> None:
    driver, log = world.stage.driver, world.directory.logs / "device-2.log"
    os.mkfifo(log)  # a write waits until somebody reads
    tested = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(lambda: (tested.wait(PATIENCE), log.read_bytes())))
    driver.hear("pc-2", {"name": "log", "log": "device-2", "data": b"last words\n"})
    driver.hear("pc-2", {"name": "exit", "node": "device-2", "pid": 1, "code": 0})
    await answer(world)
    assert driver.exits.empty()  # the output of a node comes before its end
    tested.set()
    assert await asyncio.wait_for(driver.exits.get(), PATIENCE) == Exit("device-2", NodeHandle(1, "pc-2"), 0)
    assert await reading == (True, b"last words\n")


async def test_a_slow_disk_of_a_host_does_not_stop_its_agent_and_nothing_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, tested, pieces = threading.Event(), threading.Event(), ["device-2"]

    def read(output: LogStream) -> Iterator[tuple[str, bytes]]:
        while pieces:
            log = pieces.pop()
            reads.set()
            yield log, b"in time\n" if tested.wait(PATIENCE) else b"too late\n"

    monkeypatch.setattr(LogStream, "read", read)
    assert await asyncio.to_thread(reads.wait, PATIENCE)
    await answer(world)
    closing = asyncio.create_task(world.stage.driver.close())
    await answer(world)  # the agent has got the request to finish
    tested.set()
    await closing
    assert (world.directory.logs / "device-2.log").read_text() == "in time\n"


def _wait_for_content(path: Path, content: bytes) -> None:
    wait_for(lambda: (path.exists() and path.read_bytes() == content) or None, f"the content of {path}", PATIENCE)


async def test_checkpoints_arrive_whole_and_go_back_when_a_run_continues(world: World) -> None:
    folder = world.hosts / "pc-2" / world.directory.run / "checkpoints" / "device-0"
    await asyncio.to_thread(folder.mkdir)
    kept = world.directory.checkpoints_of("device-0") / "device-0.checkpoint"
    for content in (b"a" * (3 << 20), b"b" * 7):
        part = folder / "device-0.checkpoint.new"
        await asyncio.to_thread(part.write_bytes, content)
        part.rename(folder / "device-0.checkpoint")
        await asyncio.to_thread(_wait_for_content, kept, content)
    for worker in world.stage.workers.values():
        await worker.close()
    await world.stage.driver.open()
    assert await asyncio.to_thread((folder / "device-0.checkpoint").read_bytes) == b"b" * 7


async def test_a_link_is_shaped_where_its_sender_lives_less_what_the_hosts_network_adds(world: World) -> None:
    fabric = world.fabric()
    await fabric.shape(world.plan.links)
    shaped = {host: each.links for host, each in world.fabrics.items()}
    assert set(shaped["pc-1"]) & set(shaped["pc-2"]) == {("cloud", "device-0"), ("device-0", "cloud")} | {
        ("cloud", "device-2"),
        ("device-2", "cloud"),
    }
    assert shaped["pc-1"]["cloud", "device-0"].latency == pytest.approx(0.015)
    assert shaped["pc-1"]["cloud", "device-1"].latency == 0.02  # on one host
    assert shaped["pc-1"]["cloud", "device-1"].rate == 10e6


async def test_nothing_is_taken_off_a_real_link_and_nothing_is_shaped(world: World) -> None:
    real = [replace(link, profile=LinkProfile(real=True)) for link in world.plan.links]
    await world.fabric().shape(real)
    for host in HOSTS:
        assert set(world.fabrics[host].links.values()) == {LinkProfile(real=True)}


async def test_changes_go_to_the_senders_hosts_and_errors_come_back_in_order(world: World) -> None:
    fabric = world.fabric()
    await fabric.shape(world.plan.links)
    changed = LinkChange("device-0", "cloud", profile=LinkProfile(latency=0.1))
    errors = await fabric.alter([changed, LinkChange("cloud", "device-0", cut=True), changed])
    assert [str(error) for error in errors] == ["None", "pc-1: link cloud -> device-0: no scissors", "None"]
    with pytest.raises(FabricError, match="pc-1: link cloud -> device-0: no scissors"):
        await fabric.cut("cloud", "device-0")


async def test_channels_are_made_on_the_host_that_all_of_their_links_pass(world: World) -> None:
    """The links of device-0 and device-2 come from pc-2, that of device-1 stays on pc-1."""
    plan = make_plan(parse(SCENARIO + "shared: {cell: {rate: 9mbit, members: [device-*]}}", "played.yaml"), None)
    world.use(replace(world.plan, links=plan.links, media=plan.media))
    fabric, here, away = world.fabric(), world.fabrics["pc-1"], world.fabrics["pc-2"]
    channels, traffic = channels_of(plan.media), CrossTraffic("trace", rows=((0.0, 1e6), (5.0, 2e6)))
    await fabric.share(channels)
    await fabric.shape(world.plan.links)
    await fabric.occupy("cell up", traffic, 7)
    assert (here.channels, away.channels) == (channels, {})
    assert here.occupied == {"cell up": (traffic, 7)}
    assert here.crossings["device-0", "cloud"] == (Crossing("cell up", "device-0"),)
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.05))
    assert here.links["device-0", "cloud"].latency == pytest.approx(0.05 - UNDERLAY)
    here.figures["channels"] = [{"channel": "cell up", "member": "device-0", "bytes": 5, "queued_bytes": 1}]
    assert (await fabric.counters()).channels == here.figures["channels"]


async def test_counters_of_all_hosts_are_added(world: World) -> None:
    fabric = world.fabric()
    await fabric.shape(world.plan.links)
    counted = await fabric.counters()
    assert (counted.forwarded, counted.late_max, counted.cpu_seconds) == (10, 0.5, 0.5)
    assert counted.drops == {"somewhere on pc-1": 1, "somewhere on pc-2": 1}
    assert fabric.strangers() == {"pc-1": 3, "pc-2": 3}


def network(world: World) -> HostsUnderlay:
    return HostsUnderlay(world.plan, world.stage.agents, world.stage.driver, world.fabric())


async def test_the_network_between_hosts_is_measured_by_their_agents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(underlay, "SPACING", 0.01)
    measured = network(world)
    assert measured.first == NetworkReading((PairReading(HOSTS, UNDERLAY),), first=True)
    for _ in range(2):
        (pair,) = (await measured.measure()).pairs
        assert (pair.hosts, pair.echoes, pair.lost) == (HOSTS, 10, 0)
        assert pair.delay is not None
        assert 0 <= pair.delay < 0.5


async def test_a_host_that_is_lost_is_not_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underlay, "SPACING", 0.01)
    measured = network(world)
    await world.stage.leave("pc-2")
    for _ in range(2):  # while it is silent, and when that is known
        assert await measured.measure() == NetworkReading((), away=("pc-2",))


async def test_a_host_that_fails_counts_as_lost_and_its_agent_ends(world: World) -> None:
    handle = await world.start("device-0")
    world.fabrics["pc-2"].failed.set_exception(FabricError("the switch ended"))
    assert await asyncio.wait_for(world.stage.driver.exits.get(), PATIENCE) == Exit("device-0", handle, -9)
    assert HostChange("pc-2", "lost", "the switch ended") in [await world.stage.driver.news.get() for _ in range(2)]
    assert world.stage.workers["pc-2"].over.is_set()
    assert not world.stage.workers["pc-1"].over.is_set()


async def test_agents_that_are_let_go_end(world: World) -> None:
    workers = world.stage.workers
    await world.stage.leave("pc-2")  # it does not answer
    await dismiss(world.stage.agents)
    assert {host: worker.over.is_set() for host, worker in workers.items()} == {"pc-1": True, "pc-2": False}


async def test_nothing_of_the_run_stays_on_its_hosts(world: World) -> None:
    await world.start("cloud")
    await world.stage.driver.close()
    await world.logged("cloud", "cloud at 10.77.0.1\n")
    assert world.stage.driver.news.empty()
    for worker in world.stage.workers.values():
        await worker.close()
    assert list(world.hosts.rglob("*.*")) == []


async def test_a_host_that_was_lost_is_opened_again_with_its_links_as_they_are(world: World) -> None:
    fabric = world.fabric()
    world.stage.driver.on_reopen = fabric.reshape
    await fabric.shape(world.plan.links)
    handle = await world.start("device-0")
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.1))
    ends = "device-0", "cloud"
    world.fabrics["pc-2"].counted[ends] = {"offered": 20, "overflowed": 7}
    world.fabrics["pc-2"].figures["late"] = 3
    probed = {"source": ends[0], "target": ends[1], "offered": 20, "overflowed": 7}
    assert ((read := await fabric.counters()).links, read.late) == ([probed], 3)
    await world.stage.leave("pc-2")
    ended = await asyncio.wait_for(world.stage.driver.exits.get(), PATIENCE)
    assert ended == Exit("device-0", handle, -9)
    (change,) = await world.changes(1)
    assert change[:2] == ("pc-2", "lost")
    assert change.reason.startswith("nothing was received")
    assert await fabric.alter([LinkChange("device-2", "cloud", profile=LinkProfile(latency=0.2))]) == [None]
    before = await fabric.counters()  # the last ones of the lost host
    assert (before.links, before.forwarded, before.late) == ([probed], 10, 0)
    await fabric.detach(world.plan.node("device-0"))

    waiting = asyncio.create_task(world.stage.driver.ready("device-0"))
    await world.stage.join("pc-2", world.player("pc-2"))
    assert await asyncio.wait_for(waiting, PATIENCE) is None
    assert await world.changes(1) == [HostChange("pc-2", "back")]
    assert world.fabrics["pc-2"].links["device-0", "cloud"].latency == pytest.approx(0.1 - UNDERLAY)
    assert world.fabrics["pc-2"].links["device-2", "cloud"].latency == pytest.approx(0.2 - UNDERLAY)
    assert (await world.start("device-0")).host == "pc-2"
    for offered, overflowed in ((5, 0), (30, 1)):  # the new engine's counts pass those of the old one
        world.fabrics["pc-2"].counted[ends] = {"offered": offered, "overflowed": overflowed}
        (row,) = (read := await fabric.counters()).links
        assert (row["offered"], row["overflowed"]) == (20 + offered, 7 + overflowed)
        assert (read.forwarded, read.drops) == (15, {"somewhere on pc-1": 1, "somewhere on pc-2": 2})


# pc-2 has device-0 and device-2


@pytest.mark.slow
async def test_the_nodes_of_a_host_that_stays_away_move_with_their_checkpoints(world: World) -> None:
    driver = world.stage.driver
    kept = world.directory.checkpoints_of("device-0") / "device-0.checkpoint"
    kept.parent.mkdir()
    kept.write_bytes(b"kept")
    os.utime(kept, (time.time() - 100, time.time() - 100))
    fabric = await world.lose("pc-2")
    fabric_of_1 = world.fabrics["pc-1"]
    assert fabric_of_1.links["cloud", "device-0"].latency == pytest.approx(0.02 - UNDERLAY)
    waiting = [asyncio.create_task(driver.ready(node)) for node in ("device-0", "device-2")]
    moved = [each for each in await world.changes(2) if isinstance(each, NodeMove)]
    assert [await asyncio.wait_for(each, PATIENCE) for each in waiting] == [None, None]
    assert [each[:3] for each in moved] == [("device-0", "pc-2", "pc-1"), ("device-2", "pc-2", "pc-1")]
    assert all(each.reason == containing("nothing", "received", "agent for 2 s") for each in moved)
    assert moved[0].checkpoint == pytest.approx(100, abs=20)
    assert moved[1].checkpoint is None
    there = world.hosts / "pc-1" / world.directory.run / "checkpoints" / "device-0" / "device-0.checkpoint"
    assert await asyncio.to_thread(there.read_bytes) == b"kept"
    assert fabric_of_1.remotes == {}
    for ends in (("cloud", "device-0"), ("device-2", "cloud")):
        assert fabric_of_1.links[ends].latency == 0.02  # nothing of them crosses hosts any more
    handle = await world.start("device-0")
    assert handle.host == "pc-1"
    await fabric.attach(world.plan.node("device-0"), handle)
    assert fabric_of_1.attached == {"device-0": handle}
    await fabric.detach(world.plan.node("device-0"))
    assert fabric_of_1.attached == {}
    await driver.pause("device-0")
    assert world.drivers["pc-1"].paused == {"device-0"}
    cut = LinkChange("device-2", "cloud", cut=True)
    assert [str(error) for error in await fabric.alter([cut])] == ["pc-1: link device-2 -> cloud: no scissors"]

    await world.stage.join("pc-2", world.player("pc-2"))
    assert await world.changes(1) == [HostChange("pc-2", "back")]
    assert driver.homes["device-0"] == "pc-1"
    assert (world.drivers["pc-2"].started, world.fabrics["pc-2"].links) == ([], {})  # nobody lives there
    assert await driver.ready("device-0") is None
    # A checkpoint that is still told by its old host is not its own.
    driver.hear("pc-2", {"name": "checkpoint", "node": "device-0", "data": b"old", "first": True, "last": True})
    await driver.flush()
    assert kept.read_bytes() == b"kept"
    assert time.time() - kept.stat().st_mtime > 90  # though it came back from pc-1


@pytest.mark.slow
async def test_no_node_moves_before_nothing_of_it_can_run_on_its_host(world: World) -> None:
    """The agent is not heard any more, but hears: its lease begins when the orchestrator gives it up."""
    driver = world.stage.driver
    await world.start("device-0")
    world.stage.agents.lose("pc-2", "not heard")
    waiting = asyncio.create_task(driver.ready("device-0"))
    assert await asyncio.wait_for(waiting, PATIENCE) is None
    assert driver.homes["device-0"] == "pc-1"
    assert world.stage.ended == {"pc-2"}


async def test_a_host_that_is_back_in_time_keeps_its_nodes(world: World) -> None:
    await world.lose("pc-2")
    waiting = asyncio.create_task(world.stage.driver.ready("device-0"))
    await world.stage.join("pc-2", world.player("pc-2"))
    assert await asyncio.wait_for(waiting, PATIENCE) is None
    assert world.stage.driver.homes["device-0"] == "pc-2"


@pytest.mark.slow
async def test_a_node_that_cannot_move_waits_for_its_host(world: World) -> None:
    placement = world.plan.placement
    assert placement is not None
    only = {**placement.allowed, "device-0": ("pc-2",)}
    world.use(replace(world.plan, placement=replace(placement, allowed=only)))
    await world.lose("pc-2")
    waiting = [asyncio.create_task(world.stage.driver.ready(node)) for node in ("device-0", "device-2")]
    assert [each[:3] for each in await world.changes(2)] == [("device-0", "pc-2", None), ("device-2", "pc-2", "pc-1")]
    assert [await asyncio.wait_for(each, PATIENCE) for each in waiting] == [
        "its host pc-2 stays away, and `hosts` allows none of pc-1",
        None,
    ]


@pytest.mark.slow
async def test_without_restarts_no_node_moves(world: World) -> None:
    world.use(replace(world.plan, restart="never"))
    await world.lose("pc-2")
    assert await world.stage.driver.ready("device-0") == "its host pc-2 stays away"
    assert world.stage.driver.homes["device-0"] == "pc-2"


@pytest.mark.slow
async def test_a_host_with_links_that_cannot_follow_counts_as_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(remotes: Mapping[str, str]) -> None:
        raise FabricError("no way")

    await world.lose("pc-2")
    monkeypatch.setattr(world.fabrics["pc-1"], "redirect", refuse)
    waiting = asyncio.create_task(world.stage.driver.ready("device-0"))
    assert HostChange("pc-1", "lost", "pc-1: no way") in await world.changes(2)
    waiting.cancel()


def meter(folder: Path, name: str) -> Sensor:
    """Shows the W that are in a file of its name."""
    (folder / name).write_text("5")
    return Sensor("power", "test", name, (folder / name,), lambda texts: float(texts[0]))


async def readings(world: World, number: int) -> list[HostReadings]:
    """What hosts show next."""
    driver = world.stage.driver
    found = [await asyncio.wait_for(driver.news.get(), PATIENCE) for _ in range(number)]
    assert all(isinstance(each, HostReadings) for each in found)
    return sorted(cast(list[HostReadings], found))


async def test_each_host_reports_what_its_sensors_show_and_what_changes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.host.sensors.sensing.SENSE_EVERY", 0.01)
    world.stage.sensors = {host: [meter(tmp_path, f"{host}.{rail}") for rail in ("in", "cpu")] for host in HOSTS}
    await world.stage.driver.sense()
    first = [[Reading("power", "test", f"{host}.{rail}", 5.0) for rail in ("in", "cpu")] for host in HOSTS]
    assert [(each.host, each.readings) for each in await readings(world, 2)] == list(zip(HOSTS, first, strict=True))
    (tmp_path / "pc-2.cpu").write_text("7")
    changed = HostReadings("pc-2", [Reading("power", "test", "pc-2.cpu", 7.0)])
    assert await readings(world, 1) == [changed]
    await world.stage.driver.sense()
    assert [len(each.readings) for each in await readings(world, 2)] == [2, 2]


async def test_sensors_that_hang_hold_up_no_agent(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orchestrator.host.sensors.sensing.PATIENCE", 0.05)
    let_go = threading.Event()
    hangs = replace(meter(tmp_path, "hangs"), value=lambda _: float(let_go.wait(60)))
    world.stage.sensors = {"pc-1": [meter(tmp_path, "well")], "pc-2": [hangs]}
    await world.stage.driver.sense()
    well, stopped = await readings(world, 2)
    assert (await world.start("device-0")).host == "pc-2"
    let_go.set()
    assert [each.value for each in well.readings] == [5.0]
    assert [(each.scope, each.value) for each in stopped.readings] == [("hangs", None)]
    assert "did not answer" in caplog.text


async def test_the_readings_of_a_lost_host_end_and_restart_when_it_is_back(world: World, tmp_path: Path) -> None:
    world.stage.sensors = {"pc-2": [meter(tmp_path, "in")]}
    await world.stage.driver.sense()
    await world.stage.leave("pc-2")
    await world.changes(1)
    await world.stage.driver.sense()  # of the host that is there
    await world.stage.join("pc-2", world.player("pc-2"))
    await world.changes(1)
    (again,) = await readings(world, 1)
    before, ended = world.shown
    assert [each.value for each in before.readings] == [5.0]
    assert [(each.value, each.detail[:20]) for each in ended.readings] == [(None, "the host is lost: no")]
    assert LEASE <= ended.ago < 2 * LEASE
    assert (again.host, [each.value for each in again.readings]) == ("pc-2", [5.0])


@pytest.mark.parametrize("row", [[], ["power", "test", "in", "much", ""], "power", None])
async def test_what_is_no_reading_is_refused(world: World, row: Any) -> None:
    """`Agents` logs it."""
    with pytest.raises(WireError, match=r"^readings\.0"):
        world.stage.driver.hear("pc-1", {"name": "sensors", "readings": [row]})
    assert world.stage.driver.news.empty()
