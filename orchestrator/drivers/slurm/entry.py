"""The entry of this driver, see `orchestrator.drivers.base`: `DriverEntry`, `KnowsHosts`, `KnowsJob`."""

from __future__ import annotations

import os
import platform
import tempfile
from contextlib import AsyncExitStack
from functools import partial

from node.resources import processors
from orchestrator.drivers.base import Environment, Tell
from orchestrator.errors import HostError
from orchestrator.host.trial import Trial
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors outside a job, for hosts that are not in it, and for what this host lacks if it is one of them."""
    from orchestrator.drivers.namespaces import entry as namespaces
    from orchestrator.drivers.slurm.job import HOST, hosts, refusal

    error = refusal()
    if error is not None:
        return [error]
    wanted = set()
    if plan is not None:
        wanted = {node.host for node in plan.nodes}
    in_job = {host.name for host in hosts(memory=1)}
    errors = []
    if HOST in os.environ:
        errors += namespaces.missing()
    for name in sorted(wanted - in_job):
        errors.append(HostError(f"the host {name} is not in this job of Slurm"))
    return errors


def inventory() -> Inventory:
    """The hosts of this job. If Slurm does not know the memory of a host, it counts as one with as much as this one."""
    from orchestrator.drivers.slurm.job import hosts

    own_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Inventory(tuple(hosts(own_memory)))


def job() -> list[Trial]:
    """The job of this process, from the variables of sbatch(1), and its hosts, over which a run can spread."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number:
        return []
    node = os.environ.get("SLURMD_NODENAME", platform.node())
    total = os.cpu_count()
    folder = tempfile.gettempdir()
    detail = f"job {number} on {node}: {processors()} of {total} processors, temporary files in {folder}"
    return [Trial("Slurm job", "everything", True, detail), _hosts()]


def _hosts() -> Trial:
    from orchestrator.drivers.slurm.job import hosts

    name = "its hosts"
    used_by = "the driver slurm"
    try:
        of_job = hosts(memory=1)
    except HostError as error:
        return Trial.missing(name, used_by, error, ok=None)
    described = [f"{host.name} ({host.address}, {host.cores:g})" for host in of_job]
    return Trial(name, used_by, True, ", ".join(described))


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Start an agent on each host, and have it open the driver, the hub and the links of its host."""
    from orchestrator.drivers.hosts.environment import with_agents
    from orchestrator.drivers.slurm.job import HOST, start_agents

    start = partial(start_agents, directory)
    here = os.environ.get(HOST)
    remedy = "see `logs slurm`: does each host of the job have this working directory and this Python?"
    return await with_agents(
        plan,
        directory,
        stack,
        start,
        patience=90.0,
        remedy=remedy,
        here=here,
    )
