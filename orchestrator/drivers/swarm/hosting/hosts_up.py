"""Agents that keep running on the hosts of the swarm, for later runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import LEASE
from orchestrator.drivers.swarm import agent_image, leftovers, standing
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.hosting.hosts import unless_interrupted
from orchestrator.drivers.swarm.image_copies import copy_images, image_of_agents
from orchestrator.drivers.swarm.standing import NAME, PORT, Access, Standing
from orchestrator.drivers.swarm.starting import dismiss, leave_agents, wait_for_each
from orchestrator.errors import HostError, OrchestratorError
from orchestrator.host.process.signals import interruptible
from orchestrator.planning.keys import keypair
from orchestrator.record.directory import RunDirectory
from orchestrator.text import count

Tell = Callable[[str], object]


@dataclass(frozen=True)
class LeftRunning:
    """The ``hosts`` that are ready for runs, and why others are not, by name."""

    hosts: tuple[str, ...]
    refused: Mapping[str, str]

    @property
    def complete(self) -> bool:
        return not self.refused

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def show(self, console: Console) -> None:
        if self.hosts:
            print(f"agents are left running on {', '.join(self.hosts)}")
        for host, reason in sorted(self.refused.items()):
            print(f"{host}: {reason}", file=sys.stderr)


@dataclass
class Ended:
    """``agents``: whether there were any. ``data``: whether the data sets were removed too. ``left``: hosts on which
    something may be left, with the reason."""

    agents: bool
    data: bool
    left: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.left

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def show(self, console: Console) -> None:
        print(self.describe())

    def describe(self) -> str:
        what = "the agents are ended" if self.agents else "no agents were left running"
        if self.data:
            what += " and the data sets are removed"
        if not self.left:
            return f"{what}; nothing is left on the hosts"
        reasons = []
        for host, reason in sorted(self.left.items()):
            reasons.append(f"{host} ({reason})")
        named = "; ".join(reasons)
        return f"{what}, but something may be left on {named}: do this again when they are back"


def up(tell: Tell) -> LeftRunning:
    """Leave an agent running on each usable host, and copy the image of nodes to the hosts. Agents that run stay.
    ``tell`` prints the progress. HostError if no agents can be started, or if those that run
    cannot be used. KeyboardInterrupt after a signal; then agents that did not run before are removed."""
    with interruptible() as interruption, closing(Cluster.connect()) as cluster:
        work = unless_interrupted(_up(cluster, tell), interruption)
        left_running = asyncio.run(work)
    if left_running is None:
        raise KeyboardInterrupt
    return left_running


async def _up(cluster: Cluster, tell: Tell) -> LeftRunning:
    image = await asyncio.to_thread(image_of_agents)
    identity = await asyncio.to_thread(_fitting, image)
    members = await asyncio.to_thread(cluster.members)
    hosts = [host for host in members if host.usable]
    async with AsyncExitStack() as stack:
        holding = stack.enter_context(ExitStack())
        undo = await stack.enter_async_context(AsyncExitStack())
        running = await asyncio.to_thread(standing.standing, cluster)
        access = await asyncio.to_thread(_access, cluster, running, identity, holding)
        agents = Agents(access.server, access.agents.public, LEASE)
        stack.push_async_callback(agents.close)
        if running is None:
            server = access.server.public
            undo.push_async_callback(asyncio.to_thread, _undo, cluster, server)
            folder = standing.keys_folder()
            version = standing.own_version()
            own = Standing(server, version, identity, folder)
            labels = own.labels()
            tell(f"starting agents on {count(len(hosts), 'host')}")
            await leave_agents(cluster, agents, folder, image, access, labels)
        else:
            _, address = await asyncio.to_thread(cluster.here)
            agents.listen(address, PORT)
        names = [host.name for host in hosts]
        refused = await wait_for_each(cluster, agents, NAME, names)
        answering = [host for host in hosts if host.name not in refused]
        refused |= await _provide(answering, agents, tell)
        usable = [name for name in names if name not in refused]
        if usable:
            undo.pop_all()
        await dismiss(agents)
    return LeftRunning(tuple(usable), refused)


def _fitting(image: str) -> str:
    """What identifies the image of agents. HostError if this host's Engine has none that fits."""
    with closing(Engine.connect()) as engine:
        identity = standing.identity_of(engine, image)
        machine = engine.facts()["Architecture"]
        if identity != image:
            facts = engine.image(image)
            error = agent_image.problem(image, facts, machine)
            if error is not None:
                raise error
    return identity


def _access(
    cluster: Cluster,
    running: Standing | None,
    identity: str,
    holding: ExitStack,
) -> Access:
    """The keys of the agents, locked for this process until ``holding`` closes. HostError if they cannot be used."""
    swarm = cluster.id()
    if running is None:
        access = Access(keypair(), keypair(), NAME)
        standing.write_keys(swarm, access)
        return access
    error = standing.outdated(running, identity)
    if error is not None:
        raise error
    taken = standing.taken(swarm, running.server, holding)
    if taken is None:
        raise _unavailable(cluster, running)
    return taken


def _unavailable(cluster: Cluster, running: Standing) -> HostError:
    """Why this user cannot have the agents."""
    swarm = cluster.id()
    if not standing.is_ours(swarm, running.server):
        what = f"the keys of the agents that are left running here are another user's, or lost ({running.folder})"
        return HostError(what, "runs of this user start agents of their own; `hosts down` as that user ends those")
    runs = sorted(cluster.runs())
    user = ", ".join(runs) or "another command"
    return HostError(f"the agents that are left running are in use ({user})", "wait for its end, or `down` it")


async def _provide(
    hosts: list[SwarmHost],
    agents: Agents,
    tell: Tell,
) -> dict[str, str]:
    """Copy the image of nodes to the hosts. Returns why it cannot be copied, by host."""
    refused: dict[str, str] = {}
    by_architecture: dict[str, list[str]] = {}
    for host in hosts:
        names = by_architecture.setdefault(host.architecture, [])
        names.append(host.name)
    for architecture, names in sorted(by_architecture.items()):
        alike = dict.fromkeys(names, architecture)
        image = node_image.image_name()
        wanted = {name: {image} for name in names}
        try:
            await copy_images(wanted, alike, agents, tell)
        except OrchestratorError as error:
            refused |= dict.fromkeys(alike, str(error))
    return refused


def _undo(cluster: Cluster, server: str) -> None:
    running = standing.standing(cluster)
    if running is None or running.server == server:  # otherwise another process has started agents first
        cluster.stop_agents(NAME)
        standing.forget_keys(cluster.id())


def down(*, data: bool) -> Ended:
    """End the agents that were left running, and remove what they may have left. ``data``: also remove the data sets
    that the hosts keep. HostError if a run uses them, or if they belong to another user."""
    with closing(Cluster.connect()) as cluster, ExitStack() as holding:
        running = standing.standing(cluster)
        names = [host.name for host in cluster.members()]
        result = Ended(running is not None, data)
        if running is not None:
            _require_available(cluster, running, holding)
            silent = cluster.stop_agents(NAME)
            result.left |= dict.fromkeys(silent, "its agent does not answer")
            standing.forget_keys(cluster.id())
    if data or running is None:
        reachable = [name for name in names if name not in result.left]
        remaining = leftovers.sweep(NAME, Path(), reachable, data=data)
        result.left |= remaining
    return result


def _require_available(cluster: Cluster, running: Standing, holding: ExitStack) -> None:
    """HostError if the agents that were left running are another user's or in use. ``holding`` locks their keys."""
    swarm = cluster.id()
    folder = running.folder
    ours = standing.is_ours(swarm, running.server)
    foreign = folder.exists() and not RunDirectory(folder).is_ours
    if foreign:
        raise _unavailable(cluster, running)
    if not ours:
        return
    if standing.taken(swarm, running.server, holding) is None:
        raise _unavailable(cluster, running)
