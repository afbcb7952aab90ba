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
    """Remembers what was run and in which namespace; shows a netem leaf for each one that was added."""

    def __init__(self, answer_latency: float = 0.01) -> None:
        self.ran: list[tuple[int | None, str]] = []
        self.leaves: dict[str, dict[int, dict[str, Any]]] = {}
        self.answer_latency = answer_latency

    async def run(
        self, argv: list[str], *, pid: int | None = None, stdin: str = "", environment: dict[str, str] | None = None
    ) -> str:
        if "show" in argv:
            return json.dumps(list(self.leaves[argv[-1]].values()))
        for line in stdin.splitlines() or [" ".join(argv)]:
            self.ran.append((pid, line))
            if added := re.match(r"qdisc add dev (\S+) parent 1:(\S+) handle \S+ netem limit (\d+)", line):
                device, index, limit = added[1], int(added[2], 16), int(added[3])
                self.leaves.setdefault(device, {})[index] = {
                    "kind": "netem",
                    "parent": f"1:{added[2]}",
                    "options": {
                        "limit": limit,
                        "delay": {"delay": self.answer_latency, "jitter": 0},
                        "loss-random": {"loss": 0.01, "correlation": 0},
                    },
                    **{"packets": 5, "bytes": 500, "drops": 1, "backlog": 0, "qlen": 0},
                }
        return ""

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


async def test_changes_are_in_place_and_a_cut_survives_them(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    del hub.ran[:]
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.05))
    await fabric.cut("device-0", "cloud")
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.07))
    await fabric.restore("device-0", "cloud")
    changed, cut, restored = hub.lines()
    assert all(line.startswith("qdisc change dev v1.1 ") for line in (changed, cut, restored))
    assert "delay 50ms" in changed
    assert "loss random 100%" in cut
    assert "delay 70ms" in restored
    assert "100%" not in restored


async def test_counters_outlive_a_restart(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), pid=4711)
    await fabric.detach(plan.node("cloud"))
    await fabric.attach(plan.node("cloud"), pid=4712)
    counted = {(link["source"], link["target"]): link for link in (await fabric.counters()).links}
    # 5 packets and 1 drop on the first interface, as many on the second; a device was never attached
    assert (counted["device-0", "cloud"]["delivered"], counted["device-0", "cloud"]["lost"]) == (10, 2)
    assert counted["cloud", "device-0"]["offered"] == 0
