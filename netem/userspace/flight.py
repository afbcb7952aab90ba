"""The packets that links have taken and that have not been sent: each waits for its due time."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from netem.profile import LinkProfile
from netem.userspace.frame import corrupt
from netem.userspace.lateness import Lateness
from netem.userspace.link import Link
from netem.userspace.media import ChannelSchedule, CrossingPacket

DELIVERY_BURST = 1024  # large: overload then loses (and counts) packets at the entrance instead of sending late
FLIGHT_BYTES = 512 * 1024 * 1024  # maximum in flight over all links; only an absurd profile needs more
FLIGHT_PACKETS = 1_000_000


class Flight:
    """Packets in flight over all links, those in the channels of shared media included.

    forwarded  packets sent out of a port
    unsent     packets to a target that is not attached or has an interface that is down
    refused    packets for which the outgoing interface had no room
    dropped    packets beyond FLIGHT_BYTES or FLIGHT_PACKETS
    lateness   of delayed packets, at departure
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.media = ChannelSchedule(self._discard)
        self.lateness = Lateness()
        self.forwarded = 0
        self.unsent = 0
        self.refused = 0
        self.dropped = 0
        self._clock = clock
        self._flight: list[tuple[float, int, Link, int, bytes]] = []
        self._crossing = 0  # packets that are with the media
        self._bytes = 0
        self._order = count()  # packets due at the same time leave in order of arrival

    def offer(
        self,
        link: Link,
        now: float,
        packet: bytes,
        size: int,
        packets: int,
    ) -> None:
        """A packet comes to a link; ``size`` and ``packets`` as `netem.userspace.frame.link_size` counts them."""
        if link.cut:
            link.cut_dropped += packets
            return
        if link.nat is not None and not link.nat(packet, now):
            link.nat_expired += packets
            return
        flight = self._flight
        for at, damaged in link.impairment.offer(now, size, packets):
            copy = packet
            if damaged:
                copy = corrupt(packet, link.random) or b""
            immediately = at <= now and link.propagation is None
            if immediately and not (flight and flight[0][0] <= now):
                self._send(link, copy)
            elif self._bytes + len(copy) > FLIGHT_BYTES or len(flight) + self._crossing >= FLIGHT_PACKETS:
                self.dropped += 1
            elif link.propagation is None:
                self._bytes += len(copy)
                heappush(flight, (at, next(self._order), link, link.epoch, copy))
            else:
                self._bytes += len(copy)
                self._crossing += 1
                crossing = CrossingPacket(link, copy, size, packets)
                self.media.enter(at, crossing)

    def deliver(self) -> float | None:
        """Send a burst of due packets. Returns the time at which there is more to do, None if nothing is in flight."""
        events = self.media.events
        if events:
            now = self._clock()
            if events[0][0] <= now:
                self._cross(now)
        due = self._depart()
        events = self.media.events
        if not events:
            return due
        next_event = events[0][0]
        if due is None or next_event < due:
            return next_event
        return due

    def settle(self) -> float:
        """Do all that is due now, and return that time."""
        now = self._clock()
        while self.media.events and self.media.events[0][0] <= now:
            self._cross(now)
        due = self._depart(now)
        while due is not None and due <= now:
            due = self._depart(now)
        return now

    def change(self, link: Link, profile: LinkProfile) -> None:
        """Apply another profile to a link. Packets that wait for its rate are due at other times then."""
        moved = link.change(profile, self._clock())
        if moved and link.propagation is not None:
            self.media.move(link, moved)
        elif moved:
            flight = []
            for at, number, carrier, epoch, packet in self._flight:
                if carrier is link:
                    at = moved.get(at, at)
                entry = (at, number, carrier, epoch, packet)
                flight.append(entry)
            heapify(flight)
            self._flight = flight

    def cut(self, link: Link) -> None:
        """Cut a link: its packets in flight are lost. What is due counts as delivered."""
        now = self.settle()
        link.stop(now)
        if link.propagation is not None:
            self.media.cut(link, now)

    def _depart(self, until: float = math.inf) -> float | None:
        """Send a burst of packets that are due at their targets, at most those due by ``until``; returns when the next
        one is. The clock runs on while it sends."""
        flight = self._flight
        for _ in range(DELIVERY_BURST):
            if not flight:
                return None
            due = flight[0][0]
            late = self._clock() - due
            if late < 0 or due > until:
                break
            _, _, link, epoch, packet = heappop(flight)
            self._bytes -= len(packet)
            if epoch != link.epoch:
                continue  # cut, and counted then
            self._send(link, packet)
            self.lateness.add(late)
        if not flight:
            return None
        return flight[0][0]

    def _cross(self, now: float) -> None:
        """The packets that have left the last channel of their link continue to the propagation."""
        for at, packet in self.media.run(now):
            self._crossing -= 1
            link = packet.link
            assert link.propagation is not None
            for due, _ in link.propagation.offer(at, packet.size, packet.packets):
                entry = (due, next(self._order), link, packet.epoch, packet.data)
                heappush(self._flight, entry)

    def _discard(self, packet: CrossingPacket) -> None:
        """A packet has ended in the media."""
        self._crossing -= 1
        self._bytes -= len(packet.data)

    def _send(self, link: Link, packet: bytes) -> None:
        if not packet:
            return  # a corrupt super-packet, which its receiver would reject
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
