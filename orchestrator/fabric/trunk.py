"""The trunk of a run on several hosts: a VXLAN device (RFC 7348) in each host's hub, which joins the hubs.

A node's packets for a node of another host pass their link in the hub of the sender. Then the trunk carries them over
the underlay, the network between the hosts, to the hub of the target, which does not shape them again. Forwarding is
static: the device knows the host of each remote node by the node's MAC. It floods nothing and learns nothing.

One command makes the device: the kernel opens its UDP socket in the network namespace of the host, and puts the device
itself directly into the hub (`ip link add ... netns`, IFLA_NET_NS_PID). So the device ends with the hub, and a process
that is killed leaves nothing behind. The kernel removes a namespace some milliseconds after its last process.

A kernel without VXLAN has a process instead, which sends and understands the same packets (netem.userspace.vxlan). So
does a trunk with a key, which an ordinary user can make: its packets prove that they are of the run. No one else can
write to it.

**Who can write to one without a key.** VXLAN neither encrypts nor authenticates (RFC 7348, section 7). The UDP socket
accepts packets on every address of the host. A host that can send to this port, and knows or guesses the 24 bits of
`id`, can put frames into the hub in the name of any node. A host on the way can read the frames and change them. An
engine drops a frame with a source that is not a node of another host, and a frame without a link of the run. Frames
with forged addresses of nodes with a link pass. They cannot take part in the nodes' conversations, which CURVE encrypts
and authenticates, but programs' own protocols may have no such protection. So the underlay must be a network that its
users trust.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from netem.userspace.vxlan import TAG
from orchestrator.errors import ChildError, HostError
from orchestrator.fabric.namespaces.hub import BRIDGE_BATCH, IP_BATCH, Hub
from orchestrator.host.process import python
from orchestrator.host.process.child import JsonChild
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import NodePlan

DEVICE = "trunk"  # its name in the hub
FAR = "trunk.far"  # the other end of the veth pair that it is where a process carries the packets
OVERHEAD = 50  # bytes: the headers of IPv4, UDP and VXLAN, and the inner Ethernet header
NO_VXLAN = ("Unknown device type", "Operation not supported")  # what `ip` reports then
START_TIMEOUT = 20.0  # s
PORT = 61147  # no service has registered it, and Linux gives a socket no such port by chance


@dataclass(frozen=True)
class Trunk:
    """One host's end of the trunk.

    local    this host's IPv4 address in the underlay
    id       marks the packets of the run (VXLAN network identifier), see `id_of`; the same on all hosts
    remotes  for each node of another host, by its MAC: the IPv4 address of that host in the underlay
    mtu      largest packet of a node in bytes, see `mtu_of`; the same on all hosts
    port     UDP port; the same on all hosts
    key      of the run in hexadecimal digits, for a trunk by processes; the same on all hosts. "": none
    """

    local: str
    id: int
    remotes: Mapping[str, str]
    mtu: int
    port: int = PORT
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        addresses = [self.local, *self.remotes.values()]
        for address in addresses:
            try:
                ipaddress.IPv4Address(address)
            except ValueError:
                raise HostError(f"{address!r} is not an IPv4 address; a trunk joins hosts over IPv4") from None


def id_of(run: str) -> int:
    """The identifier of a run's trunk: 24 bits of a hash."""
    name = run.encode()
    digest = hashlib.sha256(name).digest()
    return int.from_bytes(digest[:3])


def mtu_of(underlay: int, *, key: bool = False) -> int:
    """The largest packet of a node if the underlay carries ``underlay`` bytes. ``key``: the trunk has one."""
    mtu = underlay - OVERHEAD
    if key:
        mtu -= TAG
    return mtu


def remote_nodes(nodes: Iterable[NodePlan], trunk: Trunk | None) -> dict[str, str]:
    """The MACs of the nodes on other hosts, by name."""
    if trunk is None:
        return {}
    macs = {}
    for node in nodes:
        if node.mac in trunk.remotes:
            macs[node.name] = node.mac
    return macs


def host_lines(trunk: Trunk, hub: int) -> str:
    """Lines of `ip -batch` for the host's namespace: make the device in the namespace of the process ``hub``."""
    return (
        f"link add {DEVICE} netns {hub} mtu {trunk.mtu} type vxlan"
        f" id {trunk.id} local {trunk.local} dstport {trunk.port} nolearning\n"
    )


def hub_lines(trunk: Trunk) -> str:
    """Lines of `ip -batch` for the hub."""
    return f"link set {DEVICE} mtu {trunk.mtu} addrgenmode none\nlink set {DEVICE} up\n"


def pair_lines(trunk: Trunk) -> str:
    """Lines of `ip -batch` for the hub: the pair of a trunk by a process."""
    return (
        f"link add {DEVICE} mtu {trunk.mtu} type veth peer name {FAR} mtu {trunk.mtu}\n"
        f"link set {FAR} addrgenmode none\nlink set {FAR} up\n{hub_lines(trunk)}"
    )


def forwarding_lines(remotes: Mapping[str, str], before: Iterable[str] = ()) -> str:
    """Lines of `bridge -batch`: the hosts of remote nodes by MAC. ``before``: the MACs of former ones."""
    lines = []
    for mac in before:
        if mac not in remotes:
            lines.append(f"fdb del {mac} dev {DEVICE} self\n")
    for mac, host in remotes.items():
        lines.append(f"fdb replace {mac} dev {DEVICE} self static dst {host}\n")
    return "".join(lines)


class Carrier(Protocol):
    """What carries a trunk's packets to the other hosts: this host's kernel, or a process."""

    def notes(self) -> list[str]:
        """What a user should know of it."""

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        """From now on the nodes of other hosts are these, see `Trunk`."""

    async def watch(self) -> None:
        """Wait until it fails, and raise OrchestratorError."""

    async def close(self) -> None: ...


class KernelCarrier:
    """The kernel's VXLAN device. It ends with the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._macs: list[str] = []  # of the remote nodes

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        lines = forwarding_lines(remotes, self._macs)
        await self._hub.run(BRIDGE_BATCH, stdin=lines)
        self._macs = list(remotes)

    def notes(self) -> list[str]:
        return []

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


class ProcessCarrier:
    """`netem.userspace.vxlan`, for kernels without the device and for trunks with a key."""

    def __init__(self, child: JsonChild, key: str) -> None:
        self._child = child
        self._key = key

    def notes(self) -> list[str]:
        why = "" if self._key else "this host's kernel has no VXLAN device, so that "
        return [f"the trunk: {why}a process carries the packets"]

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        hosts = dict(remotes)
        await self._child.request("forward", hosts=hosts, key=self._key)

    async def watch(self) -> None:
        await self._child.watch()

    async def close(self) -> None:
        await self._child.close()


async def create_trunk(
    trunk: Trunk,
    hub: Hub,
    run: str,
    directory: Path,
    host: int | None = None,
) -> Carrier:
    """Make the trunk in the hub. The hub's anchor must be a process of this host. HostError if this host refuses.
    ``host``: a process in its network namespace, by default this one. ``directory``: of the run here."""
    pid = os.getpid() if host is None else host
    if trunk.key:
        return await create_trunk_by_process(trunk, hub, run, directory, pid)
    lines = host_lines(trunk, hub.anchor.pid)
    code, _, errors = await hub.attempt(IP_BATCH, pid=pid, stdin=lines)
    if code == 0:
        await hub.run(IP_BATCH, stdin=hub_lines(trunk))
        carrier = KernelCarrier(hub)
        await carrier.redirect(trunk.remotes)
        return carrier
    if not any(words in errors for words in NO_VXLAN):
        raise HostError(f"the trunk to the other hosts cannot be made ({errors.strip()})", "a trunk needs root")
    return await create_trunk_by_process(trunk, hub, run, directory, pid)


async def create_trunk_by_process(
    trunk: Trunk,
    hub: Hub,
    run: str,
    directory: Path,
    host: int,
) -> Carrier:
    """As `create_trunk`, without VXLAN in the kernel."""
    await hub.run(IP_BATCH, stdin=pair_lines(trunk))
    program = python.module(
        "netem.userspace.vxlan",
        str(hub.anchor.pid),
        DEVICE,
        FAR,
        trunk.local,
        str(trunk.port),
        str(trunk.id),
    )
    child = await JsonChild.start(
        "the trunk",
        [*hub.enter(host), *program],
        environment=labels(run, directory, "trunk"),
        log=directory / "logs" / "trunk.log",
    )
    try:
        await child.wait_ready(START_TIMEOUT)
        carrier = ProcessCarrier(child, trunk.key)
        await carrier.redirect(trunk.remotes)
    except BaseException as error:
        await child.close()
        if isinstance(error, ChildError):
            raise HostError(
                f"the trunk to the other hosts cannot be made by a process ({error})",
                f"is UDP port {trunk.port} of {trunk.local} free (`ss -ulnp`)?",
            ) from error
        raise
    return carrier
