"""What programs find in a node: the names of all nodes, and what the host lacks for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path

from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.wiring import ipv6_address
from orchestrator.host.kernel.ports import listening_on
from orchestrator.host.kernel.usage import ProcessUsage, UsageReader
from orchestrator.planning.plan import Plan

IPV6_SETTINGS = Path("/proc/sys/net/ipv6")  # missing if the kernel has no IPv6
LOCALHOST = {"localhost": "127.0.0.1"}
NO_IPV6 = "this kernel has no IPv6: programs reach nodes by IPv4 only, although names resolve to both"


def write_hosts(path: Path, names: Mapping[str, str]) -> None:
    """Write the file that is /etc/hosts in every node. ``names``: those of `addresses`. An existing file is changed in
    place, since nodes have mounted it."""
    lines = [f"{address}\t{name}\n" for name, address in name_addresses(names)]
    content = "".join(lines).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(content)
        file.truncate()
    path.chmod(0o644)  # users in containers read it, whatever the mask of this process


def addresses(plan: Plan) -> dict[str, str]:
    """The IPv4 addresses of all names that resolve in a node."""
    of_nodes = {node.name: node.address for node in plan.nodes}
    return LOCALHOST | of_nodes


def name_addresses(names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each name of `addresses` with its IPv4 address and with its IPv6 address."""
    pairs = []
    for name, address in names.items():
        if IPv4Address(address).is_loopback:
            ipv6 = "::1"
        else:
            ipv6 = ipv6_address(address)
        pairs.append((name, address))
        pairs.append((name, ipv6))
    return pairs


def kernel_notes() -> list[str]:
    """Notes for the record on what this host's kernel lacks for programs."""
    if IPV6_SETTINGS.exists():
        return []
    return [NO_IPV6]


def quota_notes(plan: Plan) -> list[str]:
    """Notes for the record on nodes that are slower than their host."""
    quotas = {}
    for node in plan.nodes:
        hardware = node.hardware
        if hardware.speed is not None:
            quotas[hardware.name] = hardware.quota
    notes = []
    for name, quota in quotas.items():
        if quota is not None:
            notes.append(
                f"the speed of {name} is a quota of processor time: its programs get {quota:.2g} s of a core in each"
                " second, in bursts at full speed"
            )
    return notes


class NodesHere:
    """The parts of `RunsPrograms` and `ResolvesNames` by which a driver reaches nodes that run on its own host.
    ``_hosts``: the file that is /etc/hosts in each."""

    _hosts: Path

    async def resolve(self, names: Mapping[str, str]) -> None:
        with_localhost = {**LOCALHOST, **names}
        write_hosts(self._hosts, with_localhost)

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        return listening_on(node.pid, port)

    async def usage(self, nodes: Mapping[str, NodeHandle]) -> Mapping[str, ProcessUsage]:
        pids = {name: handle.pid for name, handle in nodes.items()}
        return await asyncio.to_thread(self._usage.read, pids)

    @cached_property
    def _usage(self) -> UsageReader:
        return UsageReader()
