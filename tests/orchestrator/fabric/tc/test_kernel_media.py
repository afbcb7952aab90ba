"""Shared media of the kernel engine, with a tc that only remembers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from orchestrator.errors import FabricError, HostError
from orchestrator.fabric.base import LinkChange, NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan, channels_of
from orchestrator.scenario.reading import parse
from tests.orchestrator.fabric.tc.test_kernel import WritingHub

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 3}
links: {device-cloud: {latency: 10ms}}
shared:
  cell: {up: 4mbit, down: 8mbit, members: [device-0, device-1]}
  line: {rate: 2mbit, share: fifo, members: [device-2]}
"""
UP, LINE = "cell up", "line up"
FIRST = ("device-0", "cloud")


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "media.yaml"), None)


@pytest.fixture
def hub() -> WritingHub:
    return WritingHub()


@pytest.fixture
async def fabric(plan: Plan, hub: WritingHub, tmp_path: Path) -> KernelFabric:
    fabric = await KernelFabric.open(cast(Hub, hub), "run", tmp_path, wires_of(plan), seed=True)
    await fabric.share(channels_of(plan.media))
    await fabric.shape(plan.links)
    for node in plan.nodes:
        await fabric.attach(node, NodeHandle(4711))
    return fabric


def redirections(hub: WritingHub, interface: str) -> list[str]:
    """The class and the device to which packets from an interface were redirected, IPv6 as IPv4."""
    ipv4 = _redirections(hub, f"filter replace dev {interface} parent ffff: protocol ip ")
    assert _redirections(hub, f"filter replace dev {interface} parent ffff: protocol ipv6 ") == ipv4
    return ipv4


def _redirections(hub: WritingHub, start: str) -> list[str]:
    redirected = []
    for line in hub.lines():
        if line.startswith(start):
            class_id = line.split(" priority ")[1].split()[0]
            device = line.split(" redirect dev ")[1].split()[0]
            redirected.append(f"{class_id} {device}")
    return redirected


async def test_each_channel_is_a_device_with_a_class_for_each_member(hub: WritingHub, fabric: KernelFabric) -> None:
    made = [line.split()[2] for line in hub.lines() if line.endswith("type ifb")]
    assert made == ["medium0", "medium1", "medium2", "medium3"]
    assert hub.leaves["medium0"].keys() == {"10:2", "10:3"}
    assert {leaf["options"]["limit"] for leaf in hub.leaves["medium0"].values()} == {25_000}  # half of 100 ms
    assert hub.leaves["medium2"].keys() == {"10:1"}
    assert fabric.notes() == []


async def test_packets_are_redirected_where_they_come_to_the_hub(
    plan: Plan, hub: WritingHub, fabric: KernelFabric
) -> None:
    assert redirections(hub, "v2.2") == ["10:2 medium0"]
    assert redirections(hub, "v3.3") == ["10:3 medium0"]
    assert redirections(hub, "v4.4") == ["10:1 medium2"]
    assert redirections(hub, "v1.1") == ["10:2 medium1", "10:3 medium1", "10:1 medium3"]
    hub.ran.clear()
    await fabric.attach(plan.node("device-0"), NodeHandle(4712))
    assert redirections(hub, "v2.5") == ["10:2 medium0"]
    assert "link set data0 gso_max_segs 1" in hub.lines(4712)  # no super-packets
    assert "tc qdisc replace dev data0 root netem limit 100000 rate 32gbit" in hub.lines(4712)


async def test_counters_are_by_member(hub: WritingHub, fabric: KernelFabric) -> None:
    counted = {(row["channel"], row["member"]): row for row in (await fabric.counters()).channels}
    assert counted[UP, "device-1"] == {
        **{"channel": UP, "member": "device-1", "packets": 10, "bytes": 15_000, "overflowed": 2},
        **{"queued_bytes": 3_000, "seconds": 0.03},
    }
    assert (LINE, "device-2") not in counted  # it has offered nothing
    hub.counts = [{"options": {"actions": [{"kind": "mirred", "index": 6, "stats": {"packets": 14, "bytes": 20_000}}]}}]
    counted = {(row["channel"], row["member"]): row for row in (await fabric.counters()).channels}
    assert counted[LINE, "device-2"]["bytes"] == 15_000


async def test_a_change_of_the_rate_counts_time_at_the_former_one(hub: WritingHub, fabric: KernelFabric) -> None:
    await fabric.share({UP: ChannelProfile(2e6)})
    assert "class change dev medium0 parent 10: classid 10:1 htb rate 2mbit ceil 2mbit " in " ".join(hub.lines())
    assert hub.leaves["medium0"]["10:3"]["options"]["limit"] == 12_500
    hub.leaves["medium0"]["10:3"]["bytes"] += 10_000
    (row,) = [row for row in (await fabric.counters()).channels if row["channel"] == UP and row["member"] == "device-1"]
    assert row["seconds"] == pytest.approx(0.03 + 0.04)


async def test_a_refused_change_of_a_channel_is_undone(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "parent 10:3 handle 13: bfifo limit 12500b"
    with pytest.raises(FabricError, match="cell up: "):
        await fabric.share({UP: ChannelProfile(2e6)})
    assert [line for line in hub.lines() if " htb rate " in line][-1].split(" htb rate ")[1].startswith("4mbit ")
    assert {leaf["options"]["limit"] for leaf in hub.leaves["medium0"].values()} == {25_000}


async def test_a_channel_that_is_refused_leaves_no_device(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "class add dev medium4 "
    with pytest.raises(HostError):
        await fabric.share({"new": ChannelProfile(2e6)})
    assert hub.lines()[-1] == "ip link del medium4"
    hub.refused, hub.ran = "", []
    await fabric.share({"new": ChannelProfile(2e6)})
    assert "link add medium4 numtxqueues 1 numrxqueues 1 type ifb" in hub.lines()


async def test_of_two_handovers_only_the_refused_one_fails(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "dev v3.3 parent ffff:"
    ways = {member: (Crossing(LINE, member),) for member in ("device-0", "device-1")}
    errors = await fabric.alter([LinkChange(member, "cloud", crossings=way) for member, way in ways.items()])
    assert [error and str(error)[:22] for error in errors] == [None, "link device-1 -> cloud"]
    assert redirections(hub, "v2.2")[-1] == "10:1 medium2"


async def test_a_handover_redirects_to_the_other_device(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.ran.clear()
    assert await fabric.alter([LinkChange(*FIRST, crossings=(Crossing(LINE, "device-0"),))]) == [None]
    assert redirections(hub, "v2.2") == ["10:1 medium2"]
    assert hub.leaves["medium0"]["10:3"]["options"]["limit"] == 50_000  # it is alone
    hub.ran.clear()
    assert await fabric.alter([LinkChange(*FIRST, crossings=(Crossing(UP, "device-0"),))]) == [None]
    assert redirections(hub, "v2.2") == ["10:2 medium0"]
    assert hub.leaves["medium0"]["10:3"]["options"]["limit"] == 25_000


async def test_a_refused_handover_changes_nothing(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused, hub.ran = "redirect dev medium2 index", []
    way = (Crossing(LINE, "device-0"),)
    (error,) = await fabric.alter([LinkChange(*FIRST, crossings=way)])
    assert isinstance(error, FabricError)
    assert str(error).startswith("link device-0 -> cloud: ")
    assert redirections(hub, "v2.2") == ["10:1 medium2"]  # it was refused: the former one is still there
    (error,) = await fabric.alter([LinkChange(*FIRST, crossings=(Crossing(UP, "device-0"), *way))])
    assert "through one medium: choose `engine: userspace`" in str(error)


async def test_a_handover_of_a_node_that_has_just_gone_fails_nothing(
    plan: Plan, hub: WritingHub, fabric: KernelFabric
) -> None:
    hub.refused, cut = " dev v2.2", LinkChange("device-1", "cloud", cut=True)
    assert await fabric.alter([LinkChange(*FIRST, crossings=(Crossing(LINE, "device-0"),)), cut]) == [None, None]
    hub.refused, hub.ran = "", []
    await fabric.attach(plan.node("device-0"), NodeHandle(4712))
    assert redirections(hub, "v2.5") == ["10:1 medium2"]


async def test_a_node_is_attached_while_it_is_handed_over(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    await fabric.detach(plan.node("device-2"))
    up, down = ("device-2", "cloud"), ("cloud", "device-2")
    ways = {up: [Crossing(UP, "device-2")], down: [Crossing("cell down", "device-2")]}
    await asyncio.gather(fabric._media.cross(ways), fabric._media.attach("device-2", "v4.5"))
    assert redirections(hub, "v4.5")[-1] == "10:4 medium0"


@pytest.mark.parametrize("failure", ["shows nothing", "no counters", "no queue"])
async def test_a_handover_with_counters_that_cannot_be_read_changes_nothing(
    hub: WritingHub, fabric: KernelFabric, failure: str
) -> None:
    whole = dict(hub.leaves["medium0"])
    if failure == "shows nothing":
        hub.refused = "qdisc show dev medium0"
    elif failure == "no counters":
        hub.leaves["medium0"]["10:2"] = {"kind": "bfifo"}
    else:
        del hub.leaves["medium0"]["10:2"]
    changes = [LinkChange(*FIRST, crossings=(Crossing(LINE, "device-0"),))]
    (error,) = await fabric.alter(changes)
    assert isinstance(error, FabricError)
    hub.refused, hub.leaves["medium0"], hub.ran = "", whole, []
    assert await fabric.alter(changes) == [None]
    assert redirections(hub, "v2.2") == ["10:1 medium2"]


async def test_a_refused_join_can_be_repeated(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "parent 10:4 handle 14: bfifo"
    changes = [LinkChange("device-2", "cloud", crossings=(Crossing(UP, "device-2"),))]
    (error,) = await fabric.alter(changes)
    assert isinstance(error, FabricError)
    hub.refused = " add dev medium0 parent 10:1 classid 10:4 "  # the class is there
    assert await fabric.alter(changes) == [None]
    assert redirections(hub, "v4.4")[-1] == "10:4 medium0"


async def test_handovers_touch_only_their_links_and_read_the_counters_once(
    hub: WritingHub, fabric: KernelFabric
) -> None:
    hub.ran.clear()
    down = Crossing("line down", "device-0")
    pairs = FIRST, FIRST[::-1]
    assert await fabric.alter(
        [
            LinkChange(*pair, crossings=(way,))
            for pair, way in zip(pairs, (Crossing(LINE, "device-0"), down), strict=True)
        ]
    ) == [None, None]
    assert redirections(hub, "v1.1") == ["10:1 medium3"]
    assert not any(" del " in line for line in hub.lines())
    assert hub.lines().count("qdisc show dev medium0") == 1
    assert len(fabric._media._crossed) == 6  # one for each link


async def test_cross_traffic_is_refused(fabric: KernelFabric) -> None:
    await fabric.occupy(UP, None)
    with pytest.raises(FabricError, match=r"cell.*cross traffic: choose `engine"):
        await fabric.occupy(UP, CrossTraffic("constant", 1e6))


async def test_shaping_again_redirects_nothing_twice(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    hub.ran.clear()
    await fabric.shape(plan.links)
    assert not any("medium" in line for line in hub.lines())
    await fabric.shape([replace(link, crossings=()) for link in plan.links])
    assert sum(line.startswith("filter del dev ") for line in hub.lines()) == 2 * 6  # IPv4 and IPv6
