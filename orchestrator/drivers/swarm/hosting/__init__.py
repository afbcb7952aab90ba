"""The commands of `edgebed hosts` for the hosts of this host's swarm, see `orchestrator.drivers.base.Hosting`."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.drivers.base import HostsResult, Tell


def list_hosts() -> HostsResult:
    from orchestrator.drivers.swarm.hosting import hosts

    return hosts.Listing(*hosts.offered())


def examine_hosts(names: Sequence[str], tell: Tell) -> HostsResult:
    from orchestrator.drivers.swarm.hosting.hosts_doctor import examine_swarm

    return examine_swarm(names, tell)


def leave_agents(tell: Tell) -> HostsResult:
    from orchestrator.drivers.swarm.hosting import hosts_up

    return hosts_up.up(tell)


def end_agents(*, data: bool) -> HostsResult:
    from orchestrator.drivers.swarm.hosting.hosts_up import down

    return down(data=data)
