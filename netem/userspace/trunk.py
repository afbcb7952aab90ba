"""The switch's port to the other hosts of a run, and the links that arrive there.

Each host has a switch of its own, and a link belongs to the switch of its source. So a packet from the trunk has passed
its link already, and goes to its target directly. Only a link that crosses a shared medium may belong to the switch of
its target instead. Nothing goes from the trunk back to the trunk.

The trunk itself admits any sender that can write to it. So a packet passes only if the run has a link from its source
address to its destination address, and its source is a node of another host. Both addresses can be forged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from netem.profile import LinkProfile
from netem.userspace.frame import HEADER_SIZE, NO_GSO, is_super_packet, link_size
from netem.userspace.link import Link
from netem.userspace.port import Port, Remote

NAME = "the trunk"  # of its port; no node has this name, because the names of nodes have no spaces
NO_ADDRESS = "00:00:00:00:00:00"

SOURCE = slice(HEADER_SIZE + 6, HEADER_SIZE + 12)
ADDRESSES = slice(HEADER_SIZE, HEADER_SIZE + 12)  # the destination, then the source


class TrunkPort:
    """`remotes`: the nodes of the other hosts, by name; none if the run has one host. `passing`: the links to them that
    their own switches shape."""

    def __init__(self) -> None:
        self.remotes: dict[str, Remote] = {}
        self.passing: dict[tuple[str, str], Link] = {}  # unimpaired
        self._arrived: dict[bytes, int] = {}  # packets by the address of their source
        self._admitted: set[tuple[str, str]] = set()
        self._arrivals: dict[str, Link] = {}  # unimpaired, by target

    def reach(
        self,
        addresses: Mapping[str, bytes],
        send: Callable[[bytes], int],
    ) -> set[str]:
        """From now on the nodes of the other hosts are these. Returns the names of those that are new or gone."""
        before = self.remotes
        arrived_before = self._arrived
        self.remotes = {}
        self._arrived = {}
        for name, mac in addresses.items():
            self.remotes[name] = before.get(name) or Remote(mac, send)
            self._arrived[mac] = arrived_before.get(mac, 0)
        return self.remotes.keys() ^ before.keys()

    def admit(self, links: Iterable[tuple[str, str]]) -> None:
        """Let the packets of these links in, (source, target); other links stay admitted."""
        for source, target in links:
            self._admitted.add((source, target))
            if target not in self._arrivals:
                self._arrivals[target] = Link(LinkProfile(), 0)

    def routes(
        self,
        ports: Mapping[str, Port],
        links: Mapping[tuple[str, str], Link],
    ) -> dict[bytes, Link]:
        """The way of each admitted packet to one of these ports, by its ADDRESSES. ``links``: those of this switch."""
        routes = {}
        for source, target in self._admitted:
            port = ports.get(target)
            arrival = self._arrivals[target]
            arrival.port = port
            if port is not None and source in self.remotes:
                addresses = port.mac + self.remotes[source].mac
                routes[addresses] = links.get((source, target), arrival)
        return routes

    def is_strange(self, packet: bytes) -> bool:
        """Whether a packet's source is not a node of another host."""
        return packet[SOURCE] not in self._arrived

    def arrive(self, packet: bytes) -> None:
        """Count a packet from the trunk, whatever becomes of it."""
        source = packet[SOURCE]
        if source not in self._arrived:
            return
        packets = 1
        if packet[1] != NO_GSO and is_super_packet(packet):
            _, packets = link_size(packet)
        self._arrived[source] += packets

    def sent_to(self) -> dict[str, int]:
        """Number of packets that were sent over the trunk, by the name of their target."""
        return {name: remote.sent for name, remote in self.remotes.items()}

    def came_from(self) -> dict[str, int]:
        """Number of packets that came over the trunk, by the name of their source."""
        packets = {}
        for name, remote in self.remotes.items():
            packets[name] = self._arrived[remote.mac]
        return packets

    def delivered(self) -> int:
        """Number of packets that were given to their targets and belong to no link here."""
        packets = 0
        for link in self._arrivals.values():
            packets += link.impairment.counters.delivered
        return packets
