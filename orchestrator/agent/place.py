"""What a run has on the host of an agent: containers of its Engine, a hub, and links."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from orchestrator.agent.serve import HANDLERS_HERE
from orchestrator.agent.worker import Place
from orchestrator.drivers.docker.driver import DockerDriver
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.pods import PodsDriver
from orchestrator.drivers.local import sweep
from orchestrator.drivers.swarm.plain import program_of, wires_from
from orchestrator.drivers.swarm.settings import SCENARIO
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.prober import HubProber
from orchestrator.fabric.trunk import Trunk, lay
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Accelerated
from orchestrator.planning.scenario_folder import unpack


async def open_place(arguments: Mapping[str, Any], directory: RunDirectory, data: Path, stack: AsyncExitStack) -> Place:
    """Open the place. ``arguments``: the ``image`` of nodes, the other ``images`` of nodes of this host, the nodes that
    are ``accelerated``, the ``programs`` of nodes (None if they run none), the ``names`` that resolve there,
    ``wires`` (see `Wires`) and ``trunk`` (see `Trunk`; None if all nodes live on this host)."""
    stack.push_async_callback(sweep, directory.run)
    driver = await _driver(arguments, directory, data)
    stack.push_async_callback(driver.close)
    await driver.open()
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    trunk = None if arguments["trunk"] is None else Trunk(**arguments["trunk"])
    carrier = None
    if trunk is not None:
        carrier = await lay(trunk, hub, directory.run, directory.path)
        stack.push_async_callback(carrier.close)
    fabric = await open_fabric(wires_from(arguments["wires"]), hub, directory, trunk)
    stack.push_async_callback(fabric.close)
    return Place(driver, fabric, HubProber(hub), carrier)


async def _driver(arguments: Mapping[str, Any], directory: RunDirectory, data: Path) -> DockerDriver:
    engine, images = await asyncio.to_thread(Engine.connect), arguments["images"]
    if arguments["programs"] is None:
        accelerated = [Accelerated(*each) for each in arguments["accelerated"]]
        return DockerDriver(engine, directory, data, images, arguments["image"], HANDLERS_HERE, accelerated)
    archive = directory.path / SCENARIO
    folder = archive.with_suffix("")
    await asyncio.to_thread(unpack, archive, folder)
    await asyncio.to_thread(archive.unlink)
    programs = [program_of(each) for each in arguments["programs"]]
    return PodsDriver(engine, directory, programs, images, arguments["names"], folder)
