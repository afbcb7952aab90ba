"""Starts the agents of a run, or of a question to the hosts, and tells why one does not begin."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from node.assignment import Keypair
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.channel import Agents
from orchestrator.drivers.swarm.cluster import Agent, Cluster
from orchestrator.drivers.swarm.settings import FILE, HOST, IMAGE, LEASE, SOCKET, Settings
from orchestrator.errors import HostError

logger = logging.getLogger(__name__)

AGENT_TIMEOUT = 90.0  # s until the agents of all hosts have begun
LOOK_EVERY = 0.5  # s between questions to the swarm
FAILING = 10.0  # s; Swarm starts an agent again each second or two, and one may fail while another run ends
MUTE_REASON = "its agent runs, but does not reach the orchestrator"
MUTE = 45.0  # s for an agent that runs to say hello; a Raspberry Pi 3 takes 15 s to start Python


@dataclass(frozen=True)
class Keys:
    """The public key of the orchestrator, and the keys of the agents."""

    server: str
    agents: Keypair


async def start_agents(
    cluster: Cluster,
    agents: Agents,
    run: str,
    directory: Path,
    image: str,
    hosts: Collection[str],
    keys: Keys,
    stack: AsyncExitStack,
) -> None:
    """Have the swarm start an agent on each host, from this image. ``stack`` ends them. HostError if this host's Engine
    refuses."""
    here, address = await asyncio.to_thread(cluster.here)
    endpoint = f"tcp://{address}:{agents.listen(address)}"
    settings = Settings(run=run, address=endpoint, server=keys.server, keys=keys.agents, lease=LEASE)
    stack.push_async_callback(asyncio.to_thread, _stop_agents, cluster, run)
    starting = asyncio.ensure_future(
        asyncio.to_thread(
            cluster.start_agents,
            run,
            directory,
            image,
            ["serve"],
            environment={HOST: "{{.Node.Hostname}}", IMAGE: image},
            mounts={SOCKET: SOCKET},
            secrets={FILE: settings.to_json()},
            hosts={*hosts, here},  # a manager's agent removes the agents of an orchestrator that is gone
        )
    )
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)  # so that `stack` ends what the thread still makes
        raise


def _stop_agents(cluster: Cluster, run: str) -> None:
    if away := cluster.stop_agents(run):
        logger.warning(
            "%s: its agent did not end with the run; `down %s` removes what is left there when the host is back",
            ", ".join(away),
            run,
        )


async def wait_for_all(cluster: Cluster, agents: Agents, run: str, hosts: Collection[str]) -> None:
    """Wait until the agents of all hosts are there. HostError with the reason of each that does not begin."""
    if away := await agents.wait_for(hosts, AGENT_TIMEOUT):
        _, address = await asyncio.to_thread(cluster.here)
        found = await asyncio.to_thread(cluster.agents, run)
        reasons = {host: each.error or each.state for host, each in found.items()}
        told = ", ".join(f"{host} ({reasons.get(host, 'no task')})" for host in away)
        raise HostError(
            f"no agent began within {AGENT_TIMEOUT:.0f} s on {told}",
            f"does each host have the image '{agent_image.image_name()}', and reach {address}?"
            f" See `docker service ps {run}`",
        )


async def wait_for_each(cluster: Cluster, agents: Agents, run: str, hosts: Collection[str]) -> dict[str, str]:
    """Wait until the agent of each host is there, or will not begin. Returns the reasons of those that do not begin."""
    loop, waiting, reasons = asyncio.get_running_loop(), set(hosts), {}
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
                reason = "the swarm hears it no more"
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
