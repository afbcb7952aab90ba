"""Shared parts of the drivers that run nodes as processes of this host: links through a hub, and the control plane."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from node.errors import ControlError
from node.messaging.control import ControlServer
from orchestrator.drivers.base import Driver, Environment, RunsPrograms
from orchestrator.drivers.programs import Programs
from orchestrator.errors import HostError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.hosts_network import HostsNetwork
from orchestrator.fabric.link_prober import HubProber, Prober
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.host.process import processes
from orchestrator.planning.assignments import assignments, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


async def sweep(run: str, directory: Path | None = None) -> None:
    """End every process of the run that is still alive, or those of this ``directory``. The run's trackers end by
    themselves after it."""
    alive = await asyncio.to_thread(processes.run_processes, run)
    left = []
    for process in alive:
        is_tracker = process.part == processes.TRACKER
        is_of_directory = directory is None or process.directory == directory
        if is_of_directory and not is_tracker:
            left.append(process)
    if left:
        await asyncio.to_thread(processes.end, left)


async def connected(
    driver: Driver,
    hub: Hub,
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
) -> Environment:
    """The environment of an open driver, with its links and the control plane in the run's directory."""
    fabric = await open_fabric(wires_of(plan), hub, directory)
    stack.push_async_callback(fabric.close)
    return await with_control(driver, fabric, HubProber(hub), plan, directory, stack)


async def with_control(
    driver: Driver,
    fabric: Fabric,
    prober: Prober,
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    network: HostsNetwork | None = None,
) -> Environment:
    """The environment of an open driver and its fabric, with the control plane in the run's directory."""
    if isinstance(driver, RunsPrograms):
        programs = Programs(plan, directory, driver)
        stack.push_async_callback(programs.close)
        return Environment(driver, fabric, programs, prober, network=network)
    keys = RunKeys.make([node.name for node in plan.nodes])
    address = f"ipc://{directory.socket}"
    assigned = {}
    for name, assignment in assignments(plan, directory, keys, address).items():
        assigned[name] = seen_from_inside(assignment)
    try:
        control = ControlServer(address, keys.orchestrator, keys.public, plan.timeouts.lease)
    except ControlError as error:
        raise HostError(str(error)) from None
    stack.push_async_callback(control.close)
    return Environment(driver, fabric, control, prober, assigned, network)
