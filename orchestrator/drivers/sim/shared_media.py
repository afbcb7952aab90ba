"""Shared channels in a simulation: links that send at the same time divide the rates of their channels.

The model is one of flows. When a link starts or stops sending, or a channel or its cross traffic changes, all links
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
from random import Random

from netem.impair import Counters
from netem.media.allocation import Transfer, allocate, use_of
from netem.media.profile import CROSS_TRAFFIC, ChannelProfile, Crossing, CrossTraffic
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.flow import Flow
from node.messaging.delivery.arrivals import Arrivals
from orchestrator.drivers.sim.cross_traffic import Occupation
from orchestrator.fabric.base import ChannelRow

FIFO_EXPONENT = 0.5
"""In a channel with the rule ``fifo``, the weight of a link is its round trip without queues to the power of minus
this. Fitted to Linux' CUBIC over the userspace engine, see docs/explanation/simulation.md."""

FIFO_SPREAD = 0.2
"""The standard deviation of the logarithm of a random factor of that weight: losses in one queue hit connections at
random. It is drawn whenever a link starts to send. Fitted likewise."""

HEADROOM = 2.0
"""Of a channel's buffer, a link can fill this times its share of the rate: the others do not always fill theirs. Fitted
like `FIFO_EXPONENT`."""

STANDING = 0.85
"""The fraction of the buffer that TCP fills on average in a full channel with the rule ``fifo``, as measured."""

FULL = 0.999  # of a channel's time

SHORTEST = 0.001  # s; a shorter round trip has the weight of this one

LEAST = 0.01
"""The fraction of a channel with the rule ``fifo`` that cross traffic leaves in any case."""


class SharedFlow:
    """The `Flow` of a link over channels, see `node.messaging.delivery.pair.FlowModel`. ``moved`` is called with the
    new arrival times of the messages in flight."""

    def __init__(
        self,
        media: SharedMedia,
        forward: LinkProfile,
        backward: LinkProfile,
        crossings: Sequence[Crossing],
        seed: int,
        make: Callable[[LinkProfile, LinkProfile], Flow],
        moved: Callable[[list[float]], None],
    ) -> None:
        self.forward, self.backward, self.crossings = forward, backward, tuple(crossings)
        self.sending, self.plan = False, 0
        self.share = math.inf  # bit/s, and the channel in which packets wait: see `limit`
        self.narrowest: str | None = None
        self.waits_in: str | None = None  # the same, unless the link's own rate is the narrowest
        self.luck = 1.0  # in channels with one queue for all
        self.behind = 0.0  # s that the link's packets wait behind those of others
        self.before = Counters()  # what has been added to the channels' counters
        self._media, self._moved = media, moved
        self._draw = Random(f"{seed} luck").lognormvariate
        alone = media.alone(forward, crossings)
        self._shaped: tuple[LinkProfile, LinkProfile] | None = (alone, backward)  # what the flow has, without silence
        self._given, self._silent_until = forward, -math.inf
        self.flow = make(alone, backward)
        media.flows.append(self)

    def open(self, now: float) -> float:
        seconds = self.flow.open(now)
        self._look(now)
        return seconds

    def send(self, now: float, size: int) -> float:
        arrival = self.flow.send(now, size)
        self._look(now)
        return arrival

    def cut(self, now: float) -> None:
        self._media.count(self, now)
        self.flow.cut(now)
        self.before = self.flow.counted(now)  # what the cut has dropped did not cross
        self._look(now)

    def restore(self, now: float) -> list[float]:
        arrivals = self.flow.restore(now)
        self._look(now)
        return arrivals

    def arrive(self) -> None:
        """The last packet has left the channels."""
        self._set(False)

    def change(self, now: float, forward: LinkProfile, backward: LinkProfile, crossings: Sequence[Crossing]) -> None:
        """Change the link's own profiles and its way through channels. Packets that have left the queue arrive."""
        if forward != self._given:
            self._given, self._silent_until, self._shaped = forward, now + forward.silence, None
        self._media.count(self, now)
        if tuple(crossings) != self.crossings:
            self._set(False)
            self.share, self.narrowest = math.inf, None
        self.forward, self.backward, self.crossings = replace(forward, silence=0.0), backward, tuple(crossings)
        self.limit(now, self.share, self.narrowest)
        self._look(now)
        self._media.touch(self.crossings)

    def is_silent(self, now: float) -> bool:
        return now < self._silent_until

    def limit(self, now: float, rate: float, channel: str | None) -> None:
        """Send at most at ``rate`` bit/s; packets wait in ``channel``. Without a channel: as if alone."""
        self.share, self.narrowest = rate, channel
        self.waits_in = None if self.forward.rate is not None and self.forward.rate <= rate else channel
        if channel is None:
            forward = self._media.alone(self.forward, self.crossings)
        else:
            forward = self._media.shaped(self.forward, rate, channel)
        if self.behind:
            forward = replace(forward, latency=forward.latency + self.behind)
        if (forward, self.backward) != self._shaped:
            self._shaped = forward, self.backward
            if self.is_silent(now):
                forward = replace(forward, silence=self._silent_until - now)
            self._moved(self.flow.reshape(now, forward, self.backward))
            self._look(now)

    def _look(self, now: float) -> None:
        """Note whether the link sends, and when it will stop. A connection that would give up at its present share
        sends, too: it may get more."""
        leaves = self.flow.leaves()
        self._set(now < leaves and not self.flow.is_cut)
        if self.sending and leaves < math.inf:
            self._media.arrivals.add(leaves, self)

    def _set(self, sending: bool) -> None:
        self.plan += 1
        if sending != self.sending:
            self.sending = sending
            if sending:
                self.luck = self._draw(0.0, FIFO_SPREAD)
            self._media.note(self)


@dataclass
class _Count:
    """What has left a channel, of one member."""

    packets: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    overflowed: int = 0


class _Channel:
    """A channel, the links that send over it, and its cross traffic, which changes at ``arrive``."""

    def __init__(self, name: str, profile: ChannelProfile, touch: Callable[[str], None]) -> None:
        self.name, self.profile, self.plan = name, profile, 0
        self.sending: dict[SharedFlow, None] = {}
        self.counts: defaultdict[str, _Count] = defaultdict(_Count)
        self.traffic: Occupation | None = None
        self.traffic_most = profile.rate  # bit/s that cross traffic can have
        self.full_since = math.inf
        self._touch = touch

    def arrive(self) -> None:
        self._touch(self.name)

    def count(self, member: str, packets: float, size: float, overflowed: int = 0) -> None:
        count = self.counts[member]
        count.packets += packets
        count.bytes += size
        count.seconds += 8 * size / self.profile.rate_of(member)
        count.overflowed += overflowed

    def catch_up(self, now: float) -> None:
        """Count the cross traffic until now."""
        if self.traffic is not None:
            size = self.traffic.carry(now, self.traffic_most) / 8
            self.count(CROSS_TRAFFIC, size / FULL_FRAME, size)

    def free(self) -> float:
        """The fraction of its time for which links compete; with rules other than ``fifo`` cross traffic does too."""
        if self.traffic is None or self.profile.share != "fifo":
            return 1.0
        return max(LEAST, 1 - self.traffic.rate / self.profile.rate)

    def queue(self, now: float) -> float:
        """The seconds that a packet of another link would wait."""
        if self.profile.share != "fifo":
            return 0.0
        if self.traffic is not None and self.traffic.rate >= self.profile.rate:
            return self.profile.buffer
        return STANDING * max(0.0, min(self.profile.buffer, now - self.full_since))


class SharedMedia:
    """The channels of a simulation, and the links that cross them, see `orchestrator.fabric.base.SharesMedia`."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.flows: list[SharedFlow] = []
        self._channels: dict[str, _Channel] = {}
        self._changed: dict[str, None] = {}  # channels whose shares are out of date

    def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        now = self.arrivals.loop.time()
        for flow in self.flows:
            self.count(flow, now)
        for name, profile in channels.items():
            if name in self._channels:
                self._channels[name].catch_up(now)
                self._channels[name].profile = profile
            else:
                self._channels[name] = _Channel(name, profile, self._touch)
            self._touch(name)

    def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int) -> None:
        now, state = self.arrivals.loop.time(), self._channels[channel]
        state.catch_up(now)
        state.traffic = None if traffic is None else Occupation(traffic, seed, now)
        state.count(CROSS_TRAFFIC, 0, 0)
        self._touch(channel)

    def has(self, channel: str) -> bool:
        return channel in self._channels

    def alone(self, profile: LinkProfile, crossings: Sequence[Crossing]) -> LinkProfile:
        """The profile of a link that has its channels for itself."""
        if not crossings:
            return profile
        rates = {each.channel: self._channels[each.channel].profile.rate_of(each.member) for each in crossings}
        slowest = min(rates, key=rates.__getitem__)
        return self.shaped(profile, rates[slowest], slowest)

    def shaped(self, profile: LinkProfile, rate: float, channel: str) -> LinkProfile:
        """The profile of a link that gets ``rate`` bit/s of a channel."""
        if profile.rate is not None and profile.rate <= rate:
            return profile
        shared = self._channels[channel].profile
        rate = max(1.0, rate)
        part = min(shared.buffer, HEADROOM * shared.buffer * rate / shared.rate)  # s at the channel's rate
        return replace(profile, rate=rate, buffer=part * shared.rate / rate, buffer_bytes=None)

    def note(self, flow: SharedFlow) -> None:
        """Note that a link starts or stops sending."""
        now = self.arrivals.loop.time()
        if flow.sending:
            flow.behind = sum(self._channels[crossing.channel].queue(now) for crossing in flow.crossings)
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

    def count(self, flow: SharedFlow, now: float) -> None:
        """Count what a link has sent over its channels since the last call."""
        counted, before = flow.flow.counted(now), flow.before
        overflowed = counted.overflowed - before.overflowed
        packets = counted.offered - before.offered + counted.duplicated - before.duplicated
        packets -= counted.lost - before.lost + overflowed
        size = counted.offered_bytes - before.offered_bytes
        size += FULL_FRAME * (packets - (counted.offered - before.offered))
        if packets < 0 or size < 0:  # losses are known later than what left the queue
            return
        flow.before = counted
        for channel, member in flow.crossings:
            dropped = overflowed if channel == flow.waits_in else 0
            self._channels[channel].count(member, packets, size, dropped)

    def rows(self, now: float) -> list[ChannelRow]:
        """The counters of all channels."""
        queued: Counter[tuple[str, str]] = Counter()
        for flow in self.flows:
            self.count(flow, now)
            for channel, member in flow.crossings:
                queued[channel, member] += FULL_FRAME * flow.flow.queued(now) if channel == flow.waits_in else 0
        rows: list[ChannelRow] = []
        for name, state in self._channels.items():
            state.catch_up(now)
            for member, count in state.counts.items():
                rows.append(
                    {
                        "channel": name,
                        "member": member,
                        "packets": round(count.packets),
                        "bytes": round(count.bytes),
                        "seconds": count.seconds,
                        "overflowed": count.overflowed,
                        "queued_bytes": queued[name, member],
                    }
                )
        return rows

    def _touch(self, channel: str) -> None:
        """Recompute the shares of a channel's links, after all changes of this turn of the event loop."""
        if not self._changed:
            self.arrivals.loop.call_soon(self._share_anew)
        self._changed[channel] = None

    def _share_anew(self) -> None:
        now = self.arrivals.loop.time()
        channels, flows = self._connected(self._changed)
        self._changed = {}
        sending = [flow for flow in flows if flow.crossings and not flow.is_silent(now)]
        links = Counter(crossing for flow in sending for crossing in flow.crossings)
        transfers: dict[Hashable, Transfer] = {flow: self._transfer(flow, links) for flow in sending}
        for name, channel in channels.items():
            channel.catch_up(now)
            if channel.traffic is not None and channel.profile.share != "fifo":
                transfers[name] = Transfer({name: use_of(channel.profile, CROSS_TRAFFIC)}, channel.traffic.rate)
        free = {name: channel.free() for name, channel in channels.items()}
        shares = allocate(transfers, free)
        wakes = {name: math.inf for name in channels}
        limited = transfers.copy()
        for flow in sending:
            demand, until = flow.flow.demand(now)
            if demand < shares[flow]:
                limited[flow] = replace(transfers[flow], most=demand)
                first = flow.crossings[0].channel
                wakes[first] = min(wakes[first], until)
        rates = allocate(limited, free) if limited != transfers else shares
        used: defaultdict[str, float] = defaultdict(float)
        for each, transfer in transfers.items():
            for name, use in transfer.uses.items():
                used[name] += rates[each] * use.seconds / free[name]
        for name, channel in channels.items():
            self._expect(channel, rates.get(name), wakes[name])
            channel.full_since = min(now, channel.full_since) if used[name] > FULL else math.inf
        for flow in sending:
            fullest = max(flow.crossings, key=lambda crossing: used[crossing.channel]).channel
            flow.limit(now, max(rates[flow], shares[flow]), fullest)

    def _expect(self, channel: _Channel, rate: float | None, wake: float) -> None:
        """Set what cross traffic gets, and when the shares change next."""
        channel.plan += 1
        if (traffic := channel.traffic) is not None:
            channel.traffic_most = rate if rate is not None and rate < traffic.rate else channel.profile.rate
            wake = min(wake, traffic.until)
        if channel.sending and wake < math.inf:
            self.arrivals.add(wake, channel)

    def _connected(self, names: Iterable[str]) -> tuple[dict[str, _Channel], dict[SharedFlow, None]]:
        """These channels, the links that send over them, the channels that those cross, and so on."""
        channels: dict[str, _Channel] = {}
        flows: dict[SharedFlow, None] = {}
        waiting = list(names)
        while waiting:
            if (name := waiting.pop()) not in channels:
                channels[name] = self._channels[name]
                flows |= channels[name].sending
                waiting += [each.channel for flow in channels[name].sending for each in flow.crossings]
        return channels, flows

    def _transfer(self, flow: SharedFlow, links: Mapping[Crossing, int]) -> Transfer:
        """What a link can use. ``links``: the number of sending links of each member of a channel, which share the
        member's part."""
        uses = {}
        for crossing in flow.crossings:
            profile = self._channels[crossing.channel].profile
            if profile.share == "fifo":
                round_trip = max(flow.forward.latency + flow.backward.latency, SHORTEST)
                weight = flow.luck * round_trip**-FIFO_EXPONENT
            else:
                weight = 1 / links[crossing]
            uses[crossing.channel] = use_of(profile, crossing.member, weight)
        return Transfer(uses, flow.forward.rate or math.inf)
