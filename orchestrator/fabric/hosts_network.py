"""The network between the hosts of a run, the underlay, as the run can measure it while it trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from orchestrator.planning.plan import LinkPlan
from orchestrator.record.events.network import NetworkReading, Pair, pair_of


class HostsNetwork(Protocol):
    """The network between the hosts of a run."""

    @property
    def homes(self) -> Mapping[str, str]:
        """The present host of each node."""

    @property
    def first(self) -> NetworkReading:
        """As it was measured before the run, between the present hosts of the nodes; and the frames until now."""

    async def measure(self) -> NetworkReading:
        """Measure for some seconds. HostError if a host cannot take part."""


def crossed(links: Iterable[LinkPlan], homes: Mapping[str, str]) -> list[Pair]:
    """The pairs of hosts that links cross, in order. ``homes``: the host of each node."""
    pairs = set()
    for link in links:
        source_host = homes[link.source]
        target_host = homes[link.target]
        if source_host != target_host:
            pairs.add(pair_of(source_host, target_host))
    return sorted(pairs)
