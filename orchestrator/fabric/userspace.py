"""The userspace engine: one switch process (netem/userspace/switch.py) holds the hub's ends of all links."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from netem.media.profile import ChannelProfile, CrossTraffic
from orchestrator.errors import FabricError
from orchestrator.fabric.base import Counted, LinkChange, NodeHandle
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp, wiring
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.trunk import DEVICE, Trunk, remote_nodes
from orchestrator.host.process import python
from orchestrator.host.process.child import JsonChild
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import LinkPlan, NodePlan

START_TIMEOUT = 20.0


def link_request(link: LinkPlan) -> dict[str, Any]:
    """The request to the switch (netem/userspace/switch.py) that makes a link."""
    ends = {"source": link.source, "target": link.target}
    if link.crossings:
        crossings = {"crossings": [list(each) for each in link.crossings]}
    else:
        crossings = {}
    return {"op": "link", **ends, "profile": link.profile.to_mapping(), "seed": link.seed, **crossings}


def nat_requests(links: Sequence[LinkPlan]) -> list[dict[str, Any]]:
    """The requests to the switch that put NATs before the targets of links."""
    return [
        {"op": "nat", "source": link.source, "target": link.target, "timeout": link.nat_timeout}
        for link in links
        if link.nat_timeout is not None
    ]


class UserspaceFabric(Coalescing):
    """Links through the switch; see Fabric for the verbs."""

    engine = "userspace"

    def __init__(self, hub: Hub, switch: JsonChild, wires: wiring.Wires, trunk: Trunk | None) -> None:
        super().__init__(self.alter)
        self._hub = hub
        self._switch = switch
        self._nodes = wires.nodes
        self._trunk = trunk
        self._remote = remote_nodes(wires.nodes, trunk)
        self._mtu = wiring.MTU if trunk is None else trunk.mtu
        self._mtus = wiring.within(wires.mtus, self._mtu)
        self._single_packets = wires.single_packets
        self.tcp: Mapping[str, str] = {}
        self._attachments = count(1)
        self._attached: set[str] = set()
        self._counted: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    async def open(
        cls,
        hub: Hub,
        run: str,
        directory: Path,
        wires: wiring.Wires,
        trunk: Trunk | None = None,
    ) -> UserspaceFabric:
        """``trunk``: the hub's trunk, already laid, if the run spans several hosts."""
        switch = await JsonChild.start(
            "the switch",
            [*hub.enter(), *python.module("netem.userspace.switch")],
            environment=labels(run, directory, "switch"),
            log=directory / "logs" / "switch.log",
        )
        try:
            await switch.wait_ready(START_TIMEOUT)
            if trunk is not None:
                await switch.request("trunk", interface=DEVICE, remotes=remote_nodes(wires.nodes, trunk))
        except BaseException:
            await switch.close()
            raise
        return cls(hub, switch, wires, trunk)

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        interface = wiring.hub_interface(node, next(self._attachments))
        lines = wiring.hub_lines(node, handle.pid, interface, bridge=None, mtu=self._mtu)
        await self._hub.set_up(None, {}, lines)
        await self._switch.request("attach", port=node.name, interface=interface, mac=node.mac)
        self._attached.add(node.name)
        peers = wiring.peers(node, self._nodes)
        most = 1 if node.name in self._single_packets else None
        mtus = self._mtus.get(node.name, {})
        return await tcp.configure(self._hub, node, handle.pid, peers, most_segments=most, mtus=mtus, settings=self.tcp)

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Mapping[str, NodeHandle]) -> None:
        """The switch finds nodes by their MACs, which stay."""
        (before,) = [each for each in self._nodes if each.name == node.name]
        self._nodes = tuple(node if each is before else each for each in self._nodes)
        most = 1 if node.name in self._single_packets else None
        await tcp.readdress(
            *(self._hub, before, node, handle.pid, self._nodes, peers),
            most_segments=most,
            mtus=self._mtus,
            settings=self.tcp,
        )

    async def detach(self, node: NodePlan) -> None:
        if node.name in self._attached:
            self._attached.discard(node.name)
            await self._switch.request("detach", port=node.name)

    async def unsent(self, handle: NodeHandle) -> int:
        return await self._hub.unsent(handle.pid)

    async def forget(self, handle: NodeHandle) -> None:
        await self._hub.forget(handle.pid)

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        assert self._trunk is not None, "no node runs on another host"
        self._trunk = replace(self._trunk, remotes=remotes)
        self._remote = remote_nodes(self._nodes, self._trunk)
        await self._switch.request("trunk", interface=DEVICE, remotes=self._remote)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        own = [link for link in links if (link.target if link.at_target else link.source) not in self._remote]
        for error in await self._batch([*(link_request(link) for link in own), *nat_requests(own)]):
            if error is not None:
                raise error
        leaving = [link for link in links if link.at_target and link.target in self._remote]
        arriving = [link for link in links if link.source in self._remote and link.target not in self._remote]
        for operation, crossing in (("pass_on", leaving), ("admit", arriving)):
            if crossing:
                await self._switch.request(operation, links=[(link.source, link.target) for link in crossing])

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        for name, profile in channels.items():
            await self._switch.request("channel", name=name, profile=profile.to_mapping())

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        written = None if traffic is None else traffic.to_mapping()
        await self._switch.request("occupy", name=channel, traffic=written, seed=seed)

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        return await self._batch([_request(change) for change in changes])

    async def counters(self) -> Counted:
        answer = await self._switch.request("counters", changed=True)
        self._counted |= {(row["source"], row["target"]): row for row in answer["links"]}
        return Counted(
            links=list(self._counted.values()),
            forwarded=answer["forwarded"],
            to_groups=answer["to_groups"],
            late=answer["late"],
            late_max=max(answer["late_max"], answer["waited_max"]),
            drops=_drops(answer),
            cpu_seconds=answer["cpu_seconds"],
            channels=answer.get("channels", ()),
            from_trunk=answer["from_trunk"],
            from_strangers=answer["from_strangers"],
            sent_to=answer["sent_to"],
            came_from=answer["came_from"],
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
    if change.crossings is not None:
        return {"op": "link", **ends, "crossings": [list(each) for each in change.crossings]}
    return {"op": "cut" if change.cut else "restore", **ends}
