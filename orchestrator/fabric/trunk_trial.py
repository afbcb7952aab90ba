"""A trunk without nodes. Each hub has an address of its own on it, so that probes between the hubs pass it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.fabric.namespaces.hub import IP_BATCH, Hub
from orchestrator.fabric.trunk import DEVICE, Carrier, Trunk, create_trunk, id_of, mtu_of


def address_of(number: int) -> str:
    """The address of a host's hub on the trunk; ``number`` counts the hosts from 0."""
    high, low = divmod(number + 1, 256)
    return f"10.77.{high}.{low}"


def trunk_of(
    run: str,
    number: int,
    hosts: Sequence[str],
    mtu: int,
) -> Trunk:
    """The trunk of one of the ``hosts`` (IPv4 addresses). ``mtu``: between them. HostError for other addresses."""
    remotes = {}
    for other, host in enumerate(hosts):
        if other != number:
            remotes[_mac(other)] = host
    return Trunk(
        local=hosts[number],
        id=id_of(run),
        remotes=remotes,
        mtu=mtu_of(mtu),
    )


def hub_lines(number: int, count: int) -> str:
    """Lines of `ip -batch` for a hub with a trunk: its own address, and those of the others."""
    lines = [
        f"link set {DEVICE} address {_mac(number)}\n",
        f"address add {address_of(number)}/16 dev {DEVICE}\n",
    ]
    for other in range(count):
        if other != number:
            neighbour = f"{address_of(other)} lladdr {_mac(other)}"
            lines.append(f"neigh replace {neighbour} dev {DEVICE} nud permanent\n")
    return "".join(lines)


async def create_trial(
    run: str,
    number: int,
    hosts: Sequence[str],
    mtu: int,
    hub: Hub,
    directory: Path,
) -> Carrier:
    """Create the trunk in the hub of one of the hosts, see `trunk_of`. HostError if this host refuses."""
    trunk = trunk_of(run, number, hosts, mtu)
    carrier = await create_trunk(trunk, hub, run, directory)
    lines = hub_lines(number, len(hosts))
    try:
        await hub.run(IP_BATCH, stdin=lines)
    except BaseException:
        await carrier.close()
        raise
    return carrier


def _mac(number: int) -> str:
    return f"02:ed:ff:ff:{number >> 8:02x}:{number & 255:02x}"
