"""The network between the hosts of a run while it trains: measured repeatedly, and recorded.

`orchestrator.results.checks.network` judges it from the record. Where only real links cross hosts there is nothing to
judge.
"""

from __future__ import annotations

from orchestrator import text
from orchestrator.fabric.hosts_network import HostsNetwork
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
        self._links = []
        for link in run.plan.links:
            ends_and_profile = (link.source, link.target, link.profile)
            self._links.append(ends_and_profile)
        homes = {}
        for node in run.plan.nodes:
            homes[node.name] = node.host
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
                sentence = deviation.sentence(self._began)
                self._run.view.line(sentence)
        self._real.add(reading)
        self._show_real(reading)

    def _is_reported(self, deviation: Deviation) -> bool:
        return any(deviation is reported for reported in self._reported)

    def _show_real(self, reading: NetworkReading) -> None:
        """Show the round trip between hosts that real links join, and a message when it has changed much."""
        shown = self._progress.real
        for hosts in self._real.found:
            if set(hosts) & set(reading.away):
                name = " – ".join(hosts)
                shown.pop(name, None)
        for pair in reading.pairs:
            hosts = pair.hosts
            if hosts not in self._real.found:
                continue
            trip = None
            words = "no echo came back"
            if pair.delay is not None:
                trip = 2 * pair.delay
                words = f"round trip {text.duration(trip)}"
            name = " – ".join(hosts)
            shown[name] = words
            is_new = hosts not in self._trips
            if is_new or notable(self._trips[hosts], trip):
                self._trips[hosts] = trip
                names = " and ".join(hosts)
                self._run.view.line(f"real links between {names}, measured: {words}")
