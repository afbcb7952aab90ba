"""The network between the hosts of a run while it trains: measured repeatedly, and recorded.

`orchestrator.results.checks.network` judges it from the record. Where only real links cross hosts there is nothing to
judge.
"""

from __future__ import annotations

from orchestrator import text
from orchestrator.fabric.underlay import HostsNetwork
from orchestrator.record.events.network import NetworkReading, Pair
from orchestrator.results.checks.network import crossing_links
from orchestrator.results.traffic.hosts_network import Deviation, NetworkFindings
from orchestrator.results.traffic.real_network import RealNetworks, notable
from orchestrator.run.context import RunContext
from orchestrator.run.nodes.session import Progress


class NetworkWatch:
    """Records the readings of a network, and shows each deviation when it is confirmed."""

    def __init__(self, run: RunContext, progress: Progress, network: HostsNetwork) -> None:
        self._run = run
        self._progress = progress
        self._network = network
        self._began = run.clock() - run.past.training
        self._links = [(link.source, link.target, link.profile) for link in run.plan.links]
        homes = {node.name: node.host for node in run.plan.nodes}
        links = crossing_links(self._links, homes)
        self._findings = NetworkFindings(links)
        self._real = RealNetworks(links)  # nodes with real links do not move
        self._reported: list[Deviation] = []
        self._trips: dict[Pair, float | None] = {}  # of real links, as last shown

    async def forever(self) -> None:
        """A reading during which nodes have moved is discarded: it is not of the links as they are now."""
        while True:
            homes = dict(self._network.homes)
            links = crossing_links(self._links, homes)
            self._findings.cross(links)
            self._take(self._network.first)
            while True:
                reading = await self._network.measure()
                if self._network.homes != homes:
                    break
                self._take(reading)

    def _take(self, reading: NetworkReading) -> None:
        t = self._run.clock()
        round = self._progress.round or None
        self._run.record.add_event(t, reading, round)
        self._findings.add(t, reading)
        for deviation in self._findings.found:
            if deviation.confirmed and not self._is_reported(deviation):
                self._reported.append(deviation)
                self._run.view.line(deviation.sentence(self._began))
        self._real.add(reading)
        self._show_real(reading)

    def _is_reported(self, deviation: Deviation) -> bool:
        return any(deviation is reported for reported in self._reported)

    def _show_real(self, reading: NetworkReading) -> None:
        """Show the round trip between hosts that real links join, and a message when it has changed much."""
        for hosts in self._real.found:
            if set(hosts) & set(reading.away):
                self._progress.real.pop(" – ".join(hosts), None)
        for pair in reading.pairs:
            if pair.hosts not in self._real.found:
                continue
            trip = None
            shown = "no echo came back"
            if pair.delay is not None:
                trip = 2 * pair.delay
                shown = f"round trip {text.duration(trip)}"
            self._progress.real[" – ".join(pair.hosts)] = shown
            if pair.hosts not in self._trips or notable(self._trips[pair.hosts], trip):
                self._trips[pair.hosts] = trip
                names = " and ".join(pair.hosts)
                self._run.view.line(f"real links between {names}, measured: {shown}")
