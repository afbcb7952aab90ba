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
from orchestrator.drivers.local import sweep
from orchestrator.drivers.swarm.plain import wires_from
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.hub import Hub
from orchestrator.fabric.prober import HubProber
from orchestrator.fabric.trunk import Trunk, lay
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Accelerated


async def open_place(arguments: Mapping[str, Any], directory: RunDirectory, data: Path, stack: AsyncExitStack) -> Place:
    """Open the place. ``arguments``: the ``image`` of nodes, the other ``images`` of nodes of this host, the nodes that
    are ``accelerated``, ``wires`` (see `Wires`) and ``trunk`` (see `Trunk`; None if all nodes live on this host)."""
    stack.push_async_callback(sweep, directory.run)
    engine = await asyncio.to_thread(Engine.connect)
    accelerated = [Accelerated(*each) for each in arguments["accelerated"]]
    driver = DockerDriver(engine, directory, data, arguments["images"], arguments["image"], HANDLERS_HERE, accelerated)
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
