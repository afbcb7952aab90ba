"""The hosts of this host's swarm, and what each offers to runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console

from orchestrator import text
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.standing import NAME, standing
from orchestrator.host.process.signals import Interruption
from orchestrator.layout import write_table
from orchestrator.scenario.sections.hosts import HARDWARE_LABEL

T = TypeVar("T")

FIELDS = (
    "name",
    "address",
    "architecture",
    "cores",
    "memory",
    "manager",
    "state",
    "availability",
    "engine",
)
HEADINGS = (
    "host",
    "state",
    "architecture",
    "cores",
    "memory",
    "board",
    "other labels",
    "Engine",
    "address",
)
AGENT = "agent"


def offered() -> tuple[list[SwarmHost], dict[str, str] | None]:
    """The hosts by name; and the states of the agents that were left running, by host, or None if there are none.
    HostError with the remedy if this host manages no swarm."""
    with closing(Cluster.connect()) as cluster:
        hosts = cluster.members()
        if standing(cluster) is None:
            return hosts, None
        states = {}
        for host, agent in cluster.agents(NAME).items():
            states[host] = agent.error or agent.state
        return hosts, states


@dataclass(frozen=True)
class Listing:
    """The hosts, and the states of the agents that were left running, see `offered`."""

    hosts: Sequence[SwarmHost]
    agents: Mapping[str, str] | None
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        hosts = [described(host) for host in self.hosts]
        return {"hosts": hosts, "agents": self.agents}

    def show(self, console: Console) -> None:
        print_hosts(self.hosts, self.agents, console)


def described(host: SwarmHost) -> dict[str, Any]:
    """A host for JSON: ``memory`` in bytes; the other fields as in Member."""
    fields = {}
    for name in FIELDS:
        fields[name] = getattr(host, name)
    fields["labels"] = dict(host.labels)
    return fields


def print_hosts(
    hosts: Sequence[SwarmHost],
    agents: Mapping[str, str] | None,
    console: Console,
) -> None:
    headings: tuple[str, ...] = HEADINGS
    if agents is not None:
        headings = (*HEADINGS, AGENT)
    rows = []
    for host in hosts:
        row = list(_row(host))
        if agents is not None:
            state = agents.get(host.name, "none")
            row.append(state)
        rows.append(row)
    write_table(console, headings, rows, right={3, 4})


async def unless_interrupted(work: Coroutine[Any, Any, T], interruption: Interruption) -> T | None:
    """The result of the work, or None if a signal came. The work is then cancelled, and ends in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    # A second signal ends the process; then the agents end by their lease.
    with interruption.handled_by(loop, task.cancel, lambda: None):
        await asyncio.wait([task])
    if interruption.asked:
        return None
    return task.result()


def _row(host: SwarmHost) -> tuple[str, ...]:
    return (
        host.name,
        ", ".join(_states(host)),
        host.architecture,
        f"{host.cores:g}",
        text.size(host.memory),
        host.labels.get(HARDWARE_LABEL, ""),
        ", ".join(_other_labels(host)),
        host.engine,
        host.address,
    )


def _states(host: SwarmHost) -> list[str]:
    states = [host.state]
    if host.manager:
        states.append("manager")
    if host.availability != "active":
        states.append(host.availability)
    return [state for state in states if state]


def _other_labels(host: SwarmHost) -> list[str]:
    """The labels of a host, except the one that names its hardware."""
    labels = []
    for key, value in sorted(host.labels.items()):
        if key == HARDWARE_LABEL:
            continue
        if value:
            labels.append(f"{key}={value}")
        else:
            labels.append(key)
    return labels
