"""The bridge of the kernel engine, in the hub, with a port for each node and for the trunk.

It has a static forwarding table and does not learn. A learning bridge floods packets for a silent or absent node, and
such packets would use the rate and the buffer of other links.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.fabric.namespaces.hub import BRIDGE_BATCH, Hub
from orchestrator.fabric.trunk import DEVICE

NAME = "br0"
_QUIET = "flood off mcast_flood off bcast_flood off learning off"
_UNLOCKED = "the trunk: this host's bridge cannot drop packets by their source (Linux 5.18 and iproute2 5.19 can)"


async def make(hub: Hub) -> None:
    await hub.run(f"ip link add {NAME} type bridge mcast_snooping 0".split())
    await hub.run(f"ip link set {NAME} addrgenmode none up".split())


async def add_trunk(hub: Hub, macs: Sequence[str]) -> list[str]:
    """Make the trunk a port with the nodes of these addresses behind it. The bridge drops, and does not count, what
    comes from there with another source (`locked` in bridge(8), since Linux 5.18). Returns notes: that it cannot."""
    await hub.run(f"ip link set {DEVICE} master {NAME}".split())
    await place(hub, DEVICE, macs)
    lock = f"bridge link set dev {DEVICE} locked on"
    refused, _, _ = await hub.attempt(lock.split())
    if refused:
        return [_UNLOCKED]
    return []


async def place(hub: Hub, interface: str, macs: Sequence[str]) -> None:
    """Nodes with these addresses are behind a port from now on."""
    lines = [f"link set dev {interface} {_QUIET}"]
    for mac in macs:
        lines.append(f"fdb replace {mac} dev {interface} master static")
    await _batch(hub, lines)


async def remove(hub: Hub, interface: str, macs: Sequence[str]) -> None:
    """Nodes with these addresses are no longer behind a port."""
    lines = []
    for mac in macs:
        lines.append(f"fdb del {mac} dev {interface} master static")
    await _batch(hub, lines)


async def _batch(hub: Hub, lines: Sequence[str]) -> None:
    stdin = "".join(f"{line}\n" for line in lines)
    await hub.run(BRIDGE_BATCH, stdin=stdin)
