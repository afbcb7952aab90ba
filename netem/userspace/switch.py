"""The userspace link engine: one process that moves every packet between the nodes and decides its fate.

`python -m netem.userspace.switch` runs in the hub's network namespace. Each node has its own namespace with `data0`,
one end of a veth pair. The other end is in the hub, where a packet socket reads it (netem.userspace.port). For a frame
that arrives at a port the switch looks up the link by the destination address, offers the frame to the link's
Impairment, and sends it out of the target's port when it is due. Nodes without a link cannot exchange packets.

If a run spans several hosts, a trunk joins their switches (netem.userspace.trunk).

Requests are JSON objects on standard input, one per line: `{"id": 7, "op": ...}`. Replies go to standard output:
`{"id": 7, "ok": true}` or `{"id": 7, "error": "text"}`. So do events. The first one is `{"event": "ready"}`:

    attach    port, interface, mac      open a node's interface; a port attached again is replaced (a restarted node)
    detach    port                      close the interface; its links stay
    channel   name, profile             make a channel of a shared medium, or change it in place; a ChannelProfile
    occupy    name, traffic, seed       start the cross traffic of a channel, a CrossTraffic; null: end it
    link      source, target, profile, seed, crossings     make one direction, or change it in place: then it keeps its
                                        seed, and what is not given. crossings: the channels on the way, in order, each
                                        as [channel, member]. Packets in the channels of a former way still pass it
    nat       source, target, timeout   put a NAT before target, which forgets flows between the two that were idle for
                                        longer (s); needs the links in both directions, see `netem.userspace.nat`
    cut       source, target            drop all packets from now on, also those in flight
    restore   source, target            undo a cut
    trunk     interface, remotes        open the trunk; remotes: the addresses of the nodes of other hosts, by name.
                                        Again: nodes have moved, and remotes are now these; counters and links stay
    admit     links                     let the packets of these links in from the trunk; each link is [source, target].
                                        One that was made here is shaped here, any other has passed its link already
    pass_on   links                     send the packets of these links over the trunk as they are; the switch of their
                                        target shapes them. A link that is made here afterwards is shaped here
    counters  changed                   the counters so far, see Switch.counters
    batch     requests                  several requests together, {"replies": [...]}

The event `{"event": "port_down", "port": ...}` reports that an interface went down or disappeared. The process ends
when its standard input ends, or when the reader of its output has closed.

One thread, one epoll: a second Python thread would only wait for the first. Super-packets (segmentation offload) stay
whole if the link allows it, see `Link`.
"""

from __future__ import annotations

import errno
import gc
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netem.errors import SwitchError
from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.priority import run_promptly
from netem.profile import LinkProfile
from netem.userspace import trunk
from netem.userspace.console import Console, Operation, Reply, answer
from netem.userspace.flight import Flight
from netem.userspace.frame import HEADER_SIZE, NO_GSO, is_super_packet, is_to_a_group, link_size, split
from netem.userspace.lateness import Lateness
from netem.userspace.link import Link
from netem.userspace.loop import Loop
from netem.userspace.nat import Nat
from netem.userspace.port import LARGEST_PACKET, Port, parse_mac
from netem.userspace.segments import segments_together
from netem.userspace.trunk import TrunkPort

REQUESTS = (
    "attach",
    "detach",
    "link",
    "nat",
    "cut",
    "restore",
    "channel",
    "occupy",
    "admit",
    "pass_on",
    "counters",
    "batch",
)
RECEIVE_BURST = 32  # packets read from one port before the other ports and the due packets are served
CLOSING = 64  # threads that close ports
LATE = 0.05  # s; a packet later than this violates the link's profile
TEXTS = ("port", "interface", "mac", "name", "source", "target")  # arguments of requests
DESTINATION = slice(HEADER_SIZE, HEADER_SIZE + 6)


class Switch:
    """Ports, links and the packets in flight; `handle` answers requests, `forward` takes packets from a port."""

    def __init__(
        self,
        scheduling: str = "default",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduling = scheduling
        self.ports: dict[str, Port] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.trunk = TrunkPort()
        # By source port, then by destination address; from the trunk by trunk.ADDRESSES.
        self.routes: dict[str, dict[bytes, Link]] = {}
        self.flight = Flight(clock)
        self.waiting = Lateness()  # time of all packets until they were read
        self.unrouted = 0
        self.to_groups: Counter[str] = Counter()
        self.from_strangers = 0
        self.unreadable = 0
        self._clock = clock
        self._closed_drops: Counter[str] = Counter()
        self._operations: dict[str, Operation] = {}
        for name in REQUESTS:
            self._operations[name] = getattr(self, name)
        self._operations["trunk"] = self.open_trunk

    # Requests

    def handle(self, request: object) -> Reply:
        """The reply to one request. A request that fails changes nothing; its reply is the error."""
        return answer(request, self._operations, TEXTS)

    def attach(self, port: str, interface: str, mac: str) -> Reply:
        address = parse_mac(mac)
        for other in self.ports.values():
            taken = address == other.mac or interface == other.interface
            if other.name != port and taken:
                raise SwitchError(f"port {port}: interface or address is that of port {other.name}; detach it first")
        opened = Port(port, interface, address)
        self._close(port)
        self.ports[port] = opened
        self._reroute(port)
        self._reroute_arrivals()
        return {}

    def detach(self, port: str) -> Reply:
        if port not in self.ports:
            raise SwitchError(f"no port {port} is attached")
        self._close(port)
        self._reroute(port)
        self._reroute_arrivals()
        return {}

    def channel(self, name: str, profile: Mapping[str, Any]) -> Reply:
        channel = ChannelProfile.from_mapping(profile)
        self.flight.media.make(name, channel, self.flight.settle())
        for link in self.links.values():
            names = [crossing.channel for crossing in link.crossings]
            if name in names:
                self._fit(link)
        return {}

    def occupy(
        self,
        name: str,
        traffic: Mapping[str, Any] | None,
        seed: int = 0,
    ) -> Reply:
        channel = self.flight.media.channel(name)
        cross_traffic = None
        if traffic is not None:
            cross_traffic = CrossTraffic.from_mapping(traffic)
        channel.occupy(cross_traffic, seed, self.flight.settle())
        return {}

    def link(
        self,
        source: str,
        target: str,
        profile: Mapping[str, Any] | None = None,
        seed: int | None = None,
        crossings: Iterable[tuple[str, str]] | None = None,
    ) -> Reply:
        configured = None
        if profile is not None:
            configured = LinkProfile.from_mapping(profile)
        route = None
        if crossings is not None:
            route = tuple(Crossing(channel, member) for channel, member in crossings)
            for crossing in route:
                self.flight.media.channel(crossing.channel)  # SwitchError if it is unknown
        link = self.links.get((source, target))
        if link is None:
            if configured is None or not isinstance(seed, int):
                raise SwitchError(f"{source} -> {target}: a new link needs a seed, a whole number, and a profile")
            link = Link(configured, seed, route or ())
            self.links[source, target] = link
            self.trunk.passing.pop((source, target), None)
            self._reroute(target)
        else:
            if route and link.propagation is None:
                raise SwitchError(f"{source} -> {target}: the link was made without channels, so it cannot cross any")
            if route is not None:
                link.crossings = route
            if configured is not None:
                self.flight.change(link, configured)
        self._fit(link)
        return {}

    def nat(self, source: str, target: str, timeout: float) -> Reply:
        inwards = self._link(source, target)
        outwards = self._link(target, source)
        if inwards.nat is None:  # otherwise it exists, with its flows
            nat = Nat(float(timeout))
            inwards.nat = nat.admits
            outwards.nat = nat.leaves
        return {}

    def cut(self, source: str, target: str) -> Reply:
        self.flight.cut(self._link(source, target))
        return {}

    def restore(self, source: str, target: str) -> Reply:
        self._link(source, target).cut = False
        return {}

    def open_trunk(self, interface: str, remotes: Mapping[str, str]) -> Reply:
        addresses = {}
        for name, mac in dict(remotes).items():
            addresses[name] = parse_mac(mac)
        if trunk.NAME not in self.ports:
            self.attach(trunk.NAME, interface, trunk.NO_ADDRESS)
        port = self.ports[trunk.NAME]
        for name in self.trunk.reach(addresses, port.send):
            self._reroute(name)
        self._reroute_arrivals()
        return {}

    def admit(self, links: list[tuple[str, str]]) -> Reply:
        self.trunk.admit(links)
        self._reroute_arrivals()
        return {}

    def pass_on(self, links: list[tuple[str, str]]) -> Reply:
        for source, target in links:
            self.trunk.passing[source, target] = Link(LinkProfile(), 0)
            self._reroute(target)
        return {}

    def counters(self, *, changed: bool = False) -> Reply:
        """All counters since the start; lateness and waiting since the previous call. ``changed``: only of links
        with counters that may have changed since the previous call. A thousand at rest would delay packets by 20 ms.

        links           one object per link: source, target, and see Link.counted
        channels        one object per member of a channel: channel, and see Channel.counted
        forwarded       packets sent out of a port
        unrouted        packets to a destination without a link from their source
        to_groups       those of them that programs sent to broadcast or multicast addresses, by port
        from_trunk      packets from other hosts that were not shaped here, see TrunkPort.delivered
        from_strangers  packets from the trunk that were dropped, see TrunkPort.is_strange
        sent_to, came_from  packets that were sent over the trunk and that came over it, by the node of the other host
        unsent          packets to a target that is not attached or has an interface that is down
        refused         packets for which the outgoing interface had no room
        unreadable      packets that the kernel could not deliver with a virtio header (exotic segmentation offload),
                        and super-packets with impossible headers
        flight_dropped  packets beyond FLIGHT_BYTES or FLIGHT_PACKETS
        socket_drops    packets the kernel dropped because the switch was too slow to read them, by port
        late_max, late_p99  seconds by which delayed packets left after their due time
        waited_max      maximum seconds from a packet's arrival to its reading
        late            packets that waited more than LATE seconds, or left more than LATE seconds late
        cpu_seconds     processor time of this process
        scheduling      the result of `netem.priority.run_promptly`
        """
        flight = self.flight
        if flight.media.channels:
            now = flight.settle()
        else:
            now = self._clock()
        lateness = flight.lateness
        flight.lateness = Lateness()
        waiting = self.waiting
        self.waiting = Lateness()
        drops = self._socket_drops()
        links = []
        for (source, target), link in self.links.items():
            if changed and link.unchanged:
                continue
            counted = link.counted(now)
            links.append({"source": source, "target": target, **counted})
        return {
            "links": links,
            "channels": flight.media.counted(now),
            "forwarded": flight.forwarded,
            "unrouted": self.unrouted,
            "to_groups": dict(self.to_groups),
            "from_trunk": self.trunk.delivered(),
            "from_strangers": self.from_strangers,
            "sent_to": self.trunk.sent_to(),
            "came_from": self.trunk.came_from(),
            "unsent": flight.unsent,
            "refused": flight.refused,
            "unreadable": self.unreadable,
            "flight_dropped": flight.dropped,
            "socket_drops": drops,
            "late_max": lateness.maximum,
            "late_p99": lateness.quantile(0.99),
            "waited_max": waiting.maximum,
            "late": lateness.above(LATE) + waiting.above(LATE),
            "cpu_seconds": time.process_time(),
            "scheduling": self.scheduling,
        }

    def _socket_drops(self) -> dict[str, int]:
        """The packets that the kernel dropped, by port; without ports that dropped none."""
        open_drops: Counter[str] = Counter()
        for port in self.ports.values():
            open_drops[port.name] = port.drops()
        return dict(self._closed_drops + open_drops)

    def batch(self, requests: list[object]) -> Reply:
        return {"replies": [self.handle(request) for request in requests]}

    def _link(self, source: str, target: str) -> Link:
        try:
            return self.links[source, target]
        except KeyError:
            raise SwitchError(f"no link from {source} to {target}; create it first") from None

    def _fit(self, link: Link) -> None:
        """Let super-packets cross a link in pieces that fit the channels on the way."""
        channels = self.flight.media.channels
        rates = []
        for name, member in link.crossings:
            profile = channels[name].profile
            rates.append(profile.rate_of(member))
        link.segments = segments_together(link.profile, rates)

    def close(self) -> None:
        """Close all ports together. Linux waits about 15 ms for each packet socket, and the waits may overlap."""
        ports = list(self.ports.values())
        closing = []
        for first in range(min(CLOSING, len(ports))):
            thread = threading.Thread(target=_close_each, args=[ports[first::CLOSING]])
            thread.start()
            closing.append(thread)
        for thread in closing:
            thread.join()

    def _close(self, name: str) -> None:
        port = self.ports.pop(name, None)
        if port is not None:
            self._closed_drops[name] += port.drops()
            port.close()

    def _reroute(self, changed: str) -> None:
        """Update `routes` and the ports of the links to `changed`."""
        port = self.ports.get(changed) or self.trunk.remotes.get(changed)
        links = self.links | self.trunk.passing
        for (source, target), link in links.items():
            if target != changed:
                continue
            routes = self.routes.setdefault(source, {})
            if link.port is not None:
                routes.pop(link.port.mac, None)
            link.port = port
            if port is not None:
                routes[port.mac] = link

    def _reroute_arrivals(self) -> None:
        routes = self.trunk.routes(self.ports, self.links)
        self.routes[trunk.NAME] = routes

    # Packets

    def forward(self, port: Port) -> None:
        """Read a burst of packets from a port and offer each to its link. OSError (ENETDOWN) if the port went down."""
        receive = port.receive
        offer = self.flight.offer
        routes = self.routes.setdefault(port.name, {})
        remote = port.name == trunk.NAME
        addresses = trunk.ADDRESSES if remote else DESTINATION
        waited = 0.0
        taken = 0
        for taken in range(RECEIVE_BURST):
            try:
                packet = receive(LARGEST_PACKET)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENETDOWN:
                    raise
                self.unreadable += 1
                continue
            if not taken:  # the first has waited longest; a query per packet would cost too much
                waited = port.waited()
            if remote:
                self.trunk.arrive(packet)
            link = routes.get(packet[addresses])
            if link is None:
                self._drop_unrouted(port, packet)
            elif packet[1] == NO_GSO:
                offer(link, self._clock(), packet, len(packet) - HEADER_SIZE, 1)
            elif not is_super_packet(packet):
                self.unreadable += 1
            else:
                now = self._clock()
                pieces = [packet]
                if link.segments is not None:
                    pieces = split(packet, link.segments)
                for piece in pieces:
                    size, packets = link_size(piece)
                    offer(link, now, piece, size, packets)
        else:
            taken = RECEIVE_BURST
        self.waiting.add(waited, taken)

    def _drop_unrouted(self, port: Port, packet: bytes) -> None:
        if port.name == trunk.NAME and self.trunk.is_strange(packet):
            self.from_strangers += 1
        else:
            self.unrouted += 1
            if is_to_a_group(packet):
                self.to_groups[port.name] += 1


def _close_each(ports: Iterable[Port]) -> None:
    for port in ports:
        port.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C signals the whole group; links stay until the orderly end
    console = Console(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        switch = Switch(run_promptly())
        loop = Loop(switch, console)
    except PermissionError:  # epoll takes no files
        sys.exit("netem.userspace.switch: standard input and output must be pipes: requests come in, replies go out")
    # No object made per packet or per request is cyclic, so the collector would only cause pauses.
    gc.freeze()
    gc.disable()
    console.write({"event": "ready"})
    loop.run()
    switch.close()


if __name__ == "__main__":
    main()
