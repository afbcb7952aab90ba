"""The kernel engine against a hub that writes down commands and answers as tc does on a kernel with netem."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, cast

import pytest

from netem.kernel import batch, police
from netem.kernel.batch import Reply
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import LinkChange, NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.fabric.tc.traffic_control import Command
from orchestrator.fabric.trunk import Trunk
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.scenario.reading import parse
from orchestrator.verbs.plans.commands import kernel_commands
from tests.texts import containing

SCENARIO = """\
name: wired
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms, loss: 1%}}
"""


class FakeTc:
    """A process of tc: each write to it is a batch, which `answer` is given with the number of its first line."""

    def __init__(self, answer: Callable[[list[str], int], str]) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self._answer = answer
        self._lines = 0

    def write(self, text: bytes) -> None:
        lines = text.decode().splitlines()
        self.stdout.feed_data(self._answer(lines, self._lines + 1).encode())
        self._lines += len(lines)

    async def drain(self) -> None:
        await asyncio.sleep(0)  # others act meanwhile

    def close(self) -> None: ...

    async def wait(self) -> int:
        return 0


def bits(node: NodePlan) -> str:
    """A node's IPv4 address as the filters compare it."""
    return f"0x{int(IPv4Address(node.address)):08x}"


class WritingHub:
    """Remembers what was run and in which namespace; shows the leaves that tc was told to make."""

    def __init__(self, answer_latency: float | None = None) -> None:
        self.ran: list[tuple[int | None, str]] = []
        self.batches: list[list[str]] = []  # the lines of each that tc was given
        self.refused = ""  # what a line that is refused contains
        self.leaves: dict[str, dict[str, dict[str, Any]]] = {}
        self.counts: list[dict[str, Any]] = []  # the filters that count what comes over the trunk
        self.policed: dict[str, dict[str, int]] = {}  # what the policers of a device have dropped, by class
        self.answer_latency = answer_latency

    async def run(self, argv: list[str], *, pid: int | None = None, stdin: str = "") -> str:
        return (await self.attempt(argv, pid=pid, stdin=stdin))[1]

    async def attempt(self, argv: list[str], *, pid: int | None = None, stdin: str = "") -> tuple[int, str, str]:
        self.ran += [(pid, line) for line in stdin.splitlines() or [" ".join(argv)]]
        return int(bool(self.refused) and self.refused in " ".join(argv)), "", ""

    async def set_up(
        self, pid: int | None, settings: Mapping[str, str], lines: str = "", *, read: bool = False
    ) -> dict[str, str]:
        self.ran += [(pid, line) for line in lines.splitlines()]
        return {}

    async def spawn(self, argv: Sequence[str], *, environment: Mapping[str, str], errors: int) -> FakeTc:
        assert argv == batch.ARGUMENTS
        assert {"EDGEBED_RUN", "TC_LIB_DIR"} <= environment.keys()
        assert errors == asyncio.subprocess.STDOUT
        return FakeTc(self.answer)

    def answer(self, lines: list[str], first: int) -> str:
        """What tc -force does: a line that is refused is told, and shows nothing."""
        said = ""
        self.batches.append(lines[:-1])
        for number, line in enumerate(lines, start=first):
            if line == batch.END:
                return f'{said}Object "end" is unknown, try "tc help".\nCommand failed -:{number}\n'
            self.ran.append((None, line))
            if self.refused and self.refused in line:
                said += f"Error: no.\nCommand failed -:{number}\n"
            elif re.match(r"filter show dev \S+ ingress", line):
                said += f"{json.dumps(self.counts)}\n"
            elif policers := re.match(r"filter show dev (\S+) parent 1:", line):
                said += json.dumps([policer(*each) for each in self.policed.get(policers[1], {}).items()]) + "\n"
            elif show := re.match(r"qdisc show dev (\S+)", line):
                said += json.dumps(list(self.leaves.setdefault(show[1], {}).values())) + "\n"
            elif queue := re.match(
                r"qdisc (?:add|replace|change) dev (\S+) parent (10:\S+) .* bfifo limit (\d+)b", line
            ):
                self.leaves.setdefault(queue[1], {})[queue[2]] = self.queue(queue[2], int(queue[3]))
            elif made := re.match(r"qdisc (?:add|replace|change) dev (\S+) parent (1:\S+) (.*)", line):
                leaves = self.leaves.setdefault(made[1], {})
                leaves[made[2]] = self.netem(made[2], made[3]) if " netem " in line else self.blackhole(made[2])
            elif removed := re.match(r"qdisc del dev (\S+) root", line):
                del self.leaves[removed[1]]
            elif stopped := re.match(r"qdisc add dev (\S+) parent (\S+):1 blackhole", line):
                leaves = self.leaves[stopped[1]]
                # One packet more comes before the link is cut, and netem counts it as dropped, too.
                leaves[f"1:{int(stopped[2], 16) - 1:x}"]["drops"] += 1
                leaves[stopped[2]] = {**self.blackhole(f"{stopped[2]}:1"), "drops": 1}
        raise AssertionError("a batch has an end")

    def netem(self, parent: str, options: str) -> dict[str, Any]:
        delay = re.search(r"delay ([\d.]+)ms", options)
        loss = re.search(r"loss random ([\d.]+)%", options)
        limit = re.search(r"limit (\d+)", options)
        rate = re.search(r"rate (\d+)mbit", options)
        latency = float(delay[1]) / 1000 if delay else 0.0
        return {
            "kind": "netem",
            "parent": parent,
            "options": {
                "limit": int(limit[1]) if limit else 0,
                "delay": {"delay": latency if self.answer_latency is None else self.answer_latency, "jitter": 0},
                "loss-random": {"loss": float(loss[1]) / 100 if loss else 0.0, "correlation": 0},
                "rate": {"rate": int(rate[1]) * 125_000 if rate else 0},
            },
            **{"packets": 5, "bytes": 500, "drops": 1, "backlog": 200, "qlen": 2},
        }

    def queue(self, parent: str, limit: int) -> dict[str, Any]:
        counts = {"packets": 10, "bytes": 15_000, "drops": 2, "backlog": 3_000, "qlen": 2}
        return {"kind": "bfifo", "parent": parent, "options": {"limit": limit}, **counts}

    def blackhole(self, parent: str) -> dict[str, Any]:
        return {"kind": "blackhole", "parent": parent, "options": {}, "drops": 3, "packets": 0}

    def lines(self, pid: int | None = None) -> list[str]:
        return [line for where, line in self.ran if where == pid]


def policer(flow: str, drops: int) -> dict[str, Any]:
    """A filter with a policer of sizes, which has dropped one packet, and one of a buffer, as tc shows them."""
    actions = [{"kind": "police", "index": 2, "stats": {"drops": 1}}]
    actions.append({"kind": "police", "index": 1, "stats": {"drops": drops}})
    return {"options": {"flowid": flow, "actions": actions}}


@pytest.fixture
def plan() -> Plan:
    return make_plan(parse(SCENARIO, "wired.yaml"), None)


async def opened(plan: Plan, hub: WritingHub, tmp_path: Path) -> KernelFabric:
    fabric = await KernelFabric.open(cast(Hub, hub), "run", tmp_path, wires_of(plan), seed=True)
    await fabric.shape(plan.links)
    return fabric


@pytest.fixture
def hub() -> WritingHub:
    return WritingHub()


@pytest.fixture
async def fabric(plan: Plan, hub: WritingHub, tmp_path: Path) -> KernelFabric:
    """The engine with the cloud attached."""
    fabric = await opened(plan, hub, tmp_path)
    await fabric.attach(plan.node("cloud"), NodeHandle(4711))
    return fabric


async def test_each_link_is_shaped_where_it_leaves_the_hub_for_its_target(
    plan: Plan, hub: WritingHub, fabric: KernelFabric
) -> None:
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
        assert any(f"match ip src {plan.node(device).address}/32" in line for line in lines)


async def test_the_plan_shows_what_is_run(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    (ran,) = hub.batches
    assert kernel_commands(plan, plan.node("cloud")) == [f"tc {line}" for line in ran if " show " not in line]


async def test_the_node_knows_its_neighbours_and_sends_single_packets(hub: WritingHub, fabric: KernelFabric) -> None:
    inside = hub.lines(4711)
    assert "link set data0 gso_max_segs 1" in inside  # loss takes packets, not super-packets
    assert sum(line.startswith("neigh replace 10.77.") for line in inside) == 2
    assert sum(line.startswith("neigh replace fd65:") for line in inside) == 2


async def test_what_the_kernel_shows_is_compared_with_what_was_configured(plan: Plan, tmp_path: Path) -> None:
    fabric = await opened(plan, WritingHub(answer_latency=0.0), tmp_path)
    with pytest.raises(FabricError, match=r"link device-0 -> cloud: latency: configured 0.01, the kernel has 0"):
        await fabric.attach(plan.node("cloud"), NodeHandle(4711))


async def test_the_bridge_receives_who_is_where(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    assert "link set dev v1.1 flood off mcast_flood off bcast_flood off learning off" in hub.lines()
    assert f"fdb replace {plan.node('cloud').mac} dev v1.1 master static" in hub.lines()


async def test_a_new_address_has_filters_where_the_links_of_its_node_are_shaped(
    plan: Plan, hub: WritingHub, fabric: KernelFabric
) -> None:
    del hub.ran[:]
    node = replace(plan.node("device-1"), address="10.77.255.254")
    await fabric.readdress(node, NodeHandle(4713), {"cloud": NodeHandle(4711)})
    # The cloud is the only node that is attached. device-1 is its second link, with the second policers.
    flow = "action police index 4 action police index 3 flowid 1:2"
    assert [line for line in hub.lines() if "filter" in line] == [
        f"filter add dev v1.1 parent 1: protocol ip prio 1 u32 match ip src 10.77.255.254/32 {flow}",
        f"filter add dev v1.1 parent 1: protocol ipv6 prio 2 u32 match u32 {bits(node)} 0xffffffff at 20 {flow}",
    ]
    assert hub.lines(4711) == [
        f"neigh replace 10.77.255.254 lladdr {node.mac} dev data0 nud permanent",
        f"neigh replace fd65:6467:6562::a4d:fffe lladdr {node.mac} dev data0 nud permanent",
    ]
    assert f"addr del {plan.node('device-1').address}/16 dev data0" in hub.lines(4713)
    await fabric.attach(node, NodeHandle(4714))  # with the filters of its peers
    await fabric.attach(plan.node("cloud"), NodeHandle(4715))
    assert any("dev v1.3" in line and "match ip src 10.77.255.254/32" in line for line in hub.lines())


async def test_links_with_an_mtu_have_routes_with_it_also_to_a_new_address(plan: Plan, tmp_path: Path) -> None:
    hub, narrow = WritingHub(), {"cloud", "device-1"}
    mtus = [1400 if {each.source, each.target} == narrow else None for each in plan.links]
    links = tuple(replace(each, mtu=mtu) for each, mtu in zip(plan.links, mtus, strict=True))
    fabric = await opened(replace(plan, links=links), hub, tmp_path)
    cloud, device = plan.node("cloud"), plan.node("device-1")
    await fabric.attach(cloud, NodeHandle(4711))
    routes = [line for line in hub.lines(4711) if " mtu " in line]
    assert [line.split()[2] for line in routes] == [f"{device.address}/32", "fd65:6467:6562::a4d:3/128"]
    del hub.ran[:]
    moved = replace(device, address="10.77.255.254")
    await fabric.readdress(moved, NodeHandle(4713), {"cloud": NodeHandle(4711)})
    assert f"route replace 10.77.255.254/32 dev data0 src {cloud.address} mtu 1400" in hub.lines(4711)
    assert f"route replace {cloud.address}/32 dev data0 src 10.77.255.254 mtu 1400" in hub.lines(4713)


async def test_changes_are_in_place_and_a_cut_survives_them(hub: WritingHub, fabric: KernelFabric) -> None:
    del hub.ran[:]
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.05))
    await fabric.cut("device-0", "cloud")
    await fabric.cut("device-0", "cloud")
    await fabric.change("device-0", "cloud", LinkProfile(latency=0.07))
    await fabric.restore("device-0", "cloud")
    await fabric.restore("device-0", "cloud")
    changed, stopped, emptied, restored = [line for line in hub.lines() if " show " not in line]
    assert changed.startswith("qdisc change dev v1.1 parent 1:1 handle 2: netem limit 100000 delay 50ms")
    assert stopped == "qdisc add dev v1.1 parent 2:1 blackhole"
    assert emptied == "qdisc replace dev v1.1 parent 1:1 blackhole"
    assert restored.startswith("qdisc replace dev v1.1 parent 1:1 handle 2: netem limit 100000 delay 70ms")


async def test_a_change_is_compared_as_well(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.answer_latency = 0.5
    with pytest.raises(FabricError, match=r"link device-1 -> cloud: latency: configured 5.0, the kernel has 0.5"):
        await fabric.change("device-1", "cloud", LinkProfile(latency=5.0))


async def test_no_two_settings_of_a_link_have_one_seed(hub: WritingHub, fabric: KernelFabric) -> None:
    for loss in (0.1, 0.2):
        await fabric.change("device-0", "cloud", LinkProfile(loss=loss))
    await fabric.cut("device-0", "cloud")
    await fabric.restore("device-0", "cloud")
    seeds = [line.split()[-1] for line in hub.lines() if "parent 1:1 handle 2: netem" in line]
    assert len(seeds) == len(set(seeds)) == 4


async def test_a_setting_that_is_left_out_is_noted_and_not_missed(plan: Plan, fabric: KernelFabric) -> None:
    await fabric.change("device-0", "cloud", LinkProfile(duplicate=0.1))
    (note,) = fabric.notes()
    assert note.startswith("cloud: duplicate on the link from")


async def test_counters_outlive_a_restart(plan: Plan, fabric: KernelFabric) -> None:
    await fabric.detach(plan.node("cloud"))
    await fabric.attach(plan.node("cloud"), NodeHandle(4712))
    counted = {(link["source"], link["target"]): link for link in (await fabric.counters()).links}
    # 5 packets sent, 1 dropped and 2 on their way on the first interface, as many on the second.
    assert (counted["device-0", "cloud"]["delivered"], counted["device-0", "cloud"]["lost"]) == (10, 2)
    assert counted["device-0", "cloud"]["offered"] == 16
    assert counted["cloud", "device-0"]["offered"] == 0  # a device was never attached


@pytest.mark.parametrize("gone", [False, True], ids=["ending", "gone"])
async def test_counters_outlive_an_interface_that_ends_with_its_node(
    plan: Plan, hub: WritingHub, fabric: KernelFabric, gone: bool
) -> None:
    before = (await fabric.counters()).links
    if gone:
        hub.refused = "qdisc show dev"
    else:
        hub.leaves["v1.1"].clear()
    assert (await fabric.counters()).links == before
    await fabric.detach(plan.node("cloud"))
    assert (await fabric.counters()).links == before
    assert [link["offered"] for link in before if link["target"] == "cloud"] == [8, 8]


async def test_what_a_cut_drops_is_counted(fabric: KernelFabric) -> None:
    await fabric.cut("device-0", "cloud")

    async def row() -> tuple[object, ...]:
        links = (await fabric.counters()).links
        link = next(link for link in links if (link["source"], link["target"]) == ("device-0", "cloud"))
        return tuple(link[key] for key in ("offered", "delivered", "lost", "cut_dropped"))

    # 2 were on their way, 1 came when the link was stopped and no more, 3 came to the blackhole.
    assert await row() == (8 + 1 + 3, 5, 1, 2 + 1 + 3)
    await fabric.restore("device-0", "cloud")
    assert await row() == (12 + 8, 10, 2, 6)  # and a new netem that says the same as the first


async def test_what_a_cut_keeps_is_not_counted_again(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    """The node of a cut link ends before anything has been read since: what was read last is of before the cut."""
    assert [row["offered"] for row in (await fabric.counters()).links if row["target"] == "cloud"] == [8, 8]
    await fabric.cut("device-0", "cloud")
    hub.refused = "qdisc show dev"
    for _ in ("ended", "detached"):
        rows = (await fabric.counters()).links
        # 8 and one that came when the link was stopped; nobody has read what came to the blackhole.
        assert {row["source"]: row["offered"] for row in rows if row["target"] == "cloud"} == {
            "device-0": 9,
            "device-1": 8,
        }
        await fabric.detach(plan.node("cloud"))


async def test_counters_read_during_cuts_are_of_one_moment(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    for node in plan.nodes[1:]:
        await fabric.attach(node, NodeHandle(4711))
    ends = [(link.source, link.target) for link in plan.links]
    counting = asyncio.create_task(fabric.counters())
    await asyncio.gather(counting, *(fabric.cut(*each) for each in ends))
    assert {row["offered"] for row in counting.result().links} == {8}  # as before the cuts
    assert {row["offered"] for row in (await fabric.counters()).links} == {12}


SLOW = LinkProfile(latency=0.05)
ALL_SIZES = " ".join(police.sizing(1, None)).removesuffix(" index 1")
OPEN = " ".join(police.making(1, None)).removesuffix(" index 1")


async def test_changes_at_one_moment_are_one_batch(plan: Plan, tmp_path: Path) -> None:
    """Each way of two links: both devices' ways up are shaped on the cloud's interface, the ways down on their own."""
    hub = WritingHub()
    fabric = await opened(plan, hub, tmp_path)
    for number, node in enumerate(plan.nodes):
        await fabric.attach(node, NodeHandle(100 + number))
    del hub.batches[:]
    await asyncio.gather(*(fabric.change(link.source, link.target, SLOW) for link in plan.links))
    (lines,) = hub.batches
    assert [line.split()[:4] for line in lines] == [
        ["qdisc", "change", "dev", device] for device in ("v1.1", "v2.2", "v1.1", "v3.3")
    ] + [["qdisc", "show", "dev", device] for device in ("v1.1", "v2.2", "v3.3")]


async def test_what_comes_while_the_engine_is_busy_is_made_together_afterwards(
    hub: WritingHub, fabric: KernelFabric
) -> None:
    release = asyncio.Event()
    attempt = fabric._tc.attempt

    async def slow(commands: Sequence[Command]) -> list[Reply]:
        await release.wait()
        return await attempt(commands)

    fabric._tc.attempt = slow  # type: ignore[method-assign]
    del hub.batches[:]
    first = asyncio.create_task(fabric.change("device-0", "cloud", SLOW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(fabric.change(f"device-{n}", "cloud", LinkProfile())) for n in (0, 1)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(first, *rest)
    assert [sum(" change " in line for line in lines) for lines in hub.batches] == [1, 2]


async def test_cuts_at_one_moment_stop_all_before_any_is_read(hub: WritingHub, fabric: KernelFabric) -> None:
    del hub.batches[:]
    cuts = [LinkChange(f"device-{number}", "cloud", cut=True) for number in (0, 1)]
    assert await fabric.alter(cuts) == [None, None]
    assert hub.batches == [
        [
            "qdisc add dev v1.1 parent 2:1 blackhole",
            "qdisc add dev v1.1 parent 3:1 blackhole",
            "qdisc show dev v1.1",
            "qdisc replace dev v1.1 parent 1:1 blackhole",
            "qdisc replace dev v1.1 parent 1:2 blackhole",
        ]
    ]


async def test_one_that_is_refused_leaves_the_others(hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "change dev v1.1 parent 1:1"
    results = await asyncio.gather(
        *(fabric.change(f"device-{number}", "cloud", SLOW) for number in (0, 1)), return_exceptions=True
    )
    assert [str(error) for error in results if error] == ["link device-0 -> cloud: Error: no."]
    hub.refused = "replace dev v1.1 parent 1:1"
    with pytest.raises(FabricError, match=r"device-0 -> cloud: Error: no\."):
        await fabric.cut("device-0", "cloud")
    hub.refused = ""
    await fabric.cut("device-0", "cloud")  # it was not taken for cut
    assert hub.lines()[-1] == "qdisc replace dev v1.1 parent 1:1 blackhole"


async def test_a_refused_profile_does_not_come_back(plan: Plan, hub: WritingHub, fabric: KernelFabric) -> None:
    hub.refused = "delay 50ms"
    with pytest.raises(FabricError, match="device-0 -> cloud"):
        await fabric.change("device-0", "cloud", LinkProfile(latency=0.05))
    hub.refused = ""
    del hub.ran[:]
    await fabric.detach(plan.node("cloud"))
    await fabric.attach(plan.node("cloud"), NodeHandle(4712))
    await fabric.cut("device-0", "cloud")
    await fabric.restore("device-0", "cloud")
    assert [line for line in hub.lines() if "delay 50ms" in line] == []


async def test_a_link_that_is_not_shaped_here_leaves_the_others(fabric: KernelFabric) -> None:
    changes = [LinkChange("nobody", "cloud", cut=True), LinkChange("device-0", "cloud", cut=True)]
    refused, done = await fabric.alter(changes)
    assert str(refused) == containing("link nobody -> cloud")
    assert done is None


async def test_what_is_requested_of_one_link_twice_is_done_in_order(hub: WritingHub, fabric: KernelFabric) -> None:
    del hub.batches[:]
    ends = ("device-0", "cloud")
    changes = [LinkChange(*ends, cut=True), LinkChange(*ends, profile=SLOW), LinkChange(*ends, cut=False)]
    assert await fabric.alter(changes) == [None] * 3
    assert [lines[-1].split()[6] for lines in hub.batches] == ["blackhole", "handle"]


async def test_asked_losses_follow_the_profile(fabric: KernelFabric) -> None:
    """Whoever reads a leaf finds 5 packets sent, 1 dropped, 2 on their way: 8 of which each could be lost."""

    async def row() -> dict[str, Any]:
        links = (await fabric.counters()).links
        return next(dict(link) for link in links if (link["source"], link["target"]) == ("device-0", "cloud"))

    first = await row()
    assert (first["drawn"], first["asked_lost"]) == (8, pytest.approx(0.08))
    await fabric.change("device-0", "cloud", LinkProfile(loss=0.5, rate=1e6))
    second = await row()
    assert second["asked_lost"] == pytest.approx(0.08)  # none more have come since
    await fabric.cut("device-0", "cloud")
    third = await row()
    # The cut netem's 8 are kept, and one more that came before it was; the 3 that came after could not be lost.
    assert (third["offered"], third["drawn"], third["asked_lost"]) == (12, 9, pytest.approx(0.08 + 0.5))


async def across(hub: WritingHub, plan: Plan, tmp_path: Path, *remote: str) -> KernelFabric:
    """The engine of the host where the other nodes live."""
    macs = {plan.node(name).mac: "192.0.2.2" for name in remote}
    trunk = Trunk("192.0.2.1", 1, macs, 1450)
    fabric = await KernelFabric.open(cast(Hub, hub), "run", tmp_path, wires_of(plan), trunk, seed=True)
    await fabric.shape(plan.links)
    return fabric


async def test_links_to_other_hosts_are_shaped_on_the_trunk(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await across(hub, plan, tmp_path, "device-0", "device-1")
    source = plan.node("cloud").address
    filters = [line for line in hub.batches[0] if line.startswith("filter")]
    for number, name in enumerate(("device-0", "device-1"), start=1):
        target = plan.node(name)
        assert f"fdb replace {target.mac} dev trunk master static" in hub.lines()
        assert filters[number - 1].endswith(
            f"match ip src {source}/32 match ip dst {target.address}/32 {ALL_SIZES} index {2 * number} "
            f"{OPEN} index {2 * number - 1} flowid 1:{number}"
        )
    await fabric.change("cloud", "device-1", SLOW)
    assert hub.batches[1][0].startswith("qdisc change dev trunk parent 1:2 handle 3: netem")
    assert {(row["source"], row["target"]) for row in (await fabric.counters()).links} == {
        ("cloud", "device-0"),
        ("cloud", "device-1"),
    }


async def test_what_crosses_the_trunk_is_counted_at_both_ends(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await across(hub, plan, tmp_path, "device-0", "device-1")
    names = [node.name for node in plan.nodes]
    counting = [line for line in hub.lines() if " parent ffff: protocol ip " in line]
    assert [line.partition(" match ")[2] for line in counting] == [
        f"ip src {node.address}/32 action ok index {number}" for number, node in enumerate(plan.nodes, start=1)
    ]
    assert len([line for line in hub.lines() if " parent ffff: protocol ipv6 " in line]) == len(counting)
    hub.counts = [
        {"protocol": "ip", "pref": 1, "kind": "u32", "chain": 0},
        {"options": {"fh": "800::800", "actions": [gact(names.index("device-1") + 1, 7)]}},
        {"options": {"fh": "800::801", "actions": [gact(names.index("cloud") + 1, 3)]}},  # a node of this host
    ]
    counted = await fabric.counters()
    assert counted.came_from == {"device-0": 0, "device-1": 7}
    assert counted.sent_to == {str(row["target"]): row["delivered"] for row in counted.links}


def gact(number: int, packets: int) -> dict[str, Any]:
    """As tc shows an action."""
    stats = {"bytes": 100 * packets, "packets": packets, "drops": 0, "overlimits": 0, "requeues": 0}
    return {"order": 1, "kind": "gact", "control_action": {"type": "pass"}, "index": number, "stats": stats}


async def test_a_kernel_that_cannot_count_says_so(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    hub.refused = "tc -batch"
    fabric = await across(hub, plan, tmp_path, "device-0")
    counted = await fabric.counters()
    assert (counted.sent_to, counted.came_from) == (None, None)
    assert any(note.startswith("the trunk: this host's kernel cannot") for note in fabric.notes())


async def test_packets_from_other_hosts_pass_unshaped_if_there_is_a_link(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await across(hub, plan, tmp_path, "device-0")
    await fabric.attach(plan.node("cloud"), NodeHandle(4711))
    lines = hub.batches[-1]
    assert sum(" netem " in line for line in lines) == 1  # from device-1
    for address in (plan.node("device-0").address, bits(plan.node("device-0"))):  # IPv4, IPv6
        assert [line.rsplit(None, 1)[-1] for line in lines if address in line] == ["1:fffe"]
    assert any("peer name data0" in line and "mtu 1450" in line for line in hub.lines())
    await fabric.attach(plan.node("device-1"), NodeHandle(4712))
    assert not any("1:fffe" in line for line in hub.batches[-1])  # it has no link with device-0


async def test_the_links_of_a_node_that_moves_here_leave_the_trunk(plan: Plan, tmp_path: Path) -> None:
    """Of three nodes the cloud lives here, and device-1 on another host. device-0 moves from a third one."""
    hub = WritingHub()
    fabric = await across(hub, plan, tmp_path, "device-0", "device-1")
    cloud, moved, other = (plan.node(name) for name in ("cloud", "device-0", "device-1"))
    await fabric.attach(cloud, NodeHandle(4711))
    before = {(row["source"], row["target"]): row for row in (await fabric.counters()).links}
    await fabric.cut("cloud", "device-1")
    del hub.batches[:], hub.ran[:]
    await fabric.redirect({other.mac: "192.0.2.2"})
    assert [line for line in hub.lines() if line.startswith("fdb")] == [f"fdb del {moved.mac} dev trunk master static"]
    await fabric.shape([link for link in plan.links if "device-0" in (link.source, link.target)])
    done = [line for lines in hub.batches for line in lines]
    interface = "v1.1"
    for device in (interface, "trunk"):
        at = done.index(f"qdisc del dev {device} root")
        assert done[at:].count(f"qdisc add dev {device} root handle 1: htb default ffff") == 1
    netem = [line for line in done if " netem " in line]
    assert [line.split()[3:5] for line in netem] == [[interface, "parent"], ["trunk", "parent"]]
    # What comes from device-0 has passed no link yet, what comes from device-1 has.
    flows = {line.rsplit(None, 1)[-1]: line for line in done if line.startswith("filter") and interface in line}
    assert bits(moved) in flows["1:1"]
    assert bits(other) in flows["1:fffe"]
    assert any(line.startswith("qdisc replace dev trunk parent 1:2 blackhole") for line in done)  # it stays cut
    await fabric.attach(moved, NodeHandle(4712))
    assert sum(" netem " in line for line in hub.batches[-1]) == 1
    after = {(row["source"], row["target"]): row for row in (await fabric.counters()).links}
    assert set(after) - set(before) == {("device-0", "cloud")}
    for ends, row in before.items():
        assert int(after[ends]["offered"]) >= int(row["offered"])  # what it counted before is kept


async def test_a_node_that_moves_between_other_hosts_leaves_the_qdiscs_as_they_are(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    fabric = await across(hub, plan, tmp_path, "device-0", "device-1")
    await fabric.attach(plan.node("cloud"), NodeHandle(4711))
    del hub.batches[:], hub.ran[:]
    remotes = {plan.node("device-0").mac: "192.0.2.3", plan.node("device-1").mac: "192.0.2.2"}
    await fabric.redirect(remotes)
    changed = [replace(link, profile=SLOW) for link in plan.links if "device-0" in (link.source, link.target)]
    await fabric.shape(changed)
    done = [line for lines in hub.batches for line in lines if "show" not in line]
    assert [line.split()[:6] for line in done] == [["qdisc", "change", "dev", "trunk", "parent", "1:1"]]


async def test_a_bridge_that_cannot_lock_the_trunk_is_noted(plan: Plan, tmp_path: Path) -> None:
    hub = WritingHub()
    hub.refused = "locked on"
    (note,) = (await across(hub, plan, tmp_path, "device-0")).notes()
    assert note.startswith("the trunk: this host's bridge cannot")
    assert (await across(WritingHub(), plan, tmp_path, "device-0")).notes() == []
