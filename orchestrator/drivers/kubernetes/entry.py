"""The entry of this driver, see `orchestrator.drivers.base`: `DriverEntry`, `KnowsHosts`, `LeavesTraces`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from orchestrator.drivers.base import Environment, LeftRun, Removal, Tell, Trace
from orchestrator.drivers.kubernetes import cluster
from orchestrator.errors import HostError
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

NAME = "kubernetes"

inventory = cluster.inventory


def traces(run: str | None = None) -> list[Trace]:
    """None: not every command asks the cluster, which may take long to answer."""
    return []


def remove(run: LeftRun) -> Removal:
    """End the agents of a run of this driver."""
    if run.driver != NAME:
        return Removal()
    try:
        return Removal(hosts=cluster.stop_agents(run.run))
    except HostError as error:
        return Removal(left=[f"its agents ({error})"])


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors without a cluster, and for hosts on which no agent can run."""
    try:
        cluster_inventory = inventory()
    except HostError as error:
        return [error]
    if plan is None:
        return []
    usable = {host.name for host in cluster_inventory.hosts}
    wanted = {node.host for node in plan.nodes}
    errors = []
    for host in sorted(wanted - usable):
        reason = cluster_inventory.left_out.get(host, "it is gone")
        errors.append(HostError(f"the node {host} of the cluster: {reason}"))
    return errors


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Start an agent on each host, and have it open the driver, the hub and the links of its host."""
    from orchestrator.drivers.hosts.environment import with_agents

    remedy = "see `edgebed docs kubernetes` for what the pods of agents need"
    start = partial(cluster.start_agents, tell)
    return await with_agents(
        plan,
        directory,
        stack,
        start,
        patience=600.0,  # s; a node may have to pull the image before
        remedy=remedy,
        pods=True,
    )
