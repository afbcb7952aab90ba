"""The entry of this driver, see `orchestrator.drivers.base`: `DriverEntry`, `KnowsHosts`, `LeavesTraces`,
`LeavesOnHosts`, `EntersNodes`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path

from orchestrator.drivers.base import Environment, ImageBuild, LeftRun, Tell
from orchestrator.drivers.docker import entering
from orchestrator.drivers.swarm import agent_image, leftovers
from orchestrator.drivers.swarm.images import is_in_registry
from orchestrator.errors import HostError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

NAME = "swarm"

traces = leftovers.traces
remove = leftovers.remove
enter = entering.enter


def image_build() -> ImageBuild:
    command = agent_image.BUILD.format(name=agent_image.image_name())
    return ImageBuild("agents", command, "for runs on several hosts")


def known_hosts() -> list[str]:
    """The hosts of this host's swarm, whatever their state; empty without a swarm."""
    return leftovers.hosts()


def sweep(run: LeftRun) -> dict[str, str]:
    """Remove what a run of this driver may have left on its hosts, or one without a directory on all of the swarm."""
    folder = Path()
    hosts: Sequence[str] = ()
    if run.directory is None:
        hosts = leftovers.hosts()
    elif run.driver == NAME:
        folder = run.directory.path
        hosts = run.hosts
    if not hosts:
        return {}
    return leftovers.sweep(run.run, folder, hosts)


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
                problem = None  # whether it fits is known when a host has pulled it
            else:
                image = engine.image(name)
                facts = engine.facts()
                problem = agent_image.problem(name, image, facts["Architecture"])
    except HostError as error:
        return [error]
    errors = []
    if problem is not None:
        errors.append(problem)
    if plan is None:
        return errors
    usable = {member.name for member in members if member.usable}
    wanted = {node.host for node in plan.nodes}
    for host in sorted(wanted - usable):
        errors.append(HostError(f"the host {host} of the swarm is not ready", "see `hosts`"))
    return errors


def inventory() -> Inventory:
    """The hosts that are ready. HostError if this host manages no swarm."""
    from orchestrator.drivers.swarm.cluster import Cluster

    with closing(Cluster.connect()) as cluster:
        members = cluster.members()
    hosts = []
    for member in members:
        if not member.usable:
            continue
        facts = HostFacts(
            member.name,
            member.address,
            member.architecture,
            member.cores,
            member.memory,
            dict(member.labels),
            member.manager,
        )
        hosts.append(facts)
    return Inventory(tuple(hosts))


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
    in_use = stack.enter_context(ExitStack())
    keys = await asyncio.to_thread(access, cluster, image, in_use)
    driver, agents = open_agents(plan, directory, stack, keys.server, keys.agents.public)
    await start_agents(
        cluster,
        agents,
        run,
        directory.path,
        image,
        driver.hosts,
        keys,
        stack,
    )
    await wait_for_all(cluster, agents, keys.service or run, driver.hosts)
    here, _ = await asyncio.to_thread(cluster.here)
    driver.here = here in driver.hosts
    stack.push_async_callback(driver.close)
    if is_in_registry(agent_image.image_name()):
        driver.note(f"agents are made from the image {image}")
    architectures = {host.name: host.architecture for host in plan.hosts}
    notes = await copy_images(
        images_of(plan),
        architectures,
        agents,
        tell,
        plan.images,
        programs=bool(plan.programs),
    )
    driver.note(*notes)
    return await connected(driver, agents, plan, directory, stack)
