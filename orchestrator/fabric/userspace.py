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
from orchestrator.fabric.base import Counted, Errors, Handles, LinkChange, LinkRow, NodeHandle
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp, wiring
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.trunk import DEVICE, Trunk, remote_nodes
from orchestrator.host.process import python
from orchestrator.host.process.child import JsonChild
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import LinkPlan, NodePlan

START_TIMEOUT = 20.0

Request = dict[str, Any]


def link_request(link: LinkPlan) -> Request:
    """The request to the switch (netem/userspace/switch.py) that makes a link."""
    request = {
        "op": "link",
        "source": link.source,
        "target": link.target,
        "profile": link.profile.to_mapping(),
        "seed": link.seed,
    }
    if link.crossings:
        crossings = [list(crossing) for crossing in link.crossings]
        request["crossings"] = crossings
    return request


def nat_requests(links: Sequence[LinkPlan]) -> list[Request]:
    """The requests to the switch that put NATs before the targets of links."""
    requests = []
    for link in links:
        if link.nat_timeout is not None:
            requests.append(
                {
                    "op": "nat",
                    "source": link.source,
                    "target": link.target,
                    "timeout": link.nat_timeout,
                }
            )
    return requests


def _shaping_end(link: LinkPlan) -> str:
    """The node on the host that shapes a link."""
    return link.target if link.at_target else link.source


class UserspaceFabric(Coalescing):
    """Links through the switch; see Fabric for the verbs."""

    engine = "userspace"

    def __init__(
        self,
        hub: Hub,
        switch: JsonChild,
        wires: wiring.Wires,
        trunk: Trunk | None,
    ) -> None:
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
        self._counted: dict[tuple[str, str], LinkRow] = {}

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
        program = python.module("netem.userspace.switch")
        switch = await JsonChild.start(
            "the switch",
            [*hub.enter(), *program],
            environment=labels(run, directory, "switch"),
            log=directory / "logs" / "switch.log",
        )
        try:
            await switch.wait_ready(START_TIMEOUT)
            if trunk is not None:
                remotes = remote_nodes(wires.nodes, trunk)
                await switch.request("trunk", interface=DEVICE, remotes=remotes)
        except BaseException:
            await switch.close()
            raise
        return cls(hub, switch, wires, trunk)

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        name = node.name
        attachment = next(self._attachments)
        interface = wiring.hub_interface(node, attachment)
        pid = handle.pid
        lines = wiring.hub_lines(node, pid, interface, None, self._mtu)
        await self._hub.set_up(None, {}, lines)
        await self._switch.request("attach", port=name, interface=interface, mac=node.mac)
        self._attached.add(name)
        return await tcp.configure(
            self._hub,
            node,
            pid,
            wiring.peers(node, self._nodes),
            most_segments=self._most_segments(node),
            mtus=self._mtus.get(name, {}),
            settings=self.tcp,
        )

    def _most_segments(self, node: NodePlan) -> int | None:
        return 1 if node.name in self._single_packets else None

    async def readdress(self, node: NodePlan, handle: NodeHandle, peers: Handles) -> None:
        """The switch finds nodes by their MACs, which stay."""
        (before,) = [known for known in self._nodes if known.name == node.name]
        nodes = []
        for known in self._nodes:
            nodes.append(node if known is before else known)
        self._nodes = tuple(nodes)
        await tcp.readdress(
            self._hub,
            before,
            node,
            handle.pid,
            self._nodes,
            peers,
            most_segments=self._most_segments(node),
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
        own = []
        requests = []
        for link in links:
            if _shaping_end(link) not in self._remote:
                own.append(link)
                requests.append(link_request(link))
        requests += nat_requests(own)
        for error in await self._batch(requests):
            if error is not None:
                raise error
        leaving = []
        arriving = []
        for link in links:
            pair = (link.source, link.target)
            to_remote = link.target in self._remote
            if link.at_target and to_remote:
                leaving.append(pair)
            if link.source in self._remote and not to_remote:
                arriving.append(pair)
        if leaving:
            await self._switch.request("pass_on", links=leaving)
        if arriving:
            await self._switch.request("admit", links=arriving)

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        for name, profile in channels.items():
            written = profile.to_mapping()
            await self._switch.request("channel", name=name, profile=written)

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        written = None if traffic is None else traffic.to_mapping()
        await self._switch.request("occupy", name=channel, traffic=written, seed=seed)

    async def alter(self, changes: Sequence[LinkChange]) -> Errors:
        requests = [_request(change) for change in changes]
        return await self._batch(requests)

    async def counters(self) -> Counted:
        answer = await self._switch.request("counters", changed=True)
        for row in answer["links"]:
            pair = (row["source"], row["target"])
            self._counted[pair] = row
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
        hub = self._hub.watch()
        switch = self._switch.watch()
        await asyncio.gather(hub, switch)

    async def close(self) -> None:
        await self._switch.close()

    async def _batch(self, requests: list[Request]) -> Errors:
        answer = await self._switch.request("batch", requests=requests)
        replies = answer["replies"]
        errors: Errors = []
        for request, reply in zip(requests, replies, strict=True):
            if "error" in reply:
                link = f"{request['source']} -> {request['target']}"
                errors.append(FabricError(f"link {link}: {reply['error']}"))
            else:
                errors.append(None)
        return errors


def _drops(answer: dict[str, Any]) -> dict[str, int]:
    """Losses that no link's profile configures, from the switch's counters."""
    drops = {}
    for port, number in answer["socket_drops"].items():
        drops[f"before the switch, from {port}"] = number
    drops["in full interfaces"] = answer["refused"]
    drops["beyond what the switch holds"] = answer["flight_dropped"]
    drops["unreadable"] = answer["unreadable"]
    lost = {}
    for where, number in drops.items():
        if number:
            lost[where] = number
    return lost


def _request(change: LinkChange) -> Request:
    """The request to the switch for a change."""
    request: Request = {
        "op": "link",
        "source": change.source,
        "target": change.target,
    }
    if change.profile is not None:
        request["profile"] = change.profile.to_mapping()
    elif change.crossings is not None:
        crossings = [list(crossing) for crossing in change.crossings]
        request["crossings"] = crossings
    else:
        request["op"] = "cut" if change.cut else "restore"
    return request
