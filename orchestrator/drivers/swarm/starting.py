"""Starts the agents of a run, or of an examination of the hosts, and finds why one does not start."""

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
from orchestrator.drivers.swarm.agent_image import TASK
from orchestrator.drivers.swarm.cluster import Agent, Cluster
from orchestrator.drivers.swarm.standing import NAME, PORT, Access
from orchestrator.errors import DriverError, HostError

logger = logging.getLogger(__name__)

AGENT_TIMEOUT = 90.0  # s until the agents of all hosts have started
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
    port = agents.listen(address)
    endpoint = f"{address}:{port}"
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
    port = agents.listen(address, PORT)
    endpoint = f"{address}:{port}"
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
    settings = Settings(
        run=run,
        address=f"tcp://{endpoint}",
        server=access.server.public,
        keys=access.agents,
        lease=LEASE,
        standing=labels is not None,
    )
    start = partial(
        cluster.start_agents,
        run,
        directory,
        image,
        [*TASK, "serve"],
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

    async def leave(host: str) -> None:
        with contextlib.suppress(DriverError, HostError):  # one that does not answer goes after its lease
            await agents.call(host, Host.leave)

    await asyncio.gather(*(leave(host) for host in agents.online))


def _stop_agents(cluster: Cluster, run: str) -> None:
    away = cluster.stop_agents(run)
    if away:
        text = "%s: its agent did not end with the run; `down %s` removes what is left there when the host is back"
        logger.warning(text, ", ".join(away), run)


async def wait_for_all(
    cluster: Cluster,
    agents: Agents,
    run: str,
    hosts: Collection[str],
) -> None:
    """Wait for the agents of all hosts. HostError with the reason of each that does not start."""
    away = await agents.wait_for(hosts, AGENT_TIMEOUT)
    if not away:
        return
    _, address = await asyncio.to_thread(cluster.here)
    tasks = await asyncio.to_thread(cluster.agents, run)
    reasons = {host: agent.error or agent.state for host, agent in tasks.items()}
    listed = ", ".join(f"{host} ({reasons.get(host, 'no task')})" for host in away)
    image = agent_image.image_name()
    raise HostError(
        f"no agent started within {AGENT_TIMEOUT:.0f} s on {listed}",
        f"does each host have the image '{image}', and reach {address}? See `docker service ps {run}`",
    )


async def wait_for_each(
    cluster: Cluster,
    agents: Agents,
    run: str,
    hosts: Collection[str],
) -> dict[str, str]:
    """Wait until the agent of each host is connected, or will not start. Returns the reasons of those that do not
    start."""
    loop = asyncio.get_running_loop()
    waiting = set(hosts)
    reasons = {}
    watch = Watch(loop.time())
    while waiting:
        tasks = await asyncio.to_thread(cluster.agents, run)
        members = await asyncio.to_thread(cluster.members)
        states = {member.name: member.state for member in members}
        for host in sorted(waiting):
            try:
                away = await agents.wait_for([host], 0)
                if not away:
                    waiting.remove(host)
                    continue
                reason = watch.reason(host, tasks.get(host), loop.time())
            except HostError as error:
                reason = str(error)
            if states.get(host) == "down":
                reason = "the swarm has lost it"
            if reason is not None:
                reasons[host] = reason
                waiting.remove(host)
        with contextlib.suppress(HostError):  # the next look finds it
            await agents.wait_for(waiting, LOOK_EVERY)
    return reasons


class Watch:
    """Finds when an agent will not start any more, from what the swarm shows of it at times in seconds."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._failing: dict[str, float] = {}
        self._running: dict[str, float] = {}

    def reason(self, host: str, agent: Agent | None, now: float) -> str | None:
        """Why the agent of a host does not start; None while it still may."""
        if agent is not None and agent.error:
            failing_since = self._failing.setdefault(host, now)
            if now - failing_since >= FAILING:
                return agent.error
        if agent is not None and agent.state == "running":
            running_since = self._running.setdefault(host, now)
            if now - running_since >= MUTE:
                return MUTE_REASON
        if now - self._start < AGENT_TIMEOUT:
            return None
        if agent is None:
            return "the swarm gives it no agent"
        return f"its agent is {agent.state}"
