"""The agent that makes namespaces on its host, as an ordinary user."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.agent.datasets import DataSets
from orchestrator.agent.host_run import HostRun, with_links
from orchestrator.agent.work import work
from orchestrator.agent.worker import Tell, Worker
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup, HostSetup
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.hosts.agents.place import Place
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.local import sweep
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.errors import DriverError
from orchestrator.fabric.link_prober import Prober
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.commands import extend_path
from orchestrator.record.directory import RunDirectory


async def serve(place: Place) -> int:
    """Serve an orchestrator until SIGTERM, or until the input ends that had the settings. Returns the exit code."""
    extend_path()

    def make(settings: Settings, folder: Path, tell: Tell) -> Worker:
        open_run = partial(_open, place.runs)
        return Worker(folder, tell, open_run, _examine, datasets=DataSets(folder))

    return await work(place.host, place.folder, make, place.settings)


async def _open(
    runs: Path,
    setup: HostSetup,
    directory: RunDirectory,
    data: Path,
    stack: AsyncExitStack,
) -> HostRun:
    """See `orchestrator.agent.worker.Open`, and `Place`."""
    stack.push_async_callback(sweep, directory.run, directory.path)
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    nodes = len(setup.wires.nodes)
    driver = NamespacesDriver(hub, directory, data, nodes=nodes, hidden=runs)
    stack.push_async_callback(driver.close)
    await driver.open()
    return await with_links(setup, driver, hub, directory, stack)


async def _examine(
    setup: ExaminationSetup,
    folder: Path,
    stack: AsyncExitStack,
) -> tuple[HostState, int, Prober]:
    raise DriverError("no agent of this driver examines its host; run `edgebed doctor` there")
