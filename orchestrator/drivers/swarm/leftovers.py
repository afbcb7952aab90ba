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

        yield Cluster(engine) if refusal(engine.facts()) is None else None


def runs() -> dict[str, Path]:
    """The runs that have agents, with their directories; empty without a swarm."""
    with cluster() as found, contextlib.suppress(HostError):
        return {} if found is None else found.runs()
    return {}


def hosts() -> list[str]:
    """The hosts of this host's swarm, whatever their state; empty without a swarm."""
    with cluster() as found, contextlib.suppress(HostError):
        if found is None:
            return []
        return [each.name for each in found.members()]
    return []


def stop_agents(run: str) -> tuple[list[str], list[str]]:
    """End the agents of a run, which end what they have made. Returns the hosts that had agents, and those of them of
    which the swarm does not know that the agent has ended."""
    with cluster() as found:
        if found is None or run not in found.runs():
            return [], []
        hosts = sorted(found.agents(run))
        return hosts, found.stop_agents(run)


def sweep(
    run: str,
    directory: Path,
    hosts: Collection[str],
    *,
    data: bool = False,
) -> dict[str, str]:
    """Remove what a run whose agents have ended may have left on its hosts, such as on one that was lost. ``data``:
    also the data sets that the hosts keep. Returns the hosts that were not reached, with the reasons."""
    with cluster() as found:
        if found is None:
            return dict.fromkeys(hosts, "this host manages no swarm")
        states = {each.name: each.state for each in found.members() if not each.usable}
        names = {each.name for each in found.members()}
        away = {host: states.get(host, "not in the swarm") for host in hosts if host in states or host not in names}
        there = [host for host in hosts if host not in away]
        image = agent_image.image_name()
        variables = {LEFT_BY: run}
        words = ["sweep", "data"] if data else ["sweep"]
        try:
            return away | found.run_once(
                *(run, directory, image, words, there),
                environment=variables,
                mounts={SOCKET: SOCKET},
                secrets={},
            )
        except HostError as error:
            return away | dict.fromkeys(there, str(error))
