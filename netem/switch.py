"""The userspace link engine: one process that moves every packet between the nodes and decides each one's fate.

`python -m netem.switch` runs in the hub's network namespace. Each node has its own namespace with `data0`, one end of a
veth pair; the other end lies in the hub, where a packet socket holds it (netem.port). A frame that arrives at a
port is looked up by its destination address, given to that link's Impairment, and sent out of the other node's port
when it is due. A pair of nodes without a link cannot exchange anything.

Requests are JSON objects, one per line, on standard input, `{"id": 7, "op": ...}`; replies go to standard output,
`{"id": 7, "ok": true}` or `{"id": 7, "error": "text"}`, and so do events, `{"event": "ready"}` first of all:

    attach    port, interface, mac      hold a node's interface; attaching a port again replaces it (a restarted node)
    detach    port                      let go of it; its links stay as they are
    link      source, target, profile, seed     one direction; one that exists is changed in place and keeps its seed
    cut       source, target            nothing crosses any more, and what is in flight is dropped
    restore   source, target            undo a cut
    counters  -                         what happened so far, see Switch.counters
    batch     requests                  several at once, {"replies": [...]}

The event `{"event": "port_down", "port": ...}` says that an interface went down or away. The process ends when its
standard input does, or when nobody reads its output any more.

One thread, one epoll: a second Python thread would only wait for the first. Super-packets (segmentation offload) are
moved whole where the link allows it, see `Link`.
"""

from __future__ import annotations

import errno
import gc
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from netem.console import Console
from netem.errors import NetemError, SwitchError
from netem.frame import HEADER_SIZE, NO_GSO, corrupt, is_super_packet, link_size, split
from netem.lateness import Lateness
from netem.link import Link
from netem.port import LARGEST_PACKET, Port, Timer, parse_mac
from netem.priority import run_promptly
from netem.profile import LinkProfile

RECEIVE_BURST = 32  # packets taken from one port before the others, and what is due, get their turn
DELIVERY_BURST = 1024  # many: under overload packets are then lost, and counted, at the entrance instead of sent late
FLIGHT_BYTES = 512 * 1024 * 1024  # held in flight, all links together; only an absurd profile needs more
FLIGHT_PACKETS = 1_000_000
LATE = 0.05  # s; a packet later than this is not on the link that was asked for


class Switch:
    """Ports, links and the packets in flight; `handle` answers requests, `forward` and `deliver` move packets."""

    def __init__(self, scheduling: str = "default", clock: Callable[[], float] = time.monotonic) -> None:
        self.scheduling = scheduling
        self.ports: dict[str, Port] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.routes: dict[str, dict[bytes, Link]] = {}  # by source port, then by destination address
        self.lateness = Lateness()  # of packets that were delayed, when they left
        self.waiting = Lateness()  # of all packets, until they were read
        self.forwarded = 0
        self.unrouted = 0
        self.unsent = 0
        self.refused = 0
        self.unreadable = 0
        self.flight_dropped = 0
        self._clock = clock
        self._flight: list[tuple[float, int, Link, int, bytes]] = []
        self._flight_bytes = 0
        self._order = count()  # packets due at the same time leave in the order they came
        self._closed_drops: Counter[str] = Counter()
        self._operations: dict[str, Callable[..., dict[str, Any]]] = {
            "attach": self.attach,
            "detach": self.detach,
            "link": self.link,
            "cut": self.cut,
            "restore": self.restore,
            "counters": self.counters,
            "batch": self.batch,
        }

    # Requests

    def handle(self, request: object) -> dict[str, Any]:
        """The reply to one request. A request that cannot be served changes nothing and is answered with its error."""
        if not isinstance(request, Mapping):
            return {"error": "a request is a JSON object"}
        arguments = dict(request)
        identity = {"id": arguments.pop("id")} if "id" in arguments else {}
        for key in ("port", "interface", "mac", "source", "target"):
            if not isinstance(arguments.get(key, ""), str):
                return {**identity, "error": f"{key} must be a text, not {arguments[key]!r}"}
        name = arguments.pop("op", None)
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            return {**identity, "error": f"unknown op {name!r}; known are {', '.join(self._operations)}"}
        try:
            return {**identity, "ok": True, **operation(**arguments)}
        except (NetemError, TypeError, ValueError) as error:
            return {**identity, "error": f"{name}: {error}"}

    def attach(self, port: str, interface: str, mac: str) -> dict[str, Any]:
        address = parse_mac(mac)
        for other in self.ports.values():
            if other.name != port and (address == other.mac or interface == other.interface):
                raise SwitchError(f"port {port}: interface or address is that of port {other.name}; detach it first")
        opened = Port(port, interface, address)
        self._close(port)
        self.ports[port] = opened
        self._reroute(port)
        return {}

    def detach(self, port: str) -> dict[str, Any]:
        if port not in self.ports:
            raise SwitchError(f"no port {port} is attached")
        self._close(port)
        self._reroute(port)
        return {}

    def link(self, source: str, target: str, profile: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        asked = LinkProfile.from_mapping(profile)
        existing = self.links.get((source, target))
        if existing is not None:
            self._move(existing, existing.change(asked, self._clock()))
        elif isinstance(seed, int):
            self.links[source, target] = Link(asked, seed)
            self._reroute(target)
        else:
            raise SwitchError(f"{source} -> {target}: a new link needs a seed, a whole number")
        return {}

    def cut(self, source: str, target: str) -> dict[str, Any]:
        link = self._link(source, target)
        link.cut = True
        link.epoch += 1
        return {}

    def restore(self, source: str, target: str) -> dict[str, Any]:
        self._link(source, target).cut = False
        return {}

    def counters(self) -> dict[str, Any]:
        """Everything counted since the start; of lateness, since the last time that this was asked.

        links           one object per link: source, target, see Link.counted
        forwarded       packets sent out of a port
        unrouted        packets whose destination has no link from their source
        unsent          packets whose target is not attached, or whose interface is down
        refused         packets for which the outgoing interface had no room
        unreadable      packets the kernel could not hand over with a virtio header (exotic segmentation offload), and
                        super-packets with headers that cannot be
        flight_dropped  packets beyond FLIGHT_BYTES or FLIGHT_PACKETS
        socket_drops    packets the kernel dropped because the switch was too slow to read them, by port
        late_max, late_p99  seconds by which delayed packets left after their due time
        waited_max      seconds that a packet waited until it was read, at most
        late            packets that waited for more than LATE seconds, or left as late
        cpu_seconds     processor time of this process
        scheduling      what netem.priority got from the kernel
        """
        lateness, self.lateness = self.lateness, Lateness()
        waiting, self.waiting = self.waiting, Lateness()
        drops = self._closed_drops + Counter({port.name: port.drops() for port in self.ports.values()})
        return {
            "links": [
                {"source": source, "target": target, **link.counted()} for (source, target), link in self.links.items()
            ],
            "forwarded": self.forwarded,
            "unrouted": self.unrouted,
            "unsent": self.unsent,
            "refused": self.refused,
            "unreadable": self.unreadable,
            "flight_dropped": self.flight_dropped,
            "socket_drops": dict(drops),
            "late_max": lateness.maximum,
            "late_p99": lateness.quantile(0.99),
            "waited_max": waiting.maximum,
            "late": lateness.above(LATE) + waiting.above(LATE),
            "cpu_seconds": time.process_time(),
            "scheduling": self.scheduling,
        }

    def batch(self, requests: list[object]) -> dict[str, Any]:
        return {"replies": [self.handle(request) for request in requests]}

    def _link(self, source: str, target: str) -> Link:
        try:
            return self.links[source, target]
        except KeyError:
            raise SwitchError(f"no link from {source} to {target}; create it first") from None

    def _close(self, name: str) -> None:
        port = self.ports.pop(name, None)
        if port is not None:
            self._closed_drops[name] += port.drops()
            port.close()

    def _reroute(self, changed: str) -> None:
        """Bring `routes`, and where links lead, up to date with the port or the links of `changed`."""
        port = self.ports.get(changed)
        for (source, target), link in self.links.items():
            if target != changed:
                continue
            routes = self.routes.setdefault(source, {})
            if link.port is not None:
                routes.pop(link.port.mac, None)
            link.port = port
            if port is not None:
                routes[port.mac] = link

    # Packets

    def forward(self, port: Port) -> None:
        """Take a burst of packets from a port and offer each to its link. OSError (ENETDOWN) if it went down."""
        receive = port.receive
        routes = self.routes.setdefault(port.name, {})
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
            if not taken:  # the first has waited longest, and to ask for each would cost too much
                waited = port.waited()
            link = routes.get(packet[HEADER_SIZE : HEADER_SIZE + 6])
            if link is None:
                self.unrouted += 1
            elif packet[1] == NO_GSO:
                self._offer(link, self._clock(), packet, len(packet) - HEADER_SIZE, 1)
            elif not is_super_packet(packet):
                self.unreadable += 1
            else:
                now = self._clock()
                for piece in [packet] if link.segments is None else split(packet, link.segments):
                    self._offer(link, now, piece, *link_size(piece))
        else:
            taken = RECEIVE_BURST
        self.waiting.add(waited, taken)

    def _offer(self, link: Link, now: float, packet: bytes, size: int, packets: int) -> None:
        if link.cut:
            link.cut_dropped += packets
            return
        flight = self._flight
        for at, damaged in link.impairment.offer(now, size, packets):
            copy = corrupt(packet, link.random) if damaged else packet
            if copy is None:
                continue
            if at <= now and not (flight and flight[0][0] <= now):
                self._send(link, copy)
            elif self._flight_bytes + len(copy) > FLIGHT_BYTES or len(flight) >= FLIGHT_PACKETS:
                self.flight_dropped += 1
            else:
                self._flight_bytes += len(copy)
                heappush(flight, (at, next(self._order), link, link.epoch, copy))

    def deliver(self) -> float | None:
        """Send what is due (a burst of it); returns when the next packet in flight is due, None if there is none."""
        flight = self._flight
        for _ in range(DELIVERY_BURST):
            if not flight:
                return None
            late = self._clock() - flight[0][0]
            if late < 0:
                break
            _, _, link, epoch, packet = heappop(flight)
            self._flight_bytes -= len(packet)
            if epoch != link.epoch:
                link.cut_dropped += 1 if packet[1] == NO_GSO else link_size(packet)[1]
                continue
            self._send(link, packet)
            self.lateness.add(late)
        return flight[0][0] if flight else None

    def _move(self, link: Link, moved: Mapping[float, float]) -> None:
        """Give packets of a link that are in flight other times."""
        if moved:
            self._flight = [
                (moved.get(entry[0], entry[0]), *entry[1:]) if entry[2] is link else entry for entry in self._flight
            ]
            heapify(self._flight)

    def _send(self, link: Link, packet: bytes) -> None:
        if link.port is None:
            self.unsent += 1
            return
        try:
            link.port.send(packet)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                self.refused += 1
            else:
                self.unsent += 1
        else:
            self.forwarded += 1


class Loop:
    """Waits for packets, requests and due times, and hands them to the switch."""

    def __init__(self, switch: Switch, console: Console) -> None:
        self.switch = switch
        self.console = console
        self.timer = Timer()
        self.epoll = select.epoll()
        self._held: dict[int, Port] = {}
        self.epoll.register(console.reading, select.EPOLLIN)
        self.epoll.register(console.writing, 0)  # EPOLLERR comes unasked when the reader has gone
        # Edge-triggered: each arming gives a new edge, so the expirations need not be read away.
        self.epoll.register(self.timer.fd, select.EPOLLIN | select.EPOLLET)

    def run(self) -> None:
        armed = None
        due = None
        while self.console.open:
            if due is None or due > time.monotonic():
                if due is not None and due != armed:
                    self.timer.arm(due)
                    armed = due
                ready = self.epoll.poll()
            else:
                ready = self.epoll.poll(0)
            for descriptor, mask in ready:
                port = self._held.get(descriptor)
                if port is not None:
                    self._forward(port)
                elif descriptor == self.console.reading:
                    self._serve()
                elif descriptor == self.console.writing:
                    self._flush(mask)
            due = self.switch.deliver()

    def _forward(self, port: Port) -> None:
        try:
            self.switch.forward(port)
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            self.console.write({"event": "port_down", "port": port.name})

    def _serve(self) -> None:
        for request in self.console.requests():
            self.console.write(self.switch.handle(request))
        self._flush(0)
        held = {port.fd: port for port in self.switch.ports.values()}
        for descriptor, port in held.items():
            # A closed port's number may be in use again; closing has taken it out of the epoll set.
            if self._held.get(descriptor) is not port:
                self.epoll.register(descriptor, select.EPOLLIN)
        self._held = held

    def _flush(self, mask: int) -> None:
        if mask & (select.EPOLLERR | select.EPOLLHUP):
            self.console.open = False
        else:
            self.epoll.modify(self.console.writing, 0 if self.console.flush() else select.EPOLLOUT)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; links stay until the orderly end
    console = Console(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        loop = Loop(Switch(run_promptly()), console)
    except PermissionError:  # epoll takes no files
        sys.exit("netem.switch: standard input and output must be pipes: requests come in, replies go out")
    # Nothing made per packet or per request refers back to itself, so the collector would only cause pauses.
    gc.freeze()
    gc.disable()
    console.write({"event": "ready"})
    loop.run()


if __name__ == "__main__":
    main()
