"""What programs find in a node: the names of all nodes, and what the host lacks for them."""

from __future__ import annotations

import asyncio
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
NO_IPV6 = "this kernel has no IPv6: programs reach nodes by IPv4 only, although names resolve to both"


def hosts_file(plan: Plan) -> str:
    """The content of /etc/hosts in every node: the names of all nodes."""
    return "".join(f"{address}\t{name}\n" for name, address in name_addresses(addresses(plan)))


def addresses(plan: Plan) -> dict[str, str]:
    """The IPv4 addresses of all names that resolve in a node."""
    return {"localhost": "127.0.0.1"} | {node.name: node.address for node in plan.nodes}


def name_addresses(names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each name of `addresses` with its IPv4 address and with its IPv6 address."""
    pairs = []
    for name, address in names.items():
        on_loopback = IPv4Address(address).is_loopback
        pairs.append((name, address))
        pairs.append((name, "::1" if on_loopback else ipv6_address(address)))
    return pairs


def kernel_notes() -> list[str]:
    """Notes for the record on what this host's kernel lacks for programs."""
    return [] if IPV6_SETTINGS.exists() else [NO_IPV6]


def quota_notes(plan: Plan) -> list[str]:
    """Notes for the record on nodes that are slower than their host."""
    slow = {node.hardware.name: node.hardware.quota for node in plan.nodes if node.hardware.speed is not None}
    return [
        f"the speed of {name} is a quota of processor time: its programs get {share:.2g} s of a core in each second, in"
        " bursts at full speed"
        for name, share in slow.items()
        if share is not None
    ]


class NodesHere:
    """The part of `RunsPrograms` by which a driver looks at nodes that live on its own host."""

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        return listening_on(node.pid, port)

    async def usage(self, nodes: Mapping[str, NodeHandle]) -> Mapping[str, ProcessUsage]:
        return await asyncio.to_thread(self._usage.read, {name: handle.pid for name, handle in nodes.items()})

    @cached_property
    def _usage(self) -> UsageReader:
        return UsageReader()
