"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry` and `KnowsHosts`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, closing

from orchestrator.drivers.base import Environment, Tell
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.images import is_in_registry
from orchestrator.errors import HostError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors if this host manages no swarm or has no fitting image of agents, and for each host that is not ready."""
    from orchestrator.drivers.docker.engine import Engine
    from orchestrator.drivers.swarm.cluster import Cluster
    from orchestrator.drivers.swarm.image_copies import pin

    name = agent_image.image_name()
    try:
        with closing(Cluster.connect()) as cluster:
            members = cluster.members()
        with closing(Engine.connect()) as engine:
            if is_in_registry(name):
                pin(engine, name)
                lacking = None  # what it is, shows when a host has pulled it
            else:
                lacking = agent_image.problem(name, engine.image(name), engine.facts()["Architecture"])
    except HostError as error:
        return [error]
    found = [] if lacking is None else [lacking]
    usable = {each.name for each in members if each.usable}
    wanted = sorted(set() if plan is None else {node.host for node in plan.nodes} - usable)
    return found + [HostError(f"the host {host} of the swarm is not ready", "see `hosts`") for host in wanted]


def inventory() -> Inventory:
    """The hosts that are ready. HostError if this host manages no swarm."""
    from orchestrator.drivers.swarm.cluster import Cluster

    with closing(Cluster.connect()) as cluster:
        members = [each for each in cluster.members() if each.usable]
    return Inventory(
        tuple(
            HostFacts(
                each.name, each.address, each.architecture, each.cores, each.memory, dict(each.labels), each.manager
            )
            for each in members
        )
    )


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Start an agent on each host, and have it open the driver, the hub and the links of its host."""
    from orchestrator.drivers.hosts.environment import connected, open_agents
    from orchestrator.drivers.swarm.cluster import Cluster
    from orchestrator.drivers.swarm.image_copies import copy_images, image_of_agents, images_of
    from orchestrator.drivers.swarm.standing import access
    from orchestrator.drivers.swarm.starting import start_agents, wait_for_all

    cluster = await asyncio.to_thread(Cluster.connect)
    stack.callback(cluster.close)
    run = directory.run
    image = await asyncio.to_thread(image_of_agents)
    found = await asyncio.to_thread(access, cluster, image, stack.enter_context(ExitStack()))
    driver, agents = open_agents(plan, directory, stack, found.server, found.agents.public)
    await start_agents(cluster, agents, run, directory.path, image, driver.hosts, found, stack)
    await wait_for_all(cluster, agents, found.service or run, driver.hosts)
    driver.here = (await asyncio.to_thread(cluster.here))[0] in driver.hosts
    stack.push_async_callback(driver.close)
    if is_in_registry(agent_image.image_name()):
        driver.note(f"agents are made from the image {image}")
    architectures = {each.name: each.architecture for each in plan.hosts}
    images = images_of(plan)
    programs = bool(plan.programs)
    driver.note(*await copy_images(images, architectures, agents, tell, plan.images, programs=programs))
    return await connected(driver, agents, plan, directory, stack)
