"""TCP in the nodes' network namespaces: the settings that transfer times depend on are the same on every host.

A new namespace inherits three settings from its host: the congestion control and the limits of both buffers (Linux,
net/ipv4/tcp_ipv4.c, tcp_sk_init). Nodes get Linux's defaults instead, see ip-sysctl in its documentation. All other
settings start with the kernel's own defaults, whatever the host has set. They are recorded. A node's `stack` replaces
some of them.

The congestion control is set on the route (congctl in ip-route(8)), because a namespace may choose only what its host
has listed in tcp_allowed_congestion_control.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from orchestrator.fabric.base import Handles
from orchestrator.fabric.namespaces.hub import IP_BATCH, Hub
from orchestrator.fabric.namespaces.wiring import (
    neighbour_lines,
    node_lines,
    path_routes,
    peers,
    routes,
    withdrawal_lines,
)
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.sections.stack import CONGESTION as CONGESTION
from orchestrator.scenario.sections.stack import DEFAULTS

SETTINGS = DEFAULTS
BUFFERS = {name: value for name, value in SETTINGS.items() if name != CONGESTION}

REMEDY = "give its kernel CUBIC, as root on that host"
REMEDY_COMMANDS = ("modprobe tcp_cubic",)

_SECRET = "tcp_fastopen_key"

_ON_LOOPBACK = f"ip route replace local 127.0.0.0/8 dev lo congctl {SETTINGS[CONGESTION]}".split()


async def configure(
    hub: Hub,
    node: NodePlan,
    pid: int,
    known: Collection[NodePlan],
    *,
    most_segments: int | None,
    mtus: Mapping[str, int],
    settings: Mapping[str, str],
    before: NodePlan | None = None,
) -> dict[str, str]:
    """Set addresses, routes and TCP in the namespace of a node with the ``known`` peers. ``most_segments``: of its
    super-packets; None: as many as its kernel makes. ``mtus``: of its links that have one, by peer.
    ``settings``: those of nodes on this host. ``before``: the node with its former addresses, which are removed.
    Returns the settings that are in force of those in its `stack`, by name. A kernel may refuse some."""
    lines = ""
    if before is not None:
        lines = withdrawal_lines(before)
    lines += node_lines(
        node,
        known,
        most_segments=most_segments,
        congestion=congestion(settings),
        mtus=mtus,
    )
    own = {name: value for name, value in node.stack.items() if name != CONGESTION}
    requested = {**BUFFERS, **own}
    actual = await hub.set_up(pid, requested, lines, read=bool(node.stack))
    if not node.stack:
        return {}
    if CONGESTION in node.stack:
        control = node.stack[CONGESTION]
        own_routes = routes(node, control)
        own_routes += path_routes(node, control, known, mtus)
        await _attempt(hub, pid, own_routes)
    show_route = ["ip", "route", "show", "dev", "data0"]
    _, shown, _ = await hub.attempt(show_route, pid=pid)
    on_route = re.search(r"\bcongctl (\S+)", shown)
    if on_route:
        actual[CONGESTION] = on_route[1]
    return {name: actual.get(name, "unknown") for name in node.stack}


async def _attempt(hub: Hub, pid: int, lines: Iterable[str]) -> None:
    """Run each of these lines that the kernel of a node does not refuse."""
    for line in lines:
        await hub.attempt(IP_BATCH, pid=pid, stdin=line)


async def readdress(
    hub: Hub,
    before: NodePlan,
    node: NodePlan,
    pid: int,
    nodes: Iterable[NodePlan],
    running: Handles,
    *,
    most_segments: int | None,
    mtus: Mapping[str, Mapping[str, int]],
    settings: Mapping[str, str],
) -> None:
    """Replace the addresses of a node, with its process ``pid``, and let its ``running`` peers know the new ones. They
    also keep the former ones: what a peer still sends there crosses the link, and the node's kernel drops it.
    ``mtus``: by node and peer, see `wiring.mtus_of`."""
    known = peers(node, nodes)
    control = congestion(settings)
    for peer in known:
        if peer.name in running:
            peer_pid = running[peer.name].pid
            peer_mtus = mtus.get(peer.name, {})
            await _introduce(hub, node, peer, peer_pid, peer_mtus, control)
    await configure(
        hub,
        node,
        pid,
        known,
        most_segments=most_segments,
        mtus=mtus.get(node.name, {}),
        settings=settings,
        before=before,
    )


async def _introduce(
    hub: Hub,
    node: NodePlan,
    peer: NodePlan,
    pid: int,
    mtus: Mapping[str, int],
    congestion: str | None,
) -> None:
    """Let a peer, with its process ``pid`` and its ``mtus``, know the addresses of a node."""
    lines = neighbour_lines([node])
    for line in path_routes(peer, congestion, [node], mtus):
        lines += f"{line}\n"
    await hub.set_up(pid, {}, lines)
    if CONGESTION in peer.stack:
        control = peer.stack[CONGESTION]
        own_routes = path_routes(peer, control, [node], mtus)
        await _attempt(hub, pid, own_routes)


async def in_force(hub: Hub) -> dict[str, str]:
    """The TCP settings of nodes by name, tried and read in the hub. Empty if this host does not show them."""
    refused, _, _ = await hub.attempt(_ON_LOOPBACK)
    shown = await hub.set_up(None, BUFFERS, read=True)
    settings = known(shown)
    if refused or not settings:
        return settings
    return settings | {CONGESTION: SETTINGS[CONGESTION]}


def congestion(settings: Mapping[str, str]) -> str | None:
    """The congestion control for the routes of nodes; None if this host's kernel does not have it."""
    if settings.get(CONGESTION) == SETTINGS[CONGESTION]:
        return SETTINGS[CONGESTION]
    return None


def known(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without the secret ones."""
    return {name: value for name, value in settings.items() if name != _SECRET}


HostSettings = Mapping[str, Mapping[str, str]]


def of_hosts(settings: HostSettings) -> dict[str, str]:
    """The settings of several hosts as one: where hosts differ, the value of each, with its name."""
    names: dict[str, None] = {}
    for of_host in settings.values():
        names |= dict.fromkeys(of_host)
    return {name: _of_hosts(name, settings) for name in names}


def _of_hosts(name: str, settings: HostSettings) -> str:
    """One setting of several hosts."""
    values = {}
    for host, of_host in settings.items():
        values[host] = of_host.get(name, "unknown")
    different = set(values.values())
    if len(different) == 1:
        return different.pop()
    return ", ".join(f"{value} on {host}" for host, value in values.items())


def notes(settings: Mapping[str, str]) -> list[str]:
    """A sentence for each of SETTINGS that a kernel has refused, for the record."""
    sentences = []
    for name, value in SETTINGS.items():
        actual = settings.get(name, value)
        if actual != value:
            sentences.append(
                f"TCP of the nodes has {name} {actual} and not {value}, which this kernel refuses:"
                " transfer times differ from those of other hosts"
            )
    return sentences
