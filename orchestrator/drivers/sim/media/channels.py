"""Shared channels in a simulation: links that send at the same time divide the rates of their channels.

The model is a fluid one. When a link starts or stops sending, or a channel or its cross traffic changes, all links
that share channels with it, directly or through others, get new rates by `netem.media.allocation`. The
`netem.tcp.flow.Flow` of each continues at its new rate, with the buffer of its fullest channel. What a link's window
does not allow it to use, for example in slow start, goes to the others until the window changes.

Changes in one turn of the event loop are one change. It takes time in proportion to the number of links that send.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from netem.media.allocation import Transfer, allocate, use_of
from netem.media.profile import CROSS_TRAFFIC, ChannelProfile, Crossing, CrossTraffic
from netem.profile import FULL_FRAME, LinkProfile
from node.messaging.delivery.arrivals import Arrivals
from orchestrator.drivers.sim.media.cross_traffic import Occupation
from orchestrator.fabric.base import ChannelRow

HEADROOM = 2.0
"""Of a channel's buffer, a link can fill this times its share of the rate: the others do not always fill theirs. Fitted
like `FIFO_EXPONENT`."""

STANDING = 0.85
"""The fraction of the buffer that TCP fills on average in a full channel with the rule ``fifo``, as measured."""

FULL = 0.999  # of a channel's time

LEAST = 0.01
"""The fraction of a channel with the rule ``fifo`` that cross traffic leaves in any case."""


Profiles = Mapping[str, ChannelProfile]  # by channel
Senders = Mapping[Crossing, int]  # the number of sending links of each member of a channel


class Sharing(Hashable, Protocol):
    """What shares channels with others: a link, or several with the same rate. See the methods of `SharedFlow`."""

    crossings: tuple[Crossing, ...]
    sending: bool
    waits_in: str | None

    def is_silent(self, now: float) -> bool: ...

    def transfer(self, profiles: Profiles, links: Senders) -> Transfer: ...

    def demand(self, now: float) -> tuple[float, float]: ...

    def limit(self, now: float, rate: float, channel: str | None) -> None: ...

    def count(self, now: float) -> None: ...

    def queued(self, now: float) -> int: ...


@dataclass
class _Count:
    """What has left a channel, of one member."""

    packets: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    overflowed: int = 0


Touch = Callable[[str], None]


class _Channel:
    """A channel, the links that send over it, and its cross traffic, which changes at ``arrive``."""

    def __init__(self, name: str, profile: ChannelProfile, touch: Touch) -> None:
        self.name = name
        self.profile = profile
        self.plan = 0
        self.sending: dict[Sharing, None] = {}
        self.counts: defaultdict[str, _Count] = defaultdict(_Count)
        self.traffic: Occupation | None = None
        self.traffic_most = profile.rate  # bit/s that cross traffic can have
        self.full_since = math.inf
        self._touch = touch

    def arrive(self) -> None:
        self._touch(self.name)

    def count(
        self,
        member: str,
        packets: float,
        size: float,
        overflowed: int = 0,
    ) -> None:
        bits = 8 * size
        rate = self.profile.rate_of(member)
        count = self.counts[member]
        count.packets += packets
        count.bytes += size
        count.seconds += bits / rate
        count.overflowed += overflowed

    def catch_up(self, now: float) -> None:
        """Count the cross traffic until now."""
        if self.traffic is not None:
            bits = self.traffic.carry(now, self.traffic_most)
            size = bits / 8
            packets = size / FULL_FRAME
            self.count(CROSS_TRAFFIC, packets, size)

    def free(self) -> float:
        """The fraction of its time for which links compete; with rules other than ``fifo`` cross traffic does too."""
        profile = self.profile
        if self.traffic is None or profile.rule.own_queues:
            return 1.0
        occupied = self.traffic.rate / profile.rate
        return max(LEAST, 1 - occupied)

    def queue(self, now: float) -> float:
        """The seconds that a packet of another link would wait."""
        if self.profile.rule.own_queues:
            return 0.0
        buffer = self.profile.buffer
        traffic = self.traffic
        if traffic is not None and traffic.rate >= self.profile.rate:
            return buffer
        filled = min(buffer, now - self.full_since)
        return STANDING * max(0.0, filled)


Channels = dict[str, _Channel]
Flows = dict[Sharing, None]  # in order


class SharedMedia:
    """The channels of a simulation, and the links that cross them, see `orchestrator.fabric.base.SharesMedia`."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.flows: list[Sharing] = []
        self._channels: dict[str, _Channel] = {}
        self._changed: dict[str, None] = {}  # channels with shares that are out of date

    def share(self, channels: Profiles) -> None:
        now = self.arrivals.loop.time()
        for flow in self.flows:
            flow.count(now)
        for name, profile in channels.items():
            channel = self._channels.get(name)
            if channel is None:
                channel = _Channel(name, profile, self._touch)
                self._channels[name] = channel
            else:
                channel.catch_up(now)
                channel.profile = profile
            self._touch(name)

    def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int) -> None:
        now = self.arrivals.loop.time()
        state = self._channels[channel]
        state.catch_up(now)
        if traffic is None:
            state.traffic = None
        else:
            state.traffic = Occupation(traffic, seed, now)
        state.count(CROSS_TRAFFIC, 0, 0)
        self._touch(channel)

    def has(self, channel: str) -> bool:
        return channel in self._channels

    def profile(self, channel: str) -> ChannelProfile:
        return self._channels[channel].profile

    def alone(self, profile: LinkProfile, crossings: Sequence[Crossing]) -> LinkProfile:
        """The profile of a link that has its channels for itself."""
        if not crossings:
            return profile
        rates = {}
        for channel, member in crossings:
            shared = self._channels[channel].profile
            rates[channel] = shared.rate_of(member)
        slowest = min(rates, key=rates.__getitem__)
        rate = rates[slowest]
        return self.shaped(profile, rate, slowest)

    def shaped(self, profile: LinkProfile, rate: float, channel: str) -> LinkProfile:
        """The profile of a link that gets ``rate`` bit/s of a channel."""
        own_rate = profile.rate
        if own_rate is not None and own_rate <= rate:
            return profile
        shared = self._channels[channel].profile
        rate = max(1.0, rate)
        own_part = HEADROOM * shared.buffer * rate / shared.rate
        part = min(shared.buffer, own_part)  # s at the channel's rate
        buffer = part * shared.rate / rate
        return replace(
            profile,
            rate=rate,
            buffer=buffer,
            buffer_bytes=None,
        )

    def wait(self, crossings: Sequence[Crossing]) -> float:
        """The seconds that the first packet of a link waits behind those of others."""
        now = self.arrivals.loop.time()
        waits = []
        for crossing in crossings:
            channel = self._channels[crossing.channel]
            waits.append(channel.queue(now))
        return sum(waits)

    def note(self, flow: Sharing) -> None:
        """Note that a link starts or stops sending."""
        for crossing in flow.crossings:
            sending = self._channels[crossing.channel].sending
            if flow.sending:
                sending[flow] = None
            else:
                sending.pop(flow, None)
        self.touch(flow.crossings)

    def touch(self, crossings: Iterable[Crossing]) -> None:
        for crossing in crossings:
            self._touch(crossing.channel)

    def count(
        self,
        channel: str,
        member: str,
        packets: float,
        size: float,
        overflowed: int = 0,
    ) -> None:
        """Count packets that have left a channel, and the bytes of them."""
        state = self._channels[channel]
        state.count(member, packets, size, overflowed)

    def rows(self, now: float) -> list[ChannelRow]:
        """The counters of all channels."""
        queued: Counter[tuple[str, str]] = Counter()
        for flow in self.flows:
            flow.count(now)
            for channel, member in flow.crossings:
                if channel == flow.waits_in:
                    queued[channel, member] += flow.queued(now)
        rows: list[ChannelRow] = []
        for name, state in self._channels.items():
            state.catch_up(now)
            for member, count in state.counts.items():
                row: ChannelRow = {
                    "channel": name,
                    "member": member,
                    "packets": round(count.packets),
                    "bytes": round(count.bytes),
                    "seconds": count.seconds,
                    "overflowed": count.overflowed,
                    "queued_bytes": queued[name, member],
                }
                rows.append(row)
        return rows

    def _touch(self, channel: str) -> None:
        """Recompute the shares of a channel's links, after all changes of this turn of the event loop."""
        if not self._changed:
            self.arrivals.loop.call_soon(self._update_shares)
        self._changed[channel] = None

    def _update_shares(self) -> None:
        now = self.arrivals.loop.time()
        channels, flows = self._connected(self._changed)
        self._changed = {}
        sending = []
        for flow in flows:
            if flow.crossings and not flow.is_silent(now):
                sending.append(flow)
        profiles = {name: channel.profile for name, channel in channels.items()}
        crossings = [crossing for flow in sending for crossing in flow.crossings]
        links = Counter(crossings)
        transfers: dict[Hashable, Transfer] = {}
        for flow in sending:
            transfers[flow] = flow.transfer(profiles, links)
        for name, channel in channels.items():
            channel.catch_up(now)
            profile = channel.profile
            traffic = channel.traffic
            if traffic is not None and profile.rule.own_queues:
                use = use_of(profile, CROSS_TRAFFIC)
                transfers[name] = Transfer({name: use}, traffic.rate)
        free = {name: channel.free() for name, channel in channels.items()}
        shares = allocate(transfers, free)
        wakes = dict.fromkeys(channels, math.inf)
        limited = transfers.copy()
        for flow in sending:
            demand, until = flow.demand(now)
            if demand < shares[flow]:
                transfer = transfers[flow]
                limited[flow] = replace(transfer, most=demand)
                first = flow.crossings[0].channel
                wakes[first] = min(wakes[first], until)
        if limited == transfers:
            rates = shares
        else:
            rates = allocate(limited, free)
        used: defaultdict[str, float] = defaultdict(float)
        for sender, transfer in transfers.items():
            rate = rates[sender]
            for name, use in transfer.uses.items():
                used[name] += rate * use.seconds / free[name]
        for name, channel in channels.items():
            rate_of_traffic = rates.get(name)
            self._expect(channel, rate_of_traffic, wakes[name])
            if used[name] > FULL:
                channel.full_since = min(now, channel.full_since)
            else:
                channel.full_since = math.inf
        for flow in sending:
            fullest = max(flow.crossings, key=lambda crossing: used[crossing.channel])
            limit = max(rates[flow], shares[flow])
            flow.limit(now, limit, fullest.channel)

    def _expect(self, channel: _Channel, rate: float | None, wake: float) -> None:
        """Set what cross traffic gets, and when the shares change next."""
        channel.plan += 1
        traffic = channel.traffic
        if traffic is not None:
            if rate is not None and rate < traffic.rate:
                channel.traffic_most = rate
            else:
                channel.traffic_most = channel.profile.rate
            wake = min(wake, traffic.until)
        if channel.sending and wake < math.inf:
            self.arrivals.add(wake, channel)

    def _connected(self, names: Iterable[str]) -> tuple[Channels, Flows]:
        """These channels, the links that send over them, the channels that those cross, and so on."""
        channels: Channels = {}
        flows: Flows = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in channels:
                continue
            channel = self._channels[name]
            channels[name] = channel
            flows |= channel.sending
            for flow in channel.sending:
                waiting += [crossing.channel for crossing in flow.crossings]
        return channels, flows
