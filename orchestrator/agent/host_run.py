"""What a run has on the host of an agent: containers of its Engine, a hub, and links."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.drivers.base import Driver
from orchestrator.drivers.docker.driver import DockerDriver
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.pods import PodsDriver
from orchestrator.drivers.hosts.agents.calls import HostSetup
from orchestrator.drivers.hosts.agents.container import HANDLERS_HERE
from orchestrator.drivers.hosts.agents.settings import SCENARIO
from orchestrator.drivers.local import sweep
from orchestrator.errors import DriverError
from orchestrator.fabric.base import Fabric, LinkChange, Redirects
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.link_prober import HubProber, Prober
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.trunk import Carrier, create_trunk
from orchestrator.planning.copies.scenario_folder import unpack
from orchestrator.planning.plan import LinkPlan
from orchestrator.record.directory import RunDirectory


@dataclass(frozen=True)
class HostRun:
    """The run on this host, open, and the calls of `HostLinks`. A run on one host has no ``carrier`` of a trunk."""

    driver: Driver
    fabric: Fabric
    prober: Prober
    carrier: Carrier | None = None

    async def redirect(self, remotes: Mapping[str, str]) -> None:
        """Nodes have moved: those of other hosts are now these, see `orchestrator.fabric.trunk.Trunk`."""
        if not isinstance(self.fabric, Redirects):
            raise DriverError(f"the {self.fabric.engine} engine cannot follow nodes to other hosts")
        if self.carrier is not None:
            await self.carrier.redirect(remotes)
        await self.fabric.redirect(remotes)

    async def shape(self, links: Sequence[LinkPlan]) -> list[str]:
        """Returns the notes of the fabric."""
        await self.fabric.shape(links)
        return self.fabric.notes()

    async def alter(self, changes: Sequence[LinkChange]) -> list[str | None]:
        """Returns the error of each change, None if it succeeded."""
        texts: list[str | None] = []
        for error in await self.fabric.alter(changes):
            if error is None:
                texts.append(None)
            else:
                texts.append(str(error))
        return texts


async def open_host_run(
    setup: HostSetup,
    directory: RunDirectory,
    data: Path,
    stack: AsyncExitStack,
) -> HostRun:
    """Open the run on this host. ``data``: the folder of its data set."""
    stack.push_async_callback(sweep, directory.run)
    driver = await _driver(setup, directory, data)
    stack.push_async_callback(driver.close)
    await driver.open()
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    return await with_links(setup, driver, hub, directory, stack)


async def with_links(
    setup: HostSetup,
    driver: Driver,
    hub: Hub,
    directory: RunDirectory,
    stack: AsyncExitStack,
) -> HostRun:
    """The run on this host with an open driver: open its links."""
    carrier = None
    if setup.trunk is not None:
        carrier = await create_trunk(setup.trunk, hub, directory.run, directory.path)
        stack.push_async_callback(carrier.close)
    fabric = await open_fabric(setup.wires, hub, directory, setup.trunk)
    stack.push_async_callback(fabric.close)
    prober = HubProber(hub)
    return HostRun(driver, fabric, prober, carrier)


async def _driver(setup: HostSetup, directory: RunDirectory, data: Path) -> DockerDriver:
    engine = await asyncio.to_thread(Engine.connect)
    if setup.programs is None:
        return DockerDriver(
            engine,
            directory,
            data,
            setup.images,
            setup.image,
            HANDLERS_HERE,
            setup.accelerated,
        )
    archive = directory.path / SCENARIO
    folder = archive.with_suffix("")
    await asyncio.to_thread(unpack, archive, folder)
    await asyncio.to_thread(archive.unlink)
    return PodsDriver(
        engine,
        directory,
        setup.programs,
        setup.images,
        setup.names,
        folder,
    )
