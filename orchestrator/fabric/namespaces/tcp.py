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

from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
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

_ON_LOOPBACK = ("ip", "route", "replace", "local", "127.0.0.0/8", "dev", "lo", "congctl", SETTINGS[CONGESTION])


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
    lines = "" if before is None else withdrawal_lines(before)
    lines += node_lines(node, known, most_segments=most_segments, congestion=congestion(settings), mtus=mtus)
    own = {name: value for name, value in node.stack.items() if name != CONGESTION}
    found = await hub.set_up(pid, {**BUFFERS, **own}, lines, read=bool(node.stack))
    if not node.stack:
        return {}
    if CONGESTION in node.stack:
        control = node.stack[CONGESTION]
        await _attempt(hub, pid, [*routes(node, control), *path_routes(node, control, known, mtus)])
    _, shown, _ = await hub.attempt(["ip", "route", "show", "dev", "data0"], pid=pid)
    on_route = re.search(r"\bcongctl (\S+)", shown)
    if on_route:
        found[CONGESTION] = on_route[1]
    return {name: found.get(name, "unknown") for name in node.stack}


async def _attempt(hub: Hub, pid: int, lines: Iterable[str]) -> None:
    """Run each of these lines that the kernel of a node does not refuse."""
    for line in lines:
        await hub.attempt(["ip", "-batch", "-"], pid=pid, stdin=line)


async def readdress(
    hub: Hub,
    before: NodePlan,
    node: NodePlan,
    pid: int,
    nodes: Iterable[NodePlan],
    running: Mapping[str, NodeHandle],
    *,
    most_segments: int | None,
    mtus: Mapping[str, Mapping[str, int]],
    settings: Mapping[str, str],
) -> None:
    """Replace the addresses of a node, with its process ``pid``, and let its ``running`` peers know the new ones. They
    also keep the former ones: what a peer still sends there crosses the link, and the node's kernel drops it.
    ``mtus``: by node and peer, see `wiring.mtus_of`."""
    known = peers(node, nodes)
    for peer in known:
        if peer.name in running:
            await _introduce(hub, node, peer, running[peer.name].pid, mtus.get(peer.name, {}), congestion(settings))
    own = mtus.get(node.name, {})
    await configure(hub, node, pid, known, most_segments=most_segments, mtus=own, settings=settings, before=before)


async def _introduce(
    hub: Hub,
    node: NodePlan,
    peer: NodePlan,
    pid: int,
    mtus: Mapping[str, int],
    congestion: str | None,
) -> None:
    """Let a peer, with its process ``pid`` and its ``mtus``, know the addresses of a node."""
    lines = [f"{line}\n" for line in path_routes(peer, congestion, [node], mtus)]
    await hub.set_up(pid, {}, neighbour_lines([node]) + "".join(lines))
    if CONGESTION in peer.stack:
        await _attempt(hub, pid, path_routes(peer, peer.stack[CONGESTION], [node], mtus))


async def in_force(hub: Hub) -> dict[str, str]:
    """The TCP settings of nodes by name, tried and read in the hub. Empty if this host does not show them."""
    refused, _, _ = await hub.attempt(_ON_LOOPBACK)
    settings = known(await hub.set_up(None, BUFFERS, read=True))
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


def of_hosts(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The settings of several hosts as one: where hosts differ, the value of each, with its name."""
    names = dict.fromkeys(name for each in settings.values() for name in each)
    values = {name: {host: each.get(name, "unknown") for host, each in settings.items()} for name in names}
    return {
        name: next(iter(of.values()))
        if len(set(of.values())) == 1
        else ", ".join(f"{value} on {host}" for host, value in of.items())
        for name, of in values.items()
    }


def notes(settings: Mapping[str, str]) -> list[str]:
    """A sentence for each of SETTINGS that a kernel has refused, for the record."""
    return [
        f"TCP of the nodes has {name} {settings[name]} and not {value}, which this kernel refuses:"
        " transfer times differ from those of other hosts"
        for name, value in SETTINGS.items()
        if settings.get(name, value) != value
    ]
