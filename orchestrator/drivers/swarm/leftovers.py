"""The agents of runs in this host's swarm, for commands that must also work without Docker and without a swarm."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.drivers.docker import leftovers
from orchestrator.drivers.hosts.agents.settings import LEFT_BY, SOCKET
from orchestrator.drivers.swarm import agent_image
from orchestrator.errors import HostError

if TYPE_CHECKING:
    from orchestrator.drivers.swarm.cluster import Cluster


@contextlib.contextmanager
def cluster() -> Iterator[Cluster | None]:
    """The swarm while the body runs, or None if no Engine answers or it manages no swarm."""
    with leftovers.engine() as engine:
        if engine is None:
            yield None
            return
        from orchestrator.drivers.swarm.cluster import Cluster, refusal

        if refusal(engine.facts()) is None:
            yield Cluster(engine)
        else:
            yield None


def runs() -> dict[str, Path]:
    """The runs that have agents, with their directories; empty without a swarm."""
    with cluster() as swarm, contextlib.suppress(HostError):
        if swarm is None:
            return {}
        return swarm.runs()
    return {}


def hosts() -> list[str]:
    """The hosts of this host's swarm, whatever their state; empty without a swarm."""
    with cluster() as swarm, contextlib.suppress(HostError):
        if swarm is None:
            return []
        return [member.name for member in swarm.members()]
    return []


def stop_agents(run: str) -> tuple[list[str], list[str]]:
    """End the agents of a run, which end what they have made. Returns the hosts that had agents, and the hosts on which
    the swarm does not know that the agent has ended."""
    with cluster() as swarm:
        if swarm is None or run not in swarm.runs():
            return [], []
        hosts = sorted(swarm.agents(run))
        left = swarm.stop_agents(run)
        return hosts, left


def sweep(
    run: str,
    directory: Path,
    hosts: Collection[str],
    *,
    data: bool = False,
) -> dict[str, str]:
    """Remove what a run with ended agents may have left on its hosts, such as on one that was lost. ``data``: also the
    data sets that the hosts keep. Returns the hosts that were not reached, with the reasons."""
    with cluster() as swarm:
        if swarm is None:
            return dict.fromkeys(hosts, "this host manages no swarm")
        members = {member.name: member for member in swarm.members()}
        away = {}
        available = []
        for host in hosts:
            member = members.get(host)
            if member is None:
                away[host] = "not in the swarm"
            elif member.usable:
                available.append(host)
            else:
                away[host] = member.state
        words = ["sweep", "data"] if data else ["sweep"]
        try:
            failures = swarm.run_once(
                run,
                directory,
                agent_image.image_name(),
                words,
                available,
                environment={LEFT_BY: run},
                mounts={SOCKET: SOCKET},
                secrets={},
            )
        except HostError as error:
            failures = dict.fromkeys(available, str(error))
        return away | failures
