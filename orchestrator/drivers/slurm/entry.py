"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry` and `KnowsHosts`."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from functools import partial

from orchestrator.drivers.base import Environment, Tell
from orchestrator.errors import HostError
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
