"""The agent that makes namespaces, as an ordinary user: on a host of a Slurm job, or in a pod of Kubernetes."""

from __future__ import annotations

import os
import shutil
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.agent.datasets import DataSets
from orchestrator.agent.host_run import HostRun, with_links
from orchestrator.agent.work import work
from orchestrator.agent.worker import Tell, Worker
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup, HostSetup
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.hosts.agents.settings import HOST, Settings
from orchestrator.drivers.kubernetes.manifest import FILES, SECRET
from orchestrator.drivers.local import sweep
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.drivers.slurm.job import HOST as JOB_HOST
from orchestrator.drivers.slurm.job import HOSTS
from orchestrator.errors import DriverError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.prober import Prober
from orchestrator.host.commands import extend_path
from orchestrator.record.directory import RunDirectory


async def serve_job(directory: Path) -> int:
    """Serve the orchestrator of the run of this directory, which all hosts of the job share. Returns the exit code."""
    host = os.environ[JOB_HOST]
    folder = RunDirectory(directory).nodes / HOSTS / host
    folder.mkdir(parents=True, exist_ok=True)
    return await _serve(host, folder, directory.parent)


async def serve_pod() -> int:
    """Serve the orchestrator that has put its settings into a secret of this pod, until SIGTERM. Returns the exit
    code."""
    folder = FILES / "agent"
    shutil.rmtree(folder, ignore_errors=True)  # an agent that was killed has left it
    folder.mkdir()
    host = os.environ[HOST]
    line = SECRET.read_bytes()
    return await _serve(host, folder, FILES, line)


async def _serve(
    host: str,
    folder: Path,
    runs: Path,
    line: bytes | None = None,
) -> int:
    """``runs``: the folder of all runs, which nodes do not see."""
    extend_path()

    def make(settings: Settings, folder: Path, tell: Tell) -> Worker:
        open_run = partial(_open, runs)
        return Worker(folder, tell, open_run, _examine, datasets=DataSets(folder))

    return await work(host, folder, make, line)


async def _open(
    runs: Path,
    setup: HostSetup,
    directory: RunDirectory,
    data: Path,
    stack: AsyncExitStack,
) -> HostRun:
    """See `orchestrator.agent.worker.Open`, and `_serve`."""
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
    raise DriverError("`hosts doctor` examines the hosts of a swarm; run `edgebed doctor` on each of these")
