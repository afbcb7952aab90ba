"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry` and `KnowsHosts`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from orchestrator.drivers.base import Environment, Tell
from orchestrator.drivers.local import FIRST
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.wiring import MTU
from orchestrator.fabric.trunk import PORT, mtu_of
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.plan import Plan

if TYPE_CHECKING:
    from orchestrator.drivers.hosts.agents.calls import HostSetup

LAST_PORT = 65535


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors outside a job, for hosts that are not in it, and for what this host lacks if it is one of them."""
    from orchestrator.drivers.namespaces import entry as namespaces
    from orchestrator.drivers.slurm.job import HOST, hosts, refusal

    if (error := refusal()) is not None:
        return [error]
    wanted = set() if plan is None else {node.host for node in plan.nodes}
    away = sorted(wanted - {each.name for each in hosts(memory=1)})
    lacking = namespaces.missing() if HOST in os.environ else []
    return [*lacking, *(HostError(f"the host {host} is not in this job of Slurm") for host in away)]


def open_files(plan: Plan, workers: int) -> int:
    """The open files of the orchestrator: a connection of each node to the control plane, and of each agent."""
    return FIRST + 2 * len(plan.nodes) + 4 * len(plan.hosts)


def inventory() -> Inventory:
    """The hosts of this job. A host of which Slurm does not know the memory counts as one with as much as this one."""
    from orchestrator.drivers.slurm.job import hosts

    return Inventory(tuple(hosts(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))))


async def open_environment(
    plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int, tell: Tell
) -> Environment:
    """Start an agent on each host, and have it open the driver, the hub and the links of its host."""
    from orchestrator.drivers.hosts.agents.channel import Agents
    from orchestrator.drivers.hosts.agents.settings import LEASE, Settings
    from orchestrator.drivers.hosts.environment import connected, trunk_of
    from orchestrator.drivers.slurm.driver import SlurmDriver
    from orchestrator.drivers.slurm.job import HOST, JobStep, own_address
    from orchestrator.planning.keys import keypair

    driver = SlurmDriver(plan, directory)
    stack.push_async_callback(driver.flush)  # the agents may log until they are closed
    server, keys = keypair(), keypair()
    agents = Agents(server, keys.public, LEASE, driver.hear, driver.lose, driver.find)
    stack.push_async_callback(agents.close)
    driver.use(agents)
    used = [each for each in plan.hosts if each.name in driver.hosts]
    address = own_address(used[0].address)
    endpoint = f"tcp://{address}:{agents.listen(address)}"
    settings = Settings(run=directory.run, address=endpoint, server=server.public, keys=keys, lease=LEASE)
    label = {"EDGEBED_RUN": directory.run, "EDGEBED_DIRECTORY": str(directory.path), "EDGEBED_PART": "agent"}
    step = await JobStep.start(used, settings, directory.path, label, directory.logs / "slurm.log")
    stack.push_async_callback(step.close)
    await step.wait_for(agents, driver.hosts)
    driver.here = os.environ.get(HOST) in driver.hosts
    stack.push_async_callback(driver.close)
    watching = asyncio.create_task(driver.watch(step))
    stack.callback(watching.cancel)
    # Linux gives no socket such a port by chance. Runs may share a host, so each has its own.
    port, key = PORT + secrets.randbelow(LAST_PORT - PORT) + 1, secrets.token_hex(32)

    def setup(homes: Mapping[str, str], host: str, mtu: int) -> HostSetup:
        from orchestrator.drivers.hosts.environment import setup_of

        return setup_of(plan, trunk_of(plan, homes, directory.run, host, mtu, port, key))

    return await connected(driver, agents, plan, directory, stack, setup, lambda mtu: min(MTU, mtu_of(mtu, key=True)))
