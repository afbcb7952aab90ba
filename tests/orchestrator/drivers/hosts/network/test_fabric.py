"""Links of several hosts: when one of them refuses a change, or does not answer, and where those that share media are
shaped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.drivers.hosts.agents.calls import HostLinks
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.fabric import HostsFabric
from orchestrator.errors import DriverError, FabricError, LostError
from orchestrator.fabric.base import ChannelRow, Counted, Fabric, KeepsNetworks, LinkChange, NodeHandle, SharesMedia
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.hosts.moving import Between
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, Plan, channels_of
from orchestrator.scenario.reading import parse

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms}}
"""
SHARED = """\
shared:
  cell: {up: 2mbit, down: 8mbit, members: [device-*]}
  other: {rate: 5mbit, duplex: half, members: []}
"""
CELL, TRAFFIC = "cell up", CrossTraffic("constant", 1e6)
HOSTS = {"cloud": "pc-1", "device-0": "pc-1", "device-1": "pc-2"}


class TwoHosts:
    """The agents of pc-1 and pc-2, and what the driver knows of them. ``errors``: what a host answers, or raises."""

    hosts = ("pc-1", "pc-2")

    def __init__(self) -> None:
        self.homes = dict(HOSTS)
        self.engines = dict.fromkeys(self.hosts, "userspace")
        self.tcp: dict[str, dict[str, str]] = {host: {} for host in self.hosts}
        self.between: Between = {}
        self.errors: dict[str, Exception | str] = {}
        self.refused: set[int] = set()  # changes, by their place in a batch
        self.answers: int | None = None  # the number of results of a batch
        self.changes: dict[str, list[LinkChange]] = {"pc-1": [], "pc-2": []}
        self.shaped: dict[str, list[LinkPlan]] = {"pc-1": [], "pc-2": []}
        self.media: list[tuple[Any, ...]] = []  # calls
        self.queued = 5
        self.kept: list[tuple[str, str]] = []
        self.lost: set[str] = set()

    def has(self, host: str) -> bool:
        return host in self.hosts and host not in self.lost

    async def call(self, host: str, method: Callable[..., Any], *arguments: Any) -> Any:
        error = self.errors.get(host)
        if isinstance(error, Exception):
            raise error
        if method is Fabric.counters:
            row: ChannelRow = {"channel": CELL, "member": "device-0", "packets": 1, "queued_bytes": self.queued}
            return Counted([{"source": "device-0", "target": "cloud", "offered": 1}], channels=[row])
        if method is HostLinks.shape:
            (self.shaped[host],) = arguments
            return []
        if method is HostLinks.redirect:
            return None
        if method in (SharesMedia.share, SharesMedia.occupy):
            self.media.append((host, *arguments))
            return None
        if method in (KeepsNetworks.unsent, KeepsNetworks.forget):
            self.kept.append((host, method.__name__))
            return 2
        (changes,) = arguments
        self.changes[host] += changes
        replies = ["no" if number in self.refused else error for number in range(len(changes))]
        return replies[: self.answers]


@dataclass
class Opened:
    plan: Plan
    hosts: TwoHosts = field(default_factory=TwoHosts)

    async def fabric(self) -> HostsFabric:
        fabric = HostsFabric(cast(Agents, self.hosts), self.plan, cast(HostsDriver, self.hosts))
        await fabric.shape(self.plan.links)
        return fabric


@pytest.fixture
def opened() -> Opened:
    return Opened(make_plan(parse(SCENARIO, "two.yaml"), None))


@pytest.mark.parametrize("error", ["no", DriverError("pc-2: its agent gave no answer")], ids=["refuses", "silent"])
async def test_a_host_that_fails_a_change_fails_only_its_own(opened: Opened, error: Exception | str) -> None:
    fabric = await opened.fabric()
    opened.hosts.errors["pc-2"] = error
    done = await asyncio.gather(
        fabric.cut("device-0", "cloud"), fabric.cut("device-1", "cloud"), return_exceptions=True
    )
    assert done[0] is None
    assert isinstance(done[1], FabricError)
    del opened.hosts.errors["pc-2"]
    for host in TwoHosts.hosts:
        opened.hosts.changes[host].clear()
        await fabric.reshape(host)
    cut = {host: [(each.source, each.target) for each in opened.hosts.changes[host]] for host in TwoHosts.hosts}
    assert cut == {"pc-1": [("device-0", "cloud")], "pc-2": []}


async def test_a_profile_that_is_refused_does_not_come_back(opened: Opened) -> None:
    fabric = await opened.fabric()
    before = opened.hosts.shaped["pc-2"]
    opened.hosts.errors["pc-2"] = "no"
    with pytest.raises(FabricError, match="pc-2: no"):
        await fabric.change("device-1", "cloud", LinkProfile(latency=0.5))
    del opened.hosts.errors["pc-2"]
    await fabric.reshape("pc-2")
    assert opened.hosts.shaped["pc-2"] == before


@pytest.mark.parametrize("refused", [0, 1])
async def test_of_two_changes_of_a_link_the_one_that_is_made_stays(opened: Opened, refused: int) -> None:
    fabric = await opened.fabric()
    opened.hosts.refused = {refused}
    profiles = [LinkProfile(latency=0.3), LinkProfile(latency=0.5)]
    done = await asyncio.gather(
        *(fabric.change("device-1", "cloud", profile) for profile in profiles), return_exceptions=True
    )
    assert [isinstance(each, FabricError) for each in done] == [refused == 0, refused == 1]
    opened.hosts.refused = set()
    await fabric.reshape("pc-2")
    shaped = {each.source: each.profile for each in opened.hosts.shaped["pc-2"]}
    assert shaped["device-1"] == profiles[1 - refused]


async def test_a_host_that_answers_for_too_few_changes_is_named(opened: Opened) -> None:
    fabric = await opened.fabric()
    opened.hosts.answers = 0
    with pytest.raises(FabricError, match=r"^pc-2: its agent gave 0 results"):
        await fabric.cut("device-1", "cloud")


async def test_a_change_for_a_lost_host_takes_effect_later(opened: Opened) -> None:
    fabric = await opened.fabric()
    opened.hosts.errors["pc-2"] = LostError("pc-2: its agent is away")
    await fabric.cut("device-1", "cloud")
    del opened.hosts.errors["pc-2"]
    await fabric.reshape("pc-2")
    assert [(each.source, each.target) for each in opened.hosts.changes["pc-2"]] == [("device-1", "cloud")]


async def test_the_kernel_of_a_nodes_host_sends_what_it_holds(opened: Opened) -> None:
    fabric = await opened.fabric()
    handle = NodeHandle(7, "pc-2")
    assert isinstance(fabric, KeepsNetworks)
    assert await fabric.unsent(handle) == 2
    await fabric.forget(handle)
    assert opened.hosts.kept == [("pc-2", "unsent"), ("pc-2", "forget")]
    opened.hosts.lost.add("pc-2")
    assert await fabric.unsent(handle) == 0
    await fabric.forget(handle)
    assert len(opened.hosts.kept) == 2


async def test_counters_of_a_silent_host_stay(opened: Opened) -> None:
    fabric = await opened.fabric()
    before = await fabric.counters()
    opened.hosts.errors["pc-2"] = DriverError("pc-2: its agent gave no answer")
    assert await fabric.counters() == before


@pytest.fixture
async def shared() -> tuple[TwoHosts, HostsFabric]:
    """Both devices are in a cell, with traffic on it; another cell is empty."""
    hosts, plan = TwoHosts(), make_plan(parse(SCENARIO + SHARED, "two.yaml"), None)
    plan = replace(plan, hosts=tuple(HostFacts(host, "192.0.2.1", "amd64", 4, 1 << 33) for host in hosts.hosts))
    fabric = HostsFabric(cast(Agents, hosts), plan, cast(HostsDriver, hosts))
    await fabric.share(channels_of(plan.media))
    assert hosts.media == []  # no link crosses them yet
    await fabric.shape(plan.links)
    await fabric.occupy(CELL, TRAFFIC, 7)
    return hosts, fabric


def shapers(hosts: TwoHosts) -> dict[str, tuple[list[str], list[str]]]:
    """By host, the sources of the links to the cloud: of those that are shaped at the source, and of the others."""
    found = {}
    for host, links in hosts.shaped.items():
        up = [each for each in links if each.target == "cloud"]
        found[host] = [each.source for each in up if not each.at_target], [each.source for each in up if each.at_target]
    return found


async def test_all_links_of_a_medium_are_shaped_on_one_host(shared: tuple[TwoHosts, HostsFabric]) -> None:
    hosts, fabric = shared
    assert shapers(hosts) == {"pc-1": (["device-0"], ["device-1"]), "pc-2": ([], ["device-1"])}
    assert [(host, set(made)) for host, made in hosts.media[:1]] == [("pc-1", {"cell up", "cell down"})]
    assert hosts.media[1:] == [("pc-1", CELL, TRAFFIC, 7)]
    await asyncio.gather(fabric.cut("device-1", "cloud"), fabric.change("cloud", "device-1", LinkProfile()))
    assert {host: len(changes) for host, changes in hosts.changes.items()} == {"pc-1": 2, "pc-2": 0}
    await fabric.share({CELL: ChannelProfile(1e6)})
    assert hosts.media[-1] == ("pc-1", {CELL: ChannelProfile(1e6)})


async def test_a_handover_keeps_a_cut_and_gives_an_empty_medium_its_home(shared: tuple[TwoHosts, HostsFabric]) -> None:
    hosts, fabric = shared
    await fabric.cut("device-1", "cloud")
    await fabric.reroute("device-1", "cloud", (Crossing("other", "device-1"),))
    assert (hosts.media[-1][0], set(hosts.media[-1][1])) == ("pc-1", {"other"})
    await fabric.reshape("pc-1")
    assert hosts.changes["pc-1"][-1] == LinkChange("device-1", "cloud", cut=True)
    (link,) = [each for each in hosts.shaped["pc-1"] if (each.source, each.target) == ("device-1", "cloud")]
    assert link.crossings == (Crossing("other", "device-1"),)


async def test_a_handover_to_a_medium_of_another_host_is_refused(shared: tuple[TwoHosts, HostsFabric]) -> None:
    hosts, fabric = shared
    fabric._homes["other"] = "pc-2"
    with pytest.raises(FabricError, match=r"device-1 cannot join other.*pc-2"):
        await fabric.reroute("device-1", "cloud", (Crossing("other", "device-1"),))
    await fabric.reshape("pc-1")
    assert all(each.channel != "other" for link in hosts.shaped["pc-1"] for each in link.crossings)


async def test_a_profile_of_a_channel_that_a_host_refuses_does_not_come_back(
    shared: tuple[TwoHosts, HostsFabric],
) -> None:
    hosts, fabric = shared
    planned = hosts.media[0][1]
    hosts.errors["pc-1"] = FabricError("no")
    with pytest.raises(FabricError, match="no"):
        await fabric.share({CELL: ChannelProfile(1e6)})
    del hosts.errors["pc-1"]
    hosts.media.clear()
    await fabric.reshape("pc-1")
    assert hosts.media[0] == ("pc-1", planned)


@pytest.mark.parametrize("refusal", ["the channel", "the handover"])
async def test_a_refused_handover_gives_an_empty_medium_no_home(
    shared: tuple[TwoHosts, HostsFabric], refusal: str
) -> None:
    hosts, fabric = shared
    way = (Crossing("other", "device-1"),)
    if refusal == "the channel":
        hosts.errors["pc-1"] = DriverError("pc-1: its agent gave no answer")
    else:
        hosts.refused = {0}
    done = await fabric.alter([LinkChange("device-1", "cloud", crossings=way)])
    assert isinstance(done[0], FabricError)
    hosts.errors.clear()
    hosts.media.clear()
    await fabric.reshape("pc-1")
    assert all("other" not in made for _, made, *_ in hosts.media)


async def test_a_medium_moves_with_the_node_above_its_links(shared: tuple[TwoHosts, HostsFabric]) -> None:
    hosts, fabric = shared
    before = (await fabric.counters()).channels
    assert before == [{"channel": CELL, "member": "device-0", "packets": 2, "queued_bytes": 5}]  # of both fakes
    hosts.lost = {"pc-1"}
    await fabric.share({CELL: ChannelProfile(1e6)})
    hosts.media.clear()
    hosts.homes |= {"cloud": "pc-2"}
    hosts.queued = 9
    await fabric.redirect(["cloud"])
    assert shapers(hosts)["pc-2"] == (["device-1"], ["device-0"])
    assert [host for host, *_ in hosts.media] == ["pc-2", "pc-2"]
    assert hosts.media[0][1][CELL] == ChannelProfile(1e6)
    assert hosts.media[1][1:] == (CELL, TRAFFIC, 7)
    (row,) = (await fabric.counters()).channels
    assert row == {"channel": CELL, "member": "device-0", "packets": 2, "queued_bytes": 9}
