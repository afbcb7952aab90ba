"""Every link engine against the same cases, without packets: those are in the tests of each engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from edgebed.testing.fabrics import CASES, OF_MEDIA, SCENARIO, SECOND, Case, Stage, share
from netem.media.profile import Crossing
from netem.tcp.flow import Flow
from netem.userspace.switch import Switch
from node.assignment import Timeouts
from orchestrator.agent.host_run import HostRun
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.fabric import HostsFabric
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.fabric.base import LinkChange, NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.tc.kernel import KernelFabric
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.host.process.child import JsonChild
from orchestrator.planning.hosts.moving import Between
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.fakes.fabric import FakeFabric
from tests.orchestrator.fabric.tc.test_kernel import WritingHub

Open = Callable[[Plan, Path], Awaitable[Stage]]


def refusal(change: LinkChange) -> str | None:
    return "no" if (change.source, change.target) == SECOND else None


def fake_stage(plan: Plan, fabric: FakeFabric) -> Stage:
    def refuse(refuses: bool) -> None:
        fabric.refuse = refusal if refuses else lambda change: None

    return Stage(
        fabric,
        plan,
        lambda *ends: (fabric.links[ends].latency, ends in fabric.cut_links),
        refuse,
        crosses=lambda *ends: fabric.crossings[ends],
    )


async def fake(plan: Plan, folder: Path) -> Stage:
    return fake_stage(plan, FakeFabric())


async def kernel(plan: Plan, folder: Path) -> Stage:
    hub = WritingHub()
    fabric = await KernelFabric.open(cast(Hub, hub), "run", folder, wires_of(plan), seed=True)

    def shown(source: str, target: str) -> tuple[float, bool]:
        """Of the interface to the cloud, which was attached last, the leaf of a device."""
        device = max((name for name in hub.leaves if name.startswith("v1.")), key=lambda name: int(name[3:]))
        index = 1 + int(source.removeprefix("device-"))
        leaf = hub.leaves[device][f"1:{index}"]
        if leaf["kind"] != "netem":
            return fabric._links[source, target].profile.latency, True
        return leaf["options"]["delay"]["delay"], False

    def refuse(refuses: bool) -> None:
        hub.refused = "parent 1:2 " if refuses else ""

    return Stage(fabric, plan, shown, refuse, crosses=lambda *ends: tuple(fabric._media.way(ends)))


class SwitchWithoutSockets(Switch):
    def attach(self, port: str, interface: str, mac: str) -> dict[str, Any]:
        return {}

    def detach(self, port: str) -> dict[str, Any]:
        return {}


class InProcess:
    """The switch of the userspace engine, without its process."""

    def __init__(self) -> None:
        self.switch, self.refuses = SwitchWithoutSockets(), False

    async def request(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation != "batch":
            return self.switch.handle({"op": operation, **arguments})
        replies = [
            {"error": "no"} if self.refuses and (each["source"], each["target"]) == SECOND else self.switch.handle(each)
            for each in arguments["requests"]
        ]
        return {"replies": replies}

    async def close(self) -> None: ...


async def userspace(plan: Plan, folder: Path) -> Stage:
    child = InProcess()
    fabric = UserspaceFabric(cast(Hub, WritingHub()), cast(JsonChild, child), wires_of(plan), None)

    def shown(*ends: str) -> tuple[float, bool]:
        link = child.switch.links[ends[0], ends[1]]
        return link.profile.latency, link.cut

    return Stage(
        fabric,
        plan,
        shown,
        lambda refuses: setattr(child, "refuses", refuses),
        crosses=lambda *ends: child.switch.links[ends[0], ends[1]].crossings,
    )


async def virtual(plan: Plan, folder: Path) -> Stage:
    fabric = ModelFabric(Timeouts(beat=1.0, lost_after=8.0))

    def shown(*ends: str) -> tuple[float, bool]:
        line = fabric.network.line(*ends)
        flow = fabric._flows[ends[0], ends[1]]
        return (flow if isinstance(flow, Flow) else flow.flow)._profile.latency, line.down

    return Stage(fabric, plan, shown, crosses=lambda *ends: fabric._crossings[ends])


class TwoHosts:
    """The agents of a and b, each with a fake engine, and what the driver knows of them."""

    hosts = ("a", "b")

    def __init__(self) -> None:
        self.homes = {"cloud": "a", "device-0": "a", "device-1": "b"}
        self.engines = dict.fromkeys(self.hosts, "fake")
        self.tcp: dict[str, dict[str, str]] = {host: {} for host in self.hosts}
        self.between: Between = {}
        self.fabrics = {host: FakeFabric() for host in self.hosts}

    def has(self, host: str) -> bool:
        return host in self.hosts

    async def call(self, host: str, method: Callable[..., Any], *arguments: Any) -> Any:
        fabric = self.fabrics[host]
        on_links = method.__qualname__.startswith("HostLinks.")
        target = HostRun(cast(Any, None), fabric, cast(Any, None)) if on_links else fabric
        return await getattr(target, method.__name__)(*arguments)


async def swarm(plan: Plan, folder: Path) -> Stage:
    two = TwoHosts()
    fabric = HostsFabric(cast(Agents, two), plan, cast(HostsDriver, two))
    second = fake_stage(plan, two.fabrics["b"])

    def of(ends: tuple[str, ...]) -> Stage:
        """What the host that shapes a link shows: if it crosses a cell, that of the cloud."""
        return fake_stage(plan, two.fabrics["a" if two.fabrics["a"].channels else two.homes[ends[0]]])

    def crosses(*ends: str) -> tuple[Crossing, ...]:
        found = of(ends).crosses
        assert found is not None
        return found(*ends)

    return Stage(fabric, plan, lambda *ends: of(ends).shown(*ends), second.refuse, crosses=crosses)


@pytest.mark.parametrize("case", [*CASES, *OF_MEDIA], ids=lambda case: case.__name__)
@pytest.mark.parametrize("open_stage", [fake, kernel, userspace, virtual, swarm], ids=lambda each: each.__name__)
async def test_fabric(open_stage: Open, case: Case, tmp_path: Path) -> None:
    plan = make_plan(parse(SCENARIO, "two.yaml"), None)
    stage = await open_stage(plan, tmp_path)
    await (share(stage) if case in OF_MEDIA else stage.fabric.shape(plan.links))
    for number, node in enumerate(plan.nodes):
        await stage.fabric.attach(node, NodeHandle(4711 + number, "a"))
    await case(stage)
    await asyncio.sleep(0)
    await stage.fabric.close()
