"""New addresses of nodes while they run, as after a renewal by DHCP or a move between networks.

A node loses its addresses of IPv4 and IPv6 and gets others, under the same name. Its kernel tells no program: sockets
that are bound to a former address stay open, and their packets arrive nowhere. Nodes that run an algorithm listen on
the new address, and reach it again when they have lost the connection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.drivers.base import Environment, ResolvesNames
from orchestrator.errors import DriverError
from orchestrator.fabric.base import ChangesAddresses
from orchestrator.fabric.namespaces.wiring import ipv6_address, peers
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.assignments import readdressed
from orchestrator.planning.plan import NodePlan
from orchestrator.run.nodes.processes import NodeProcesses

CHANGED = "new address"  # the orchestrator's event, with the data of `Addresses.change`


class Addresses:
    """The addresses of a run's nodes. New ones come from the end of the network, and none comes twice."""

    def __init__(self, processes: NodeProcesses, environment: Environment) -> None:
        self._processes = processes
        self._nodes = processes.nodes
        self._driver = environment.driver
        self._fabric = environment.fabric
        self._control = environment.control
        self._changes = 0

    async def change(self, name: str) -> dict[str, Any]:
        """Give a node new addresses. Returns the ``node`` and its addresses: ``from`` and ``to``, ``from_ipv6`` and
        ``to_ipv6``. OrchestratorError if that is not possible now."""
        state = self._processes.running(name)
        if not isinstance(self._fabric, ChangesAddresses) or state.handle is None:
            raise DriverError(f"the driver {self._driver.name} cannot give {name} another address")
        before = state.plan
        after = replace(state.plan, address=self._next())
        running = {peer.name: self._nodes[peer.name].handle for peer in self._peers(before)}
        handles = {peer: handle for peer, handle in running.items() if handle is not None}
        await self._fabric.readdress(after, state.handle, handles)
        state.plan = after
        self._processes.reassign(lambda each: readdressed(each, name, after.address))
        if isinstance(self._driver, ResolvesNames):
            await self._driver.resolve({each: known.plan.address for each, known in self._nodes.items()})
        for each in (name, *handles):
            await self._control.send(each, {"type": "address", "node": name, "host": after.address})
        return {
            "node": name,
            "from": before.address,
            "to": after.address,
            "from_ipv6": ipv6_address(before.address),
            "to_ipv6": ipv6_address(after.address),
        }

    def _peers(self, node: NodePlan) -> list[NodePlan]:
        return peers(node, [state.plan for state in self._nodes.values()])

    def _next(self) -> str:
        """The next address that no node had before."""
        if self._changes + len(self._nodes) + 2 > NETWORK.num_addresses - 1:
            raise DriverError(f"no address of {NETWORK} is left: {self._changes} changes have used the rest")
        self._changes += 1
        return str(NETWORK[-1 - self._changes])
