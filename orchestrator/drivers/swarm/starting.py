"""Starts the agents of a run, or of a question to the hosts, and tells why one does not begin."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.drivers.hosts.agents.calls import Host
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import FILE, HOST, IMAGE, LEASE, SOCKET, Settings
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.cluster import Agent, Cluster
from orchestrator.drivers.swarm.standing import NAME, PORT, Access
from orchestrator.errors import DriverError, HostError

logger = logging.getLogger(__name__)

AGENT_TIMEOUT = 90.0  # s until the agents of all hosts have begun
LOOK_EVERY = 0.5  # s between questions to the swarm
FAILING = 10.0  # s; Swarm starts an agent again each second or two, and one may fail while another run ends
MUTE_REASON = "its agent runs, but does not reach the orchestrator"
MUTE = 45.0  # s for an agent that runs to say hello; a Raspberry Pi 3 takes 15 s to start Python


async def start_agents(
    cluster: Cluster,
    agents: Agents,
    run: str,
    directory: Path,
    image: str,
    hosts: Collection[str],
    access: Access,
    stack: AsyncExitStack,
) -> None:
    """Have the swarm start an agent on each host, from this image, or let those that were left running know of the run.
    ``stack`` ends the agents, or their work for the run. HostError if this host's Engine refuses."""
    here, address = await asyncio.to_thread(cluster.here)
    if access.service:
        stack.push_async_callback(asyncio.to_thread, cluster.dismiss_agents, run)
        stack.push_async_callback(dismiss, agents)
        agents.listen(address, PORT)
        await asyncio.to_thread(cluster.mark, run, directory)
        return
    endpoint = f"{address}:{agents.listen(address)}"
    wanted = {*hosts, here}  # a manager's agent removes the agents of an orchestrator that is gone
    stack.push_async_callback(asyncio.to_thread, _stop_agents, cluster, run)
    await _start_service(cluster, run, directory, image, endpoint, access, wanted)


async def leave_agents(
    cluster: Cluster,
    agents: Agents,
    directory: Path,
    image: str,
    access: Access,
    labels: Mapping[str, str],
) -> None:
    """Have the swarm start the agents that are to be left running, on each host that is in it or joins it."""
    _, address = await asyncio.to_thread(cluster.here)
    endpoint = f"{address}:{agents.listen(address, PORT)}"
    await _start_service(cluster, NAME, directory, image, endpoint, access, None, labels)


async def _start_service(
    cluster: Cluster,
    run: str,
    directory: Path,
    image: str,
    endpoint: str,
    access: Access,
    hosts: Collection[str] | None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """``labels``: those of agents that are to be left running."""
    address = f"tcp://{endpoint}"
    server = access.server.public
    standing = labels is not None
    settings = Settings(
        run=run,
        address=address,
        server=server,
        keys=access.agents,
        lease=LEASE,
        standing=standing,
    )
    start = partial(
        cluster.start_agents,
        *(run, directory, image, ["serve"]),
        environment={HOST: "{{.Node.Hostname}}", IMAGE: image},
        mounts={SOCKET: SOCKET},
        secrets={FILE: settings.to_json()},
        hosts=hosts,
        further=labels,
    )
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)  # so that what the thread still makes can be removed
        raise


async def dismiss(agents: Agents) -> None:
    """Let agents that were left running go: they remove all that they have made, and wait again."""

    async def at(host: str) -> None:
        with contextlib.suppress(DriverError, HostError):  # one that does not answer goes after its lease
            await agents.call(host, Host.leave)

    await asyncio.gather(*map(at, agents.online))


def _stop_agents(cluster: Cluster, run: str) -> None:
    away = cluster.stop_agents(run)
    if away:
        logger.warning(
            "%s: its agent did not end with the run; `down %s` removes what is left there when the host is back",
            ", ".join(away),
            run,
        )


async def wait_for_all(
    cluster: Cluster,
    agents: Agents,
    run: str,
    hosts: Collection[str],
) -> None:
    """Wait until the agents of all hosts are there. HostError with the reason of each that does not begin."""
    away = await agents.wait_for(hosts, AGENT_TIMEOUT)
    if away:
        _, address = await asyncio.to_thread(cluster.here)
        found = await asyncio.to_thread(cluster.agents, run)
        reasons = {host: each.error or each.state for host, each in found.items()}
        listed = ", ".join(f"{host} ({reasons.get(host, 'no task')})" for host in away)
        raise HostError(
            f"no agent started within {AGENT_TIMEOUT:.0f} s on {listed}",
            f"does each host have the image '{agent_image.image_name()}', and reach {address}?"
            f" See `docker service ps {run}`",
        )


async def wait_for_each(
    cluster: Cluster,
    agents: Agents,
    run: str,
    hosts: Collection[str],
) -> dict[str, str]:
    """Wait until the agent of each host is there, or will not begin. Returns the reasons of those that do not begin."""
    loop = asyncio.get_running_loop()
    waiting = set(hosts)
    reasons = {}
    watch = Watch(loop.time())
    while waiting:
        found = await asyncio.to_thread(cluster.agents, run)
        states = {each.name: each.state for each in await asyncio.to_thread(cluster.members)}
        for host in sorted(waiting):
            try:
                if not await agents.wait_for([host], 0):
                    waiting.remove(host)
                    continue
                reason = watch.reason(host, found.get(host), loop.time())
            except HostError as error:
                reason = str(error)
            if states.get(host) == "down":
                reason = "the swarm has lost it"
            if reason is not None:
                reasons[host] = reason
                waiting.remove(host)
        with contextlib.suppress(HostError):  # the next look tells it
            await agents.wait_for(waiting, LOOK_EVERY)
    return reasons


class Watch:
    """Tells when an agent will not begin any more, from what the swarm says of it at times in seconds."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._failing: dict[str, float] = {}
        self._running: dict[str, float] = {}

    def reason(self, host: str, agent: Agent | None, now: float) -> str | None:
        """Why the agent of a host does not begin; None while it still may."""
        if agent is not None and agent.error and now - self._failing.setdefault(host, now) >= FAILING:
            return agent.error
        if agent is not None and agent.state == "running" and now - self._running.setdefault(host, now) >= MUTE:
            return MUTE_REASON
        if now - self._begun < AGENT_TIMEOUT:
            return None
        return "the swarm gives it no agent" if agent is None else f"its agent is {agent.state}"
