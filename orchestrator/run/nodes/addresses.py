"""New addresses of nodes while they run, as after a renewal by DHCP or a move between networks.

A node loses its addresses of IPv4 and IPv6 and gets others, under the same name. Its kernel notifies no program:
sockets that are bound to a former address stay open, and their packets arrive nowhere. Nodes that run an algorithm
listen on the new address, and reach it again when they have lost the connection.
"""

from __future__ import annotations

from dataclasses import replace

from node.assignment import Assignment
from orchestrator.drivers.base import Environment, ResolvesNames
from orchestrator.errors import DriverError
from orchestrator.fabric.base import ChangesAddresses, NodeHandle
from orchestrator.fabric.namespaces.wiring import ipv6_address, peers
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.assignments import readdressed
from orchestrator.planning.plan import NodePlan
from orchestrator.record.events.run import AddressChanged
from orchestrator.run.nodes.processes import NodeProcesses


class Addresses:
    """The addresses of a run's nodes. New ones come from the end of the network, and none is used twice."""

    def __init__(self, processes: NodeProcesses, environment: Environment) -> None:
        self._processes = processes
        self._nodes = processes.nodes
        self._driver = environment.driver
        self._fabric = environment.fabric
        self._control = environment.control
        self._changes = 0

    async def change(self, name: str) -> AddressChanged:
        """Give a node new addresses. OrchestratorError if that is not possible now."""
        state = self._processes.running(name)
        if not isinstance(self._fabric, ChangesAddresses) or state.handle is None:
            raise DriverError(f"the driver {self._driver.name} cannot give {name} another address")
        before = state.plan
        after = replace(before, address=self._next())
        peer_handles = self._handles_of_peers(before)
        await self._fabric.readdress(after, state.handle, peer_handles)
        state.plan = after

        def with_new_address(assignment: Assignment) -> Assignment:
            return readdressed(assignment, name, after.address)

        self._processes.reassign(with_new_address)
        if isinstance(self._driver, ResolvesNames):
            addresses = {}
            for node, other in self._nodes.items():
                addresses[node] = other.plan.address
            await self._driver.resolve(addresses)
        for node in (name, *peer_handles):
            message = {"type": "address", "node": name, "host": after.address}
            await self._control.send(node, message)
        return AddressChanged(
            node=name,
            former=before.address,
            present=after.address,
            former_ipv6=ipv6_address(before.address),
            present_ipv6=ipv6_address(after.address),
        )

    def _handles_of_peers(self, node: NodePlan) -> dict[str, NodeHandle]:
        """The processes of the peers of a node that run, by name."""
        plans = [state.plan for state in self._nodes.values()]
        handles = {}
        for peer in peers(node, plans):
            handle = self._nodes[peer.name].handle
            if handle is not None:
                handles[peer.name] = handle
        return handles

    def _next(self) -> str:
        """The next address that no node had before."""
        used = self._changes + len(self._nodes) + 2
        if used > NETWORK.num_addresses - 1:
            raise DriverError(f"no address of {NETWORK} is left: {self._changes} changes have used the rest")
        self._changes += 1
        return str(NETWORK[-1 - self._changes])
