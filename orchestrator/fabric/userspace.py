"""The userspace engine: the hub's ends of all links are held by one switch process (netem/switch.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from netem.profile import LinkProfile
from orchestrator.fabric import wiring
from orchestrator.fabric.base import Counted
from orchestrator.fabric.hub import Hub, labels
from orchestrator.host.child import JsonChild
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan

START_TIMEOUT = 20.0


class UserspaceFabric:
    """Links through the switch; see Fabric for the verbs."""

    engine = "userspace"

    def __init__(self, hub: Hub, switch: JsonChild, plan: Plan) -> None:
        self._hub = hub
        self._switch = switch
        self._nodes = plan.nodes
        self._single_packets = wiring.packet_truth(plan)
        self._attachments = count(1)

    @classmethod
    async def open(cls, hub: Hub, run: str, directory: Path, plan: Plan) -> UserspaceFabric:
        switch = await JsonChild.start(
            "the switch",
            [*hub.enter(), sys.executable, "-m", "netem.switch"],
            environment=labels(run, directory, "switch"),
            log=directory / "logs" / "switch.log",
        )
        await switch.wait_ready(START_TIMEOUT)
        return cls(hub, switch, plan)

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, pid: int) -> None:
        interface = wiring.hub_interface(node, next(self._attachments))
        await self._hub.run(["ip", "-batch", "-"], stdin=wiring.hub_lines(node, pid, interface, bridge=None))
        await self._switch.request("attach", port=node.name, interface=interface, mac=node.mac)
        lines = wiring.node_lines(
            node, wiring.peers(node, self._nodes), single_packets=node.name in self._single_packets
        )
        await self._hub.run(["ip", "-batch", "-"], pid=pid, stdin=lines)

    async def detach(self, node: NodePlan) -> None:
        await self._switch.request("detach", port=node.name)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        requests = [
            {
                "op": "link",
                "source": link.source,
                "target": link.target,
                "profile": link.profile.to_mapping(),
                "seed": link.seed,
            }
            for link in links
        ]
        await self._switch.request("batch", requests=requests)

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        await self._switch.request("link", source=source, target=target, profile=profile.to_mapping())

    async def cut(self, source: str, target: str) -> None:
        await self._switch.request("cut", source=source, target=target)

    async def restore(self, source: str, target: str) -> None:
        await self._switch.request("restore", source=source, target=target)

    async def counters(self) -> Counted:
        answer = await self._switch.request("counters")
        return Counted(
            links=answer["links"],
            late_p99=answer["late_p99"],
            late_max=answer["late_max"],
            socket_drops=answer["socket_drops"],
            cpu_seconds=answer["cpu_seconds"],
        )

    async def close(self) -> None:
        await self._switch.close()
