"""The agent in a Slurm job, which makes namespaces on its host, as an ordinary user.

All of it lies in the directory of the run, which all hosts of the job share.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.agent.datasets import DataSets
from orchestrator.agent.host_run import HostRun, with_links
from orchestrator.agent.work import work
from orchestrator.agent.worker import Tell, Worker
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup, HostSetup
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.local import sweep
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.drivers.slurm.job import HOST, HOSTS
from orchestrator.errors import DriverError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.prober import Prober
from orchestrator.host.commands import extend_path
from orchestrator.host.directory import RunDirectory


async def serve_job(directory: Path) -> int:
    """Serve the orchestrator of the run of this directory. Returns the exit code."""
    extend_path()
    host = os.environ[HOST]
    folder = RunDirectory(directory).nodes / HOSTS / host
    folder.mkdir(parents=True, exist_ok=True)
    return await work(host, folder, partial(_make, directory.parent))


def _make(runs: Path, settings: Settings, folder: Path, tell: Tell) -> Worker:
    return Worker(folder, tell, partial(_open, runs), _examine, datasets=DataSets(folder))


async def _open(runs: Path, setup: HostSetup, directory: RunDirectory, data: Path, stack: AsyncExitStack) -> HostRun:
    """See `orchestrator.agent.worker.Open`. ``runs``: the folder of all runs, which nodes do not see."""
    stack.push_async_callback(sweep, directory.run, directory.path)
    hub = await Hub.open(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    driver = NamespacesDriver(hub, directory, data, nodes=len(setup.wires.nodes), hidden=runs)
    stack.push_async_callback(driver.close)
    await driver.open()
    return await with_links(setup, driver, hub, directory, stack)


async def _examine(setup: ExaminationSetup, folder: Path, stack: AsyncExitStack) -> tuple[HostState, int, Prober]:
    raise DriverError("`hosts doctor` examines the hosts of a swarm; use `srun edgebed doctor`")
