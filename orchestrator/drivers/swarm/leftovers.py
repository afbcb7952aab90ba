"""The agents of runs in this host's swarm, for commands that must also work without Docker and without a swarm."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.drivers.base import LeftRun, Removal, Trace
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


def traces(run: str | None = None) -> list[Trace]:
    """The runs that have agents; empty without a swarm."""
    rows = []
    with cluster() as swarm, contextlib.suppress(HostError):
        if swarm is not None:
            for name, directory in swarm.runs().items():
                if run in (None, name):
                    rows.append(Trace(name, directory))
    return rows


def hosts() -> list[str]:
    """The hosts of this host's swarm, whatever their state; empty without a swarm."""
    with cluster() as swarm, contextlib.suppress(HostError):
        if swarm is None:
            return []
        return [member.name for member in swarm.members()]
    return []


def remove(run: LeftRun) -> Removal:
    """End the agents of a run, which end what they have made. HostError if the swarm refuses."""
    with cluster() as swarm:
        if swarm is None or run.run not in swarm.runs():
            return Removal()
        hosts = sorted(swarm.agents(run.run))
        away = swarm.stop_agents(run.run)
        left = [f"what runs on the host {host}: its agent does not answer" for host in away]
        return Removal(hosts, left=left)


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
        words = [*agent_image.TASK, "sweep"]
        if data:
            words.append("data")
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
