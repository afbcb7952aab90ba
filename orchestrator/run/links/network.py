"""The network between the hosts of a run while it trains: measured again and again, and recorded.

`orchestrator.results.checks.network` judges it from the record. Where only real links cross hosts there is nothing to
judge.
"""

from __future__ import annotations

from orchestrator import text
from orchestrator.fabric.underlay import EVENT, HostsNetwork, NetworkReading, Pair
from orchestrator.fidelity.real_network import RealNetworks, notable
from orchestrator.fidelity.underlay import Deviation, NetworkFindings
from orchestrator.results.checks.network import crossing_links
from orchestrator.run.context import RunContext
from orchestrator.run.nodes.session import Progress


class NetworkWatch:
    """Records the readings of a network, and tells each finding when it is confirmed."""

    def __init__(self, run: RunContext, progress: Progress, network: HostsNetwork) -> None:
        self._run = run
        self._progress = progress
        self._network = network
        self._began = run.clock() - run.past.training
        self._links = [(link.source, link.target, link.profile) for link in run.plan.links]
        links = crossing_links(self._links, {node.name: node.host for node in run.plan.nodes})
        self._findings, self._real = NetworkFindings(links), RealNetworks(links)  # nodes with real links do not move
        self._reported: list[Deviation] = []
        self._trips: dict[Pair, float | None] = {}  # of real links, as they were told last

    async def forever(self) -> None:
        """A reading during which nodes have moved is discarded: it is not of the links as they are now."""
        while True:
            homes = dict(self._network.homes)
            self._findings.cross(crossing_links(self._links, homes))
            self._take(self._network.first)
            while True:
                reading = await self._network.measure()
                if self._network.homes != homes:
                    break
                self._take(reading)

    def _take(self, reading: NetworkReading) -> None:
        t = self._run.clock()
        self._run.record.event(t, None, EVENT, self._progress.round or None, reading.to_json())
        self._findings.add(t, reading)
        for finding in self._findings.found:
            if finding.confirmed and not any(finding is each for each in self._reported):
                self._reported.append(finding)
                self._run.view.line(finding.sentence(self._began))
        self._real.add(reading)
        self._tell_real(reading)

    def _tell_real(self, reading: NetworkReading) -> None:
        """Show the round trip between hosts that real links join, and tell it when it has changed much."""
        for hosts in self._real.found:
            if set(hosts) & set(reading.away):
                self._progress.real.pop(" – ".join(hosts), None)
        for pair in reading.pairs:
            if pair.hosts in self._real.found:
                trip = None if pair.delay is None else 2 * pair.delay
                said = "no echo came back" if trip is None else f"round trip {text.duration(trip)}"
                self._progress.real[" – ".join(pair.hosts)] = said
                if pair.hosts not in self._trips or notable(self._trips[pair.hosts], trip):
                    self._trips[pair.hosts] = trip
                    self._run.view.line(f"real links between {' and '.join(pair.hosts)}, measured: {said}")
