"""Shared parts of the drivers that run nodes as processes of this host: links through a hub, and the control plane."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from node.assignment import Assignment
from node.errors import ControlError
from node.messaging.control import ControlServer
from orchestrator.drivers.base import Driver, Environment, RunsPrograms
from orchestrator.drivers.programs import Programs
from orchestrator.errors import HostError
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.fabric.prober import HubProber
from orchestrator.host.directory import RunDirectory
from orchestrator.host.process import processes
from orchestrator.planning.assignments import assignments, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan

FIRST = 64  # open files of a process without peers, with a reserve: at most 40 were counted
OF_A_PEER = 4  # open files of a node for each peer: a connection each way, the gate's view, ZeroMQ's own signalling


async def sweep(run: str, directory: Path | None = None) -> None:
    """End every process of the run that is still alive, or those of this ``directory``. The run's trackers end by
    themselves after it."""
    found = await asyncio.to_thread(processes.run_processes, run)
    left = [each for each in found if each.part != processes.TRACKER and directory in (None, each.directory)]
    if left:
        await asyncio.to_thread(processes.end, left)


async def connected(
    driver: Driver, hub: Hub, plan: Plan, directory: RunDirectory, stack: AsyncExitStack
) -> Environment:
    """The environment of an open driver, with its links and the control plane in the run's directory."""
    fabric = await open_fabric(wires_of(plan), hub, directory)
    stack.push_async_callback(fabric.close)
    if isinstance(driver, RunsPrograms):
        return Environment(driver, fabric, open_programs(plan, directory, driver, stack), HubProber(hub))
    control, assigned = await open_control(plan, directory, stack)
    return Environment(driver, fabric, control, HubProber(hub), assigned)


def open_programs(plan: Plan, directory: RunDirectory, driver: RunsPrograms, stack: AsyncExitStack) -> Programs:
    """Open the control plane of nodes that run programs."""
    programs = Programs(plan, directory, driver)
    stack.push_async_callback(programs.close)
    return programs


async def open_control(
    plan: Plan, directory: RunDirectory, stack: AsyncExitStack
) -> tuple[ControlServer, dict[str, Assignment]]:
    """Open the control plane in the run's directory. Returns it, and the nodes' assignments with their new keys."""
    keys = RunKeys.make([node.name for node in plan.nodes])
    address = f"ipc://{directory.socket}"
    assigned = {name: seen_from_inside(each) for name, each in assignments(plan, directory, keys, address).items()}
    try:
        control = await ControlServer.open(address, keys.orchestrator, keys.public, plan.timeouts.lease)
    except ControlError as error:
        raise HostError(str(error)) from None
    stack.push_async_callback(control.close)
    return control, assigned


def files_of_agents(plan: Plan, workers: int) -> int:
    """The open files of the orchestrator: a connection of each node to the control plane, and of each agent."""
    return FIRST + 2 * len(plan.nodes) + 4 * len({node.host for node in plan.nodes})


def files_of_peers(plan: Plan) -> int:
    """The largest number of files that a node has open for its peers."""
    peers = Counter(link.source for link in plan.links)
    return OF_A_PEER * max(peers.values(), default=0)
