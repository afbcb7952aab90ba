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
    if plan is None:
        wanted = set()
    else:
        wanted = {node.host for node in plan.nodes}
    away = sorted(wanted - {each.name for each in hosts(memory=1)})
    if HOST in os.environ:
        lacking = namespaces.missing()
    else:
        lacking = []
    return [*lacking, *(HostError(f"the host {host} is not in this job of Slurm") for host in away)]


def inventory() -> Inventory:
    """The hosts of this job. A host of which Slurm does not know the memory counts as one with as much as this one."""
    from orchestrator.drivers.slurm.job import hosts

    return Inventory(tuple(hosts(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))))


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
    return await with_agents(plan, directory, stack, start, patience=90.0, remedy=remedy, here=here)
