"""What a run stands on: where its nodes live, what links them, how they are spoken to; how each driver's is opened.

Whatever is opened is closed by the caller's stack, in the reverse order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from node.assignment import Assignment
from node.errors import ControlError
from node.messaging.control import ControlServer
from orchestrator.drivers.base import Driver
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.errors import HostError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.hub import Hub
from orchestrator.host import processes
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.assignments import assignments, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan
from orchestrator.run.session import Control


@dataclass(frozen=True)
class Substrate:
    """``hub`` is the namespace that all links pass, where there are packets to pass it; ``assignments`` are those that
    nodes read from a file."""

    driver: Driver
    fabric: Fabric
    control: Control
    hub: Hub | None = None
    assignments: Mapping[str, Assignment] = field(default_factory=dict)


async def open_substrate(plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int) -> Substrate:
    """The one of the plan's driver; ``workers`` processes train where nodes are simulated."""
    if plan.driver == "sim":
        return _open_simulation(plan, directory, stack, workers)
    return await _open_local(plan, directory, stack)


async def _open_local(plan: Plan, directory: RunDirectory, stack: AsyncExitStack) -> Substrate:
    stack.push_async_callback(_sweep, directory.run)
    opening = _open_containers if plan.driver == "docker" else _open_namespaces
    driver, hub = await opening(plan, directory, stack)
    fabric = await open_fabric(plan, hub, directory)
    stack.push_async_callback(fabric.close)
    keys = RunKeys.make([node.name for node in plan.nodes])
    told = {name: seen_from_inside(each) for name, each in assignments(plan, directory, keys).items()}
    try:
        control = await ControlServer.open(directory.socket, keys.orchestrator, keys.public)
    except ControlError as error:
        raise HostError(str(error)) from None
    stack.push_async_callback(control.close)
    return Substrate(driver, fabric, control, hub, told)


async def _open_namespaces(plan: Plan, directory: RunDirectory, stack: AsyncExitStack) -> tuple[Driver, Hub]:
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    # The driver begins to warm up, and the link engine starts meanwhile.
    driver = NamespacesDriver(hub, directory, Path(plan.data_directory))
    stack.push_async_callback(driver.close)
    await driver.open()
    return driver, hub


async def _open_containers(plan: Plan, directory: RunDirectory, stack: AsyncExitStack) -> tuple[Driver, Hub]:
    # Here and not above: the SDK's import takes a quarter of a second.
    from orchestrator.drivers.docker.driver import DockerDriver
    from orchestrator.drivers.docker.engine import Engine
    from orchestrator.fabric.helper import HelperHub

    driver = DockerDriver(await asyncio.to_thread(Engine.connect), directory, Path(plan.data_directory), plan.images)
    stack.push_async_callback(driver.close)
    await driver.open()
    opening = Hub.open if os.geteuid() == 0 else partial(HelperHub.start, image=driver.image)
    hub = await opening(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    return driver, hub


def _open_simulation(plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int) -> Substrate:
    # Here and not above: this needs torch, which a run of namespaces imports in its fork server only.
    from orchestrator.drivers.sim.simulation import Simulation

    simulation = Simulation(plan, assignments(plan, directory, RunKeys.none()), workers)
    stack.push_async_callback(simulation.driver.close)
    return Substrate(simulation.driver, simulation.fabric, simulation.control)


async def _sweep(run: str) -> None:
    """Nothing of the run is alive after it; what still is, is ended here."""
    left = await asyncio.to_thread(processes.run_processes, run)
    if left:
        await asyncio.to_thread(processes.end, left)
