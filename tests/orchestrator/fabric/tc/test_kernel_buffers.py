"""The policers of the kernel engine's links, against a hub that answers as tc does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.fabric.tc.test_kernel import WritingHub, opened

SCENARIO = """\
name: wired
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 1}
links: {device-cloud: {rate: 8mbit, buffer: 30kb}}
"""
LINK = ("device-0", "cloud")
WHOLE = "rate 8000000bit burst 30001b mtu 262144b conform-exceed drop/ok"
ALL_SIZES = "mtu 262144b conform-exceed pipe/pipe"
CHANGE = "actions change action police "


class BusyHub(WritingHub):
    """Shows so many bytes in the netem of each link."""

    backlog = 0

    def netem(self, parent: str, options: str) -> dict[str, Any]:
        return super().netem(parent, options) | {"backlog": self.backlog}

    def wait(self, backlog: int) -> None:
        self.backlog = backlog
        for leaves in self.leaves.values():
            for leaf in leaves.values():
                leaf["backlog"] = backlog

    def policing(self) -> list[str]:
        """The changes of policers, once."""
        found = [line.removeprefix(CHANGE) for line in self.lines() if line.startswith(CHANGE)]
        del self.ran[:]
        return found


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "wired.yaml"), None)


@pytest.fixture
def hub() -> BusyHub:
    return BusyHub()


@pytest.fixture
async def fabric(plan: Plan, hub: BusyHub, tmp_path: Path) -> KernelFabric:
    fabric = await opened(plan, hub, tmp_path)
    for number, node in enumerate(plan.nodes, start=100):
        await fabric.attach(node, NodeHandle(number))
    return fabric


async def test_each_link_has_a_policer_of_its_own(plan: Plan, hub: BusyHub, fabric: KernelFabric) -> None:
    await fabric.attach(plan.node("cloud"), NodeHandle(200))
    made = [line for line in hub.lines() if " action police rate " in line]
    assert [line.split(" action police ")[1:] for line in made] == [
        [f"{ALL_SIZES} index {number + 1}", f"{WHOLE} index {number} flowid 1:1"] for number in (1, 3, 5)
    ]


async def test_a_changed_buffer_has_what_waits_in_it(hub: BusyHub, fabric: KernelFabric) -> None:
    hub.policing()
    hub.wait(20_000)
    await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000))
    (changed,) = hub.policing()
    # 30,000 bytes and two ticks of 64 ns at 2 MB/s, less 20,000.
    assert changed.startswith("rate 16000000bit burst 10001b ")
    await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000, latency=0.005))
    assert hub.policing() == []  # the rate and the buffer are the same
    hub.wait(12_000)  # of which 10,000 are on their way
    await fabric.counters()
    assert [each.split()[3] for each in hub.policing()] == ["28001b"]
    hub.wait(15_000)
    await fabric.counters()
    assert hub.policing() == []  # less room than it has
    hub.wait(0)
    await fabric.counters()
    await fabric.counters()
    assert [each.split()[3] for each in hub.policing()] == ["30001b"]


async def test_a_bucket_is_made_whole_soon(hub: BusyHub, fabric: KernelFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.fabric.tc.kernel_buffers.WIDEN_EVERY", 0.0)
    hub.policing()
    hub.wait(20_000)
    await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000))
    hub.wait(0)
    widening = fabric._buffers._widening
    assert widening is not None
    await asyncio.wait_for(widening, 10)
    assert [each.split()[3] for each in hub.policing()] == ["10001b", "30001b"]
    await fabric.close()


async def test_a_cut_link_drops_nothing_for_want_of_room(hub: BusyHub, fabric: KernelFabric) -> None:
    hub.policing()
    await fabric.cut(*LINK)
    (opened_,) = hub.policing()
    assert opened_.endswith("conform-exceed ok/ok index 1")
    await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000))
    assert hub.policing() == []
    await fabric.restore(*LINK)
    assert [each.split()[:4] for each in hub.policing()] == [["rate", "16000000bit", "burst", "30001b"]]


async def test_a_refused_change_leaves_the_policer(hub: BusyHub, fabric: KernelFabric) -> None:
    hub.policing()
    hub.refused = "netem limit"
    with pytest.raises(FabricError):
        await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000))
    assert hub.policing()[-1] == f"{WHOLE} index 1"
    hub.refused = CHANGE
    with pytest.raises(FabricError, match=r"Error: no\."):
        await fabric.change(*LINK, LinkProfile(rate=16e6, buffer_bytes=30_000))


async def test_a_limit_of_sizes_is_changed_in_place(hub: BusyHub, fabric: KernelFabric) -> None:
    hub.policing()
    profile = fabric._links[LINK].profile
    await fabric.change(*LINK, profile.merged(drop_above=1200))
    assert hub.policing() == ["mtu 1214b conform-exceed drop/pipe index 2"]
    await fabric.change(*LINK, profile.merged(drop_above=1200, latency=0.05))
    assert hub.policing() == []
    await fabric.cut(*LINK)
    hub.policing()
    await fabric.change(*LINK, profile)
    await fabric.restore(*LINK)
    assert f"{ALL_SIZES} index 2" in hub.policing()
    hub.refused = "netem limit"
    with pytest.raises(FabricError):
        await fabric.change(*LINK, profile.merged(drop_above=1200))
    assert f"{ALL_SIZES} index 2" in hub.policing()


async def test_what_found_no_room_is_counted(plan: Plan, hub: BusyHub, fabric: KernelFabric) -> None:
    async def row() -> tuple[Any, ...]:
        rows = (await fabric.counters()).links
        link = next(each for each in rows if (each["source"], each["target"]) == LINK)
        return tuple(link[key] for key in ("offered", "delivered", "lost", "overflowed", "cut_dropped", "drawn"))

    hub.policed = {"v1.1": {"1:1": 24}}
    # netem has sent 5 packets, lost 1, and holds 2. One was too large, which counts as lost.
    assert await row() == (8 + 25, 5, 2, 24, 0, 8)
    await fabric.cut(*LINK)
    hub.refused = "show dev v1.1"  # its node ends
    assert await row() == (9 + 25, 5, 2, 24, 3, 9)
    hub.refused = ""
    await fabric.attach(plan.node("cloud"), NodeHandle(201))
    hub.policed["v1.3"] = {"1:1": 6}
    await fabric.restore(*LINK)
    offered, _, _, overflowed, _, _ = await row()
    assert overflowed == 30
    assert offered >= 9 + 24 + 6


async def test_nodes_make_no_super_packets_that_a_buffer_cannot_hold(hub: BusyHub, fabric: KernelFabric) -> None:
    # 8 Mbit/s send 0.66 full frames in a millisecond.
    assert "link set data0 gso_max_segs 1" in hub.lines(101)


async def test_a_change_that_no_plan_knows_of_limits_super_packets(tmp_path: Path) -> None:
    plan = make_plan(parse(SCENARIO.replace("{rate: 8mbit, buffer: 30kb}", "{}"), "wired.yaml"), None)
    hub = BusyHub()
    fabric = await opened(plan, hub, tmp_path)
    for number, node in enumerate(plan.nodes, start=100):
        await fabric.attach(node, NodeHandle(number))
    assert not any("gso_max_segs" in line for line in hub.lines(101))
    await fabric.change(*LINK, LinkProfile(rate=100e6, buffer_bytes=30_000))
    assert "link set data0 gso_max_segs 8" in hub.lines(101)
    (changed,) = hub.policing()
    assert changed.split()[3] == "30002b"
    await fabric.change(LINK[1], LINK[0], LinkProfile(loss=0.01))
    assert "link set data0 gso_max_segs 1" in hub.lines(100)  # a loss hits single packets
    hub.refused = "ip -batch"
    await fabric.change(*LINK, LinkProfile(rate=8e6, buffer_bytes=3_000))
    assert hub.policing()[-1].split()[3] == f"{8 * 1514 + 1}b"  # a super-packet must fit
