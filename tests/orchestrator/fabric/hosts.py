"""Hosts within one machine: network namespaces joined by a bridge, the underlay, each with a hub of its own.

A trunk joins the hubs. The cloud and device-0 live on the first of two hosts, the other devices on the second.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from netem.media.profile import ChannelProfile, Crossing
from netem.profile import LinkProfile
from orchestrator.fabric.base import Fabric, NodeHandle, Redirects, SharesMedia
from orchestrator.fabric.namespaces.hub import ANCHOR, Hub
from orchestrator.fabric.trunk import PORT, Carrier, Trunk, create_trunk, id_of, mtu_of
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan, Plan
from orchestrator.scenario.reading import parse
from tests.netem.wiring import Namespace

RUN = f"hosts-{os.getpid()}"
SCENARIO = """\
name: hosts
algorithm: {{name: fedavg, rounds: 1}}
topology: {{edges: 0, devices: {devices}}}
links: {{device-cloud: {{latency: 10ms}}}}
"""
UNDERLAY = ("10.98.0.1", "10.98.0.2", "10.98.0.3")
MTU = mtu_of(1500)
CELL = "cell up"

T = TypeVar("T")
Opening = Callable[[Hub, str, Path, Plan, Trunk], Awaitable[Fabric]]
Laying = Callable[[Trunk, Hub, str, Path, int], Coroutine[Any, Any, Carrier]]


@dataclass
class Host:
    """``outside``: its network namespace, with its end of the underlay."""

    outside: Namespace
    hub: Hub
    trunk: Trunk
    carrier: Carrier
    fabric: Fabric


class Hosts:
    """The hosts with their links shaped. A context manager, and a `tests.netem.wiring.Wiring`."""

    def __init__(
        self,
        directory: Path,
        opening: Opening,
        devices: int = 3,
        attached: Sequence[str] = (),
        laying: Sequence[Laying] = (create_trunk, create_trunk, create_trunk),
        homes: Mapping[str, int] | None = None,
        cell: ChannelProfile | None = None,
    ) -> None:
        """``opening``: opens the engine under test. ``attached``: the nodes that are there, by default all.
        ``laying``: lays the trunk, by host. ``homes``: the number of the host of each node, if there are not two.
        ``cell``: what all links to the cloud share, on its host, which shapes them."""
        self.plan = make_plan(parse(SCENARIO.format(devices=devices), "hosts.yaml"), None)
        two = {node.name: int(node.name not in ("cloud", "device-0")) for node in self.plan.nodes}
        self.homes = dict(homes or two)
        self.cell = cell
        self.nodes: dict[str, Namespace] = {}
        self.left: dict[str, Namespace] = {}  # the earlier lives of nodes that have moved
        self.hosts: list[Host] = []
        self._hubs: list[Hub] = []
        self._carriers: list[Carrier] = []
        self._outside: list[Namespace] = []
        self._runner = asyncio.Runner()
        try:
            self._open(directory, opening, laying)
            for name in attached or self.homes:
                self.attach(name)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def _open(self, directory: Path, opening: Opening, laying: Sequence[Laying]) -> None:
        first = self.do(Hub.open(RUN, directory))
        self._hubs.append(first)
        number_of_hosts = 1 + max(self.homes.values())
        self._hubs += [self.do(_another(first)) for _ in range(1, number_of_hosts)]
        self._outside += [self._namespace(first) for _ in self._hubs]
        one, *others = self._outside
        one.run("ip", "link", "add", "u0", "type", "bridge")
        for number, other in enumerate(others):
            one.run(*f"ip link add p{number} type veth peer name u0 netns {other.pid}".split())
            one.run(*f"ip link set p{number} master u0 up".split())
        for number, (outside, hub) in enumerate(zip(self._outside, self._hubs, strict=True)):
            outside.run("ip", "address", "add", f"{UNDERLAY[number]}/24", "dev", "u0")
            if any(each is not create_trunk for each in laying):
                _without_offloads(outside, "u0")
            outside.run("ip", "link", "set", "u0", "up")
            trunk = Trunk(UNDERLAY[number], id_of(RUN), self._remotes(number), MTU)
            folder = directory / str(number)
            (folder / "logs").mkdir(parents=True)
            carrier = self.do(laying[number](trunk, hub, RUN, folder, outside.pid))
            self._carriers.append(carrier)
            fabric = self._runner.run(_opened(opening(hub, RUN, folder, self.plan, trunk)))
            self.hosts.append(Host(outside, hub, trunk, carrier, fabric))
            self._shape(number, self.plan.links)

    def _shape(self, number: int, links: Sequence[LinkPlan]) -> None:
        fabric = self.hosts[number].fabric
        if self.cell is not None:
            if number == self.homes["cloud"]:
                assert isinstance(fabric, SharesMedia)
                self.do(fabric.share({CELL: self.cell}))
            links = [self._in_cell(link) if link.target == "cloud" else link for link in links]
        self.do(fabric.shape(links))

    def _in_cell(self, link: LinkPlan) -> LinkPlan:
        apart = self.homes[link.source] != self.homes["cloud"]
        return replace(link, crossings=(Crossing(CELL, link.source),), at_target=apart)

    def _remotes(self, number: int) -> dict[str, str]:
        """The hosts of the nodes of other hosts than this."""
        return {self.plan.node(name).mac: UNDERLAY[home] for name, home in self.homes.items() if home != number}

    def move(self, name: str, to: int) -> None:
        """The node's host is lost, and it begins anew on another. Nobody tells the lost host, and what it has made
        stays as it is."""
        lost, self.homes[name] = self.homes[name], to
        self.left[name] = self.nodes.pop(name)
        for number, host in enumerate(self.hosts):
            if number != lost:
                assert isinstance(host.fabric, Redirects)
                self.do(host.carrier.redirect(self._remotes(number)))
                self.do(host.fabric.redirect(self._remotes(number)))
                own = [each for each in self.plan.links if name in (each.source, each.target)]
                self._shape(number, [each for each in own if number in self._ends(each)])
        self.attach(name)

    def _ends(self, link: LinkPlan) -> set[int]:
        return {self.homes[link.source], self.homes[link.target]}

    def _namespace(self, hub: Hub) -> Namespace:
        return Namespace([*hub.enter(), "unshare", "-n"], user=not hub.privileged)

    def fabric(self, node: str) -> Fabric:
        """The engine on the node's host."""
        return self.hosts[self.homes[node]].fabric

    def attach(self, name: str) -> None:
        """A new network namespace for the node."""
        self.nodes[name] = self._namespace(self.hosts[self.homes[name]].hub)
        self.do(self.fabric(name).attach(self.plan.node(name), NodeHandle(self.nodes[name].pid)))

    def end(self, name: str) -> None:
        """The node ends."""
        self.nodes.pop(name).close()
        self.do(self.fabric(name).detach(self.plan.node(name)))

    def change(self, source: str, target: str, profile: LinkProfile) -> None:
        self.do(self.fabric(source).change(source, target, profile))

    def counters(self, source: str, target: str) -> dict[str, Any]:
        rows = self.do(self.fabric(source).counters()).links
        return next(dict(row) for row in rows if (row["source"], row["target"]) == (source, target))

    def inject(
        self, source: str, target: str, run: str = RUN, content: bytes = b"\x08\x00" + bytes(46), count: int = 1
    ) -> None:
        """Frames with these MACs that somebody in the underlay, here the second host, writes to the first one's trunk.

        ``content``: the frame behind its addresses.
        """
        addresses = bytes.fromhex((target + source).replace(":", ""))
        self.write([vxlan_header(run) + addresses + content] * count)

    def write(self, datagrams: Sequence[bytes]) -> None:
        """What somebody in the underlay, here the second host, sends to the port of the first one's trunk."""
        with self.hosts[1].outside.socket(socket.SOCK_DGRAM) as underlay:
            for each in datagrams:
                underlay.sendto(each, (UNDERLAY[0], PORT))

    def address(self, name: str) -> str:
        return self.plan.node(name).address

    def bound(self, name: str, kind: int) -> socket.socket:
        """A socket in a node's namespace, bound to a free port of its data0 address."""
        return self.nodes[name].socket(kind, (self.address(name), 0))

    def close(self) -> None:
        for node in (*self.nodes.values(), *self.left.values()):
            node.close()
        for host in self.hosts:
            self.do(host.fabric.close())
        for carrier in self._carriers:
            self.do(carrier.close())
        for hub in reversed(self._hubs):  # the others lie in the first one's user namespace
            self.do(hub.close())
        for outside in self._outside:
            outside.close()
        self._runner.close()


def _without_offloads(outside: Namespace, interface: str) -> None:
    """Have the kernel complete checksums and split super-packets, as an interface of hardware does: a veth pair leaves
    both to whoever receives (ETHTOOL_STXCSUM, ETHTOOL_STSO and ETHTOOL_SGSO of SIOCETHTOOL, <linux/ethtool.h>)."""
    with outside.socket(socket.SOCK_DGRAM) as any_socket:
        for command in (0x17, 0x1F, 0x24):
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            fcntl.ioctl(any_socket, 0x8946, struct.pack("16sP16x", interface.encode(), ctypes.addressof(value)))


def vxlan_header(run: str) -> bytes:
    """RFC 7348, section 5."""
    return struct.pack("!B3xI", 0x08, id_of(run) << 8)


async def _another(first: Hub) -> Hub:
    """Another hub with the rights of the first: without root, all must lie in one user namespace."""
    anchor = await asyncio.create_subprocess_exec(
        *(*first.enter(), "unshare", "--net", "--", *ANCHOR),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hub = Hub(anchor, first.privileged, first._label, first._log.parent.parent)
    await hub.confirm()
    return hub


async def _opened(opening: Awaitable[Fabric]) -> Fabric:
    return await opening
