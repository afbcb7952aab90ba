"""The hosts of this host's swarm, and what each offers to runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from rich.console import Console

from orchestrator import text
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.standing import NAME, standing
from orchestrator.host.process.signals import Interruption
from orchestrator.layout import write_table
from orchestrator.scenario.sections.hosts import HARDWARE_LABEL

T = TypeVar("T")

FIELDS = ("name", "address", "architecture", "cores", "memory", "manager", "state", "availability", "engine")
HEADINGS = ("host", "state", "architecture", "cores", "memory", "board", "other labels", "Engine", "address")
AGENT = "agent"


def offered() -> tuple[list[SwarmHost], dict[str, str] | None]:
    """The hosts by name; and the states of the agents that were left running, by host, or None if there are none.
    HostError with the remedy if this host manages no swarm."""
    with closing(Cluster.connect()) as cluster:
        hosts = cluster.members()
        if standing(cluster) is None:
            return hosts, None
        return hosts, {host: each.error or each.state for host, each in cluster.agents(NAME).items()}


def described(host: SwarmHost) -> dict[str, Any]:
    """A host for JSON: ``memory`` in bytes; the other fields as in Member."""
    return {field: getattr(host, field) for field in FIELDS} | {"labels": dict(host.labels)}


def print_hosts(hosts: Sequence[SwarmHost], agents: Mapping[str, str] | None, console: Console) -> None:
    headings = HEADINGS if agents is None else (*HEADINGS, AGENT)
    rows = [(*_row(host), *([] if agents is None else [agents.get(host.name, "none")])) for host in hosts]
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
    states = [host.state, "manager" if host.manager else "", "" if host.availability == "active" else host.availability]
    labels = [f"{key}={value}" if value else key for key, value in sorted(host.labels.items()) if key != HARDWARE_LABEL]
    return (
        host.name,
        ", ".join(filter(None, states)),
        host.architecture,
        f"{host.cores:g}",
        text.size(host.memory),
        host.labels.get(HARDWARE_LABEL, ""),
        ", ".join(labels),
        host.engine,
        host.address,
    )
