"""Parts of a driver that makes no links: nodes are processes on the network of this host, at ports of its loopback.

Links have no settings there. They count as real, like the network between hosts, and are not measured.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from netem.profile import LinkProfile
from node.assignment import Assignment
from node.errors import ControlError
from node.messaging.control import ControlServer
from orchestrator.drivers.base import Driver, Environment
from orchestrator.errors import FabricError, HostError
from orchestrator.fabric.base import Counted, Errors, LinkChange, NodeHandle
from orchestrator.host.process import python
from orchestrator.host.process.processes import end_with, labels
from orchestrator.planning.assignments import assignments
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan
from orchestrator.record.directory import RunDirectory

LOOPBACK = "127.0.0.1"
NOTE = "the links have no settings: nodes reach each other over the network of this host"


class UnshapedLinks:
    """See `orchestrator.fabric.base.Fabric`: nothing is shaped, cut or counted."""

    engine = "none"
    tcp: Mapping[str, str] = {}

    def notes(self) -> list[str]:
        return [NOTE]

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        return {}

    async def detach(self, node: NodePlan) -> None:
        pass

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        pass

    async def alter(self, changes: Sequence[LinkChange]) -> Errors:
        return [_refusal(*change.pair) for change in changes]

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        raise _refusal(source, target)

    async def cut(self, source: str, target: str) -> None:
        raise _refusal(source, target)

    async def restore(self, source: str, target: str) -> None:
        raise _refusal(source, target)

    async def counters(self) -> Counted:
        return Counted(links=())

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def _refusal(source: str, target: str) -> FabricError:
    return FabricError(f"{source} -> {target} cannot change: {NOTE}")


async def unshaped_environment(
    driver: Driver,
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
) -> Environment:
    """The environment of an open driver with nodes that are processes of this host and see its files. Its links are not
    shaped. ``stack`` closes the control plane. HostError if that cannot be opened."""
    names = [node.name for node in plan.nodes]
    keys = RunKeys.make(names)
    address = f"ipc://{directory.socket}"
    try:
        control = ControlServer(address, keys.orchestrator, keys.public, plan.timeouts.lease)
    except ControlError as error:
        raise HostError(str(error)) from None
    stack.push_async_callback(control.close)
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    assigned = {}
    for name, assignment in assignments(plan, directory, keys, address).items():
        assigned[name] = _on_loopback(assignment, ports)
    return Environment(driver, UnshapedLinks(), control, assignments=assigned)


def _free_ports(number: int) -> list[int]:
    """So many TCP ports of the loopback on which no program listens at present."""
    with ExitStack() as stack:
        ports = []
        for _ in range(number):
            trial = stack.enter_context(socket.socket())
            trial.bind((LOOPBACK, 0))
            ports.append(trial.getsockname()[1])
        return ports


def _on_loopback(assignment: Assignment, ports: Mapping[str, int]) -> Assignment:
    """The assignment with the node and its peers at these ports of the loopback, from which peers also connect."""
    peers = []
    for peer in assignment.peers:
        port_of_peer = ports[peer.name]
        peers.append(replace(peer, host=LOOPBACK, port=port_of_peer))
    port = ports[assignment.node]
    return replace(assignment, host=LOOPBACK, port=port, peers=tuple(peers), network="")


async def start_node(
    assignment: Path,
    log: Path,
    directory: RunDirectory,
) -> asyncio.subprocess.Process:
    """Start the program of a node as a process of this host, in a process group of its own. Its output is added to
    ``log``. It has the labels by which `down` finds it, and ends with this process."""
    marks = labels(directory.run, directory.path, "node")
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *python.module("node", str(assignment)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **marks},
            start_new_session=True,
            preexec_fn=partial(end_with, os.getpid()),
        )
