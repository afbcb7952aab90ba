"""The hosts of this host's swarm, and what each offers to runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from rich.console import Console

from orchestrator import text
from orchestrator.drivers.swarm.cluster import Cluster, Member
from orchestrator.layout import write_table
from orchestrator.scenario.hosts import HARDWARE_LABEL

FIELDS = ("name", "address", "architecture", "cores", "memory", "manager", "state", "availability", "engine")
HEADINGS = ("host", "state", "architecture", "cores", "memory", "board", "other labels", "Engine", "address")


def offered() -> list[Member]:
    """The hosts by name. HostError with the remedy if this host manages no swarm."""
    with closing(Cluster.connect()) as cluster:
        return cluster.members()


def described(host: Member) -> dict[str, Any]:
    """A host for JSON: ``memory`` in bytes; the other fields as in Member."""
    return {field: getattr(host, field) for field in FIELDS} | {"labels": dict(host.labels)}


def print_hosts(hosts: Sequence[Member], console: Console) -> None:
    """Write a table, a row for each host."""
    write_table(console, HEADINGS, [_row(host) for host in hosts], right={3, 4})


def _row(host: Member) -> tuple[str, ...]:
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
