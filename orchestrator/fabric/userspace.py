"""The userspace engine: one switch process (netem/switch.py) holds the hub's ends of all links."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from orchestrator.errors import FabricError
from orchestrator.fabric import wiring
from orchestrator.fabric.base import Counted, Handle, LinkChange
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.hub import Hub
from orchestrator.host import python
from orchestrator.host.child import JsonChild
from orchestrator.host.processes import labels
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan

START_TIMEOUT = 20.0


def link_request(link: LinkPlan) -> dict[str, Any]:
    """The request to the switch (netem/switch.py) that makes a link."""
    ends = {"source": link.source, "target": link.target}
    return {"op": "link", **ends, "profile": link.profile.to_mapping(), "seed": link.seed}


class UserspaceFabric(Coalescing):
    """Links through the switch; see Fabric for the verbs."""

    engine = "userspace"

    def __init__(self, hub: Hub, switch: JsonChild, plan: Plan) -> None:
        super().__init__(self.alter)
        self._hub = hub
        self._switch = switch
        self._nodes = plan.nodes
        self._single_packets = wiring.packet_truth(plan)
        self._attachments = count(1)
        self._attached: set[str] = set()

    @classmethod
    async def open(cls, hub: Hub, run: str, directory: Path, plan: Plan) -> UserspaceFabric:
        switch = await JsonChild.start(
            "the switch",
            [*hub.enter(), *python.module("netem.switch")],
            environment=labels(run, directory, "switch"),
            log=directory / "logs" / "switch.log",
        )
        try:
            await switch.wait_ready(START_TIMEOUT)
        except BaseException:
            await switch.close()
            raise
        return cls(hub, switch, plan)

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: Handle) -> None:
        interface = wiring.hub_interface(node, next(self._attachments))
        await self._hub.run(["ip", "-batch", "-"], stdin=wiring.hub_lines(node, handle.pid, interface, bridge=None))
        await self._switch.request("attach", port=node.name, interface=interface, mac=node.mac)
        self._attached.add(node.name)
        lines = wiring.node_lines(
            node, wiring.peers(node, self._nodes), single_packets=node.name in self._single_packets
        )
        await self._hub.run(["ip", "-batch", "-"], pid=handle.pid, stdin=lines)

    async def detach(self, node: NodePlan) -> None:
        if node.name in self._attached:
            self._attached.discard(node.name)
            await self._switch.request("detach", port=node.name)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for error in await self._batch([link_request(link) for link in links]):
            if error is not None:
                raise error

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        return await self._batch([_request(change) for change in changes])

    async def counters(self) -> Counted:
        answer = await self._switch.request("counters")
        return Counted(
            links=answer["links"],
            forwarded=answer["forwarded"],
            late=answer["late"],
            late_max=max(answer["late_max"], answer["waited_max"]),
            drops=_drops(answer),
            cpu_seconds=answer["cpu_seconds"],
        )

    async def watch(self) -> None:
        await asyncio.gather(self._hub.watch(), self._switch.watch())

    async def close(self) -> None:
        await self._switch.close()

    async def _batch(self, requests: list[dict[str, Any]]) -> list[Exception | None]:
        answer = await self._switch.request("batch", requests=requests)
        return [
            FabricError(f"link {request['source']} -> {request['target']}: {reply['error']}")
            if "error" in reply
            else None
            for request, reply in zip(requests, answer["replies"], strict=True)
        ]


def _drops(answer: dict[str, Any]) -> dict[str, int]:
    """Losses that no link's profile asks for, from the switch's counters."""
    drops = {f"before the switch, from {port}": number for port, number in answer["socket_drops"].items()}
    drops |= {"in full interfaces": answer["refused"], "beyond what the switch holds": answer["flight_dropped"]}
    drops["unreadable"] = answer["unreadable"]
    return {where: number for where, number in drops.items() if number}


def _request(change: LinkChange) -> dict[str, Any]:
    """The request to the switch for a change."""
    ends = {"source": change.source, "target": change.target}
    if change.profile is not None:
        return {"op": "link", **ends, "profile": change.profile.to_mapping()}
    return {"op": "cut" if change.cut else "restore", **ends}
