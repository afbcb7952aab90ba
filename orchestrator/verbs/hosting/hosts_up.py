"""Agents that keep running on the hosts of the swarm, for later runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import LEASE
from orchestrator.drivers.swarm import agent_image, leftovers, standing
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.image_copies import copy_images, image_of_agents
from orchestrator.drivers.swarm.standing import NAME, PORT, Access, Standing
from orchestrator.drivers.swarm.starting import dismiss, leave_agents, wait_for_each
from orchestrator.errors import HostError, OrchestratorError
from orchestrator.host.process.signals import interruptible
from orchestrator.planning.keys import keypair
from orchestrator.record.directory import RunDirectory
from orchestrator.text import count
from orchestrator.verbs.hosting.hosts import unless_interrupted

Tell = Callable[[str], object]


@dataclass(frozen=True)
class LeftRunning:
    """The ``hosts`` that runs can use at once, and why others cannot, by name."""

    hosts: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass
class Ended:
    """``agents``: whether there were any. ``data``: whether the data sets went too. ``left``: hosts that may have
    more."""

    agents: bool
    data: bool
    left: dict[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        what = "the agents are ended" if self.agents else "no agents were left running"
        what += " and the data sets are removed" if self.data else ""
        if self.left:
            named = "; ".join(f"{host} ({reason})" for host, reason in sorted(self.left.items()))
            return f"{what}, but something may be left on {named}: do this again when they are back"
        return f"{what}; nothing is left on the hosts"


def up(tell: Tell) -> LeftRunning:
    """Leave an agent running on each usable host, and copy the image of nodes to the hosts. Agents that run stay.
    ``tell`` prints the progress. HostError if no agents can be started, or if those that run
    cannot be used. KeyboardInterrupt after a signal; then agents that did not run before are removed."""
    with interruptible() as interruption, closing(Cluster.connect()) as cluster:
        found = asyncio.run(unless_interrupted(_up(cluster, tell), interruption))
    if found is None:
        raise KeyboardInterrupt
    return found


async def _up(cluster: Cluster, tell: Tell) -> LeftRunning:
    image = await asyncio.to_thread(image_of_agents)
    identity = await asyncio.to_thread(_fitting, image)
    hosts = [each for each in await asyncio.to_thread(cluster.members) if each.usable]
    async with AsyncExitStack() as stack:
        holding = stack.enter_context(ExitStack())
        undo = await stack.enter_async_context(AsyncExitStack())
        there = await asyncio.to_thread(standing.standing, cluster)
        access = await asyncio.to_thread(_access, cluster, there, identity, holding)
        agents = Agents(access.server, access.agents.public, LEASE)
        stack.push_async_callback(agents.close)
        if there is None:
            undo.push_async_callback(asyncio.to_thread, _undo, cluster, access.server.public)
            labels = Standing(access.server.public, standing.own_version(), identity, standing.keys_folder()).labels()
            tell(f"starting agents on {count(len(hosts), 'host')}")
            await leave_agents(cluster, agents, standing.keys_folder(), image, access, labels)
        else:
            agents.listen((await asyncio.to_thread(cluster.here))[1], PORT)
        refused = await wait_for_each(cluster, agents, NAME, [each.name for each in hosts])
        refused |= await _provide([each for each in hosts if each.name not in refused], agents, tell)
        usable = tuple(each.name for each in hosts if each.name not in refused)
        if usable:
            undo.pop_all()
        await dismiss(agents)
    return LeftRunning(usable, refused)


def _fitting(image: str) -> str:
    """What identifies the image of agents. HostError if this host's Engine has none that fits."""
    with closing(Engine.connect()) as engine:
        identity = standing.identity_of(engine, image)
        machine = engine.facts()["Architecture"]
        if identity != image and (error := agent_image.problem(image, engine.image(image), machine)) is not None:
            raise error
    return identity


def _access(cluster: Cluster, there: Standing | None, identity: str, holding: ExitStack) -> Access:
    """The keys of the agents, which nobody else uses until ``holding`` closes. HostError if that cannot be."""
    swarm = cluster.id()
    if there is None:
        access = Access(keypair(), keypair(), NAME)
        standing.write_keys(swarm, access)
        return access
    error = standing.outdated(there, identity)
    if error is not None:
        raise error
    found = standing.taken(swarm, there.server, holding)
    if found is None:
        raise _unavailable(cluster, there)
    return found


def _unavailable(cluster: Cluster, there: Standing) -> HostError:
    """Why this user cannot have the agents."""
    if not standing.is_ours(cluster.id(), there.server):
        what = f"the keys of the agents that are left running here are another user's, or lost ({there.folder})"
        return HostError(what, "runs of this user start agents of their own; `hosts down` as that user ends those")
    runs = ", ".join(sorted(cluster.runs())) or "another command"
    return HostError(f"the agents that are left running are in use ({runs})", "wait for its end, or `down` it")


async def _provide(hosts: list[SwarmHost], agents: Agents, tell: Tell) -> dict[str, str]:
    """Copy the image of nodes to the hosts. Returns why it cannot be copied, by host."""
    refused: dict[str, str] = {}
    for architecture in sorted({each.architecture for each in hosts}):
        alike = {each.name: architecture for each in hosts if each.architecture == architecture}
        wanted = {name: {node_image.image_name()} for name in alike}
        try:
            await copy_images(wanted, alike, agents, tell)
        except OrchestratorError as error:
            refused |= dict.fromkeys(alike, str(error))
    return refused


def _undo(cluster: Cluster, server: str) -> None:
    there = standing.standing(cluster)
    if there is None or there.server == server:  # otherwise somebody else was first
        cluster.stop_agents(NAME)
        standing.forget_keys(cluster.id())


def down(*, data: bool) -> Ended:
    """End the agents that were left running, and remove what they may have left. ``data``: also remove the data sets
    that the hosts keep. HostError if a run uses them, or if they belong to another user."""
    with closing(Cluster.connect()) as cluster, ExitStack() as holding:
        there = standing.standing(cluster)
        names = [each.name for each in cluster.members()]
        result = Ended(there is not None, data)
        if there is not None:
            ours = standing.is_ours(cluster.id(), there.server)
            foreign = there.folder.exists() and not RunDirectory(there.folder).is_ours
            if foreign or (ours and standing.taken(cluster.id(), there.server, holding) is None):
                raise _unavailable(cluster, there)
            result.left |= dict.fromkeys(cluster.stop_agents(NAME), "its agent does not answer")
            standing.forget_keys(cluster.id())
    if data or there is None:
        result.left |= leftovers.sweep(NAME, Path(), [each for each in names if each not in result.left], data=data)
    return result
