"""The channels of shared media in the switch, and the packets that wait in front of them and in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from netem.errors import SwitchError
from netem.media.channel import Channel, Row
from netem.media.profile import ChannelProfile, Crossing
from netem.userspace.link import Link

BURST = 1024  # events before the ports are served again

Event = tuple[float, int, "CrossingPacket | str"]
"""When, a number in order of the events with equal times, and the packet that comes, or the channel to advance."""


@dataclass(eq=False, slots=True)
class CrossingPacket:
    """A packet on its way through channels. ``ahead``: the crossings that are still to come. It keeps those that its
    link had when it came to the first one."""

    link: Link
    data: bytes
    size: int
    packets: int
    ahead: tuple[Crossing, ...] = ()
    epoch: int = field(init=False)

    def __post_init__(self) -> None:
        self.epoch = self.link.epoch


class ChannelSchedule:
    """Channels by name. All that happens in them is done in the order of its nominal time, however late that is. Before
    any other method than `enter` is called, everything that is due has to be `run`.

    ``discard`` is called with each packet that ends here.
    """

    def __init__(self, discard: Callable[[CrossingPacket], object]) -> None:
        self.channels: dict[str, Channel[CrossingPacket]] = {}
        self.events: list[Event] = []
        self._due: dict[str, float] = {}  # of each channel, the earliest of its events
        self._numbers = count()
        self._discard = discard

    def make(self, name: str, profile: ChannelProfile, now: float) -> None:
        """Make a channel, or change it from now on."""
        if name in self.channels:
            self.channels[name].change(profile, now)
            self.watch(name)
        else:
            self.channels[name] = Channel(profile, self._overflow)
            self._due[name] = inf

    def channel(self, name: str) -> Channel[CrossingPacket]:
        try:
            return self.channels[name]
        except KeyError:
            known = ", ".join(self.channels) or "none"
            raise SwitchError(f"no channel {name}; create it first (there are: {known})") from None

    def enter(self, at: float, packet: CrossingPacket) -> None:
        """A packet comes to the first channel of its link."""
        heappush(self.events, (at, next(self._numbers), packet))

    def run(self, now: float) -> list[tuple[float, CrossingPacket]]:
        """All that happens until now, but at most so many events; returns the packets that have left their last
        channel, each with the time at which it did."""
        through: list[tuple[float, CrossingPacket]] = []
        events = self.events
        for _ in range(BURST):
            if not events or events[0][0] > now:
                break
            at, _, what = heappop(events)
            if isinstance(what, CrossingPacket):
                if what.epoch != what.link.epoch:  # cut, and counted then
                    self._discard(what)
                    continue
                what.ahead = what.link.crossings
                self._pass_on(at, what, through)
            elif at == self._due[what]:  # otherwise an earlier event has taken its place
                self._due[what] = inf
                departures = self.channels[what].advance(at)
                for left, packet in departures:
                    self._pass_on(left, packet, through)
                self.watch(what)
        return through

    def watch(self, name: str) -> None:
        """Note when the channel is to be advanced; after each change of what is in it."""
        due = self.channels[name].next()
        if due < self._due[name]:
            self._due[name] = due
            heappush(self.events, (due, next(self._numbers), name))

    def move(self, link: Link, moved: dict[float, float]) -> None:
        """Change the times at which a link's packets come to its channels, old to new."""
        events: list[Event] = []
        for at, number, what in self.events:
            if isinstance(what, CrossingPacket) and what.link is link:
                at = moved.get(at, at)
            events.append((at, number, what))
        heapify(events)
        self.events = events

    def cut(self, link: Link, now: float) -> None:
        """Drop a link's packets in channels. One that is being sent still occupies its channel."""
        for name, channel in self.channels.items():
            removed = channel.remove(now, lambda packet: packet.link is link)
            for packet in removed:
                self._lose(packet)
            self.watch(name)

    def counted(self, now: float) -> list[Row]:
        """The counters of all channels, see `Channel.counted`."""
        rows: list[Row] = []
        for name, channel in self.channels.items():
            for row in channel.counted(now):
                rows.append({"channel": name, **row})
        return rows

    def _pass_on(
        self,
        at: float,
        packet: CrossingPacket,
        through: list[tuple[float, CrossingPacket]],
    ) -> None:
        if packet.epoch != packet.link.epoch:  # it was being sent at the cut
            self._lose(packet)
            return
        if not packet.ahead:
            through.append((at, packet))
            return
        name, member = packet.ahead[0]
        packet.ahead = packet.ahead[1:]
        channel = self.channels[name]
        channel.offer(at, member, packet.size, packet.packets, packet)
        self.watch(name)

    def _lose(self, packet: CrossingPacket) -> None:
        packet.link.cut_dropped += packet.packets
        self._discard(packet)

    def _overflow(self, packet: CrossingPacket) -> None:
        packet.link.overflowed += packet.packets
        self._discard(packet)
