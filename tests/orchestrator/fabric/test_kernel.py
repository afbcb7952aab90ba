"""The kernel engine against a hub that writes down commands and answers as tc does on a kernel with netem."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.kernel import KernelFabric
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.scenario.reading import parse

SCENARIO = """\
name: wired
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms, loss: 1%}}
"""


class WritingHub:
    """Remembers what was run and in which namespace; shows the leaves that tc was told to make."""

    def __init__(self, answer_latency: float | None = None) -> None:
        self.ran: list[tuple[int | None, str]] = []
        self.leaves: dict[str, dict[str, dict[str, Any]]] = {}
        self.answer_latency = answer_latency

    async def run(
        self, argv: list[str], *, pid: int | None = None, stdin: str = "", environment: dict[str, str] | None = None
    ) -> str:
        shown = ""
        for line in stdin.splitlines() or [" ".join(argv)]:
            self.ran.append((pid, line))
            if show := re.match(r"qdisc show dev (\S+)", line):
                shown = json.dumps(list(self.leaves[show[1]].values()))
            elif made := re.match(r"qdisc (?:add|replace|change) dev (\S+) parent (1:\S+) (.*)", line):
                leaves = self.leaves.setdefault(made[1], {})
                leaves[made[2]] = self.netem(made[2], made[3]) if " netem " in line else self.blackhole(made[2])
        return shown

    def netem(self, parent: str, options: str) -> dict[str, Any]:
        delay = re.search(r"delay ([\d.]+)ms", options)
        loss = re.search(r"loss random ([\d.]+)%", options)
        limit = re.search(r"limit (\d+)", options)
        latency = float(delay[1]) / 1000 if delay else 0.0
        return {
            "kind": "netem",
            "parent": parent,
            "options": {
                "limit": int(limit[1]) if limit else 0,
                "delay": {"delay": latency if self.answer_latency is None else self.answer_latency, "jitter": 0},
                "loss-random": {"loss": float(loss[1]) / 100 if loss else 0.0, "correlation": 0},
            },
            **{"packets": 5, "bytes": 500, "drops": 1, "backlog": 200, "qlen": 2},
        }

    def blackhole(self, parent: str) -> dict[str, Any]:
        return {"kind": "blackhole", "parent": parent, "options": {}, "drops": 3}

    def lines(self, pid: int | None = None) -> list[str]:
        return [line for where, line in self.ran if where == pid]


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "wired.yaml"), None)


async def opened(plan: Plan, hub: WritingHub, tmp_path: Path) -> KernelFabric:
    fabric = await KernelFabric.open(cast(Hub, hub), tmp_path, plan, seed=True)
    await fabric.shape(plan.links)
    return fabric


async def test_each_link_is_shaped_where_it_leaves_the_hub_for_its_target(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    lines = hub.lines()
    assert (
        f"link add v1.1 mtu 1500 type veth peer name data0 address {plan.node('cloud').mac} mtu 1500 netns 4711"
        in lines
    )
    assert "link set v1.1 master br0" in lines
    leaves = [line for line in lines if " netem " in line]
    assert len(leaves) == 2  # from each device
    assert all("delay 10ms" in leaf and "loss random 1%" in leaf and " seed " in leaf for leaf in leaves)
    for device in ("device-0", "device-1"):
        assert any(f"match ip src {plan.node(device).host}/32" in line for line in lines)


async def test_the_node_knows_its_neighbours_and_sends_single_packets(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    inside = hub.lines(4711)
    assert "link set data0 gso_max_segs 1" in inside  # loss takes packets, not super-packets
    assert sum(line.startswith("neigh replace") for line in inside) == 2


async def test_what_the_kernel_shows_is_compared_with_what_was_asked(plan: Plan, tmp_path: Path) -> None:
    fabric = await opened(plan, WritingHub(answer_latency=0.0), tmp_path)
    with pytest.raises(FabricError, match=r"link device-0 -> cloud: latency: asked 0.01, the kernel has 0"):
        await fabric.attach(plan.node("cloud"), pid=4711)


async def test_the_bridge_is_told_who_is_where(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    assert "link set dev v1.1 flood off mcast_flood off bcast_flood off learning off" in hub.lines()
    assert f"fdb replace {plan.node('cloud').mac} dev v1.1 master static" in hub.lines()


async def test_changes_are_in_place_and_a_cut_survives_them(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    del hub.ran[:]
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.05))
    await fabric.cut("device-0", "cloud")
    await fabric.cut("device-0", "cloud")
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.07))
    await fabric.restore("device-0", "cloud")
    await fabric.restore("device-0", "cloud")
    changed, stopped, emptied, restored = [line for line in hub.lines() if " show " not in line]
    assert changed.startswith("qdisc change dev v1.1 parent 1:1 handle 2: netem limit 41282 delay 50ms")
    assert stopped == "qdisc add dev v1.1 parent 2:1 blackhole"
    assert emptied == "qdisc replace dev v1.1 parent 1:1 blackhole"
    assert restored.startswith("qdisc replace dev v1.1 parent 1:1 handle 2: netem limit 57794 delay 70ms")


async def test_a_change_is_compared_as_well(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    hub.answer_latency = 0.5
    with pytest.raises(FabricError, match=r"link device-1 -> cloud: latency: asked 5.0, the kernel has 0.5"):
        await fabric.change("device-1", "cloud", LinkProfile(latency=5.0))


async def test_no_two_settings_of_a_link_have_one_seed(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    for loss in (0.1, 0.2):
        await fabric.change("device-0", "cloud", LinkProfile(loss=loss))
    await fabric.cut("device-0", "cloud")
    await fabric.restore("device-0", "cloud")
    seeds = [line.split()[-1] for line in hub.lines() if "parent 1:1 handle 2: netem" in line]
    assert len(seeds) == len(set(seeds)) == 4


async def test_a_setting_that_is_left_out_is_noted_and_not_missed(plan: Plan, tmp_path: Path) -> None:
    fabric = await opened(plan, WritingHub(), tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    await fabric.change("device-0", "cloud", LinkProfile(duplicate=0.1))
    (note,) = fabric.notes()
    assert note.startswith(f"cloud: duplicate on the link from {plan.node('device-0').host}")


async def test_counters_outlive_a_restart(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    await fabric.detach(plan.node("cloud"))
    await fabric.attach(plan.node("cloud"), pid=4712)
    counted = {(link["source"], link["target"]): link for link in (await fabric.counters()).links}
    # 5 packets sent, 1 dropped and 2 on their way on the first interface, as many on the second.
    assert (counted["device-0", "cloud"]["delivered"], counted["device-0", "cloud"]["lost"]) == (10, 2)
    assert counted["device-0", "cloud"]["offered"] == 16
    assert counted["cloud", "device-0"]["offered"] == 0  # a device was never attached


async def test_what_a_cut_drops_is_counted(plan: Plan, tmp_path: Path) -> None:
    fabric = await opened(plan, WritingHub(), tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    await fabric.cut("device-0", "cloud")

    async def row() -> tuple[int | str, ...]:
        links = (await fabric.counters()).links
        link = next(link for link in links if (link["source"], link["target"]) == ("device-0", "cloud"))
        return tuple(link[key] for key in ("offered", "delivered", "lost", "cut_dropped"))

    assert await row() == (8 + 3, 5, 1, 2 + 3)  # 2 were on their way, 3 came to the blackhole
    await fabric.restore("device-0", "cloud")
    assert await row() == (11 + 8, 10, 2, 5)  # and a new netem that says the same as the first
