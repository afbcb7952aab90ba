"""Clients of a population that share channels: a fluid model. Its cost does not depend on how many send.

A client's transfer over its own link alone, with the channels for itself, takes what `netem.tcp.flow` gives. That is
also how fast it can be: its mean rate then is the most that it takes of the channels. Transfers with the same channels,
weight and most (in steps of `STEP`) have the same rate at all times. They are one *class*, which counts the bits that
each of its transfers has been given. `orchestrator.drivers.sim.media.channels` gives classes their rates, as it gives
them to single links. A change costs time in proportion to the number of classes, and each transfer a place in a heap.
Only a change of a channel itself costs time in proportion to the clients with links that cross it.

Not modelled: losses and round trips that the queue of a channel adds during a transfer, and the slower growth of a
window that follows from them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

from netem.impair import Counters
from netem.media.allocation import Transfer, use_of
from netem.media.profile import Crossing
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.path import SEGMENT
from orchestrator.drivers.sim.media.channels import STANDING, Profiles, Senders, SharedMedia
from orchestrator.drivers.sim.media.links import FIFO_SPREAD, BothProfiles, fifo_weight
from orchestrator.scenario.sections.topology import POPULATION

STEP = 1.1
"""The most that transfers of one class can use differs by less than this factor."""

FASTEST = 1e12  # bit/s; of a link without a rate of its own

LATER = 1e9  # s; an arrival at a time that is not known yet

TICK = 1e-6  # s; what is sent in less than this counts as sent: virtual times are rounded


Phase = tuple[float, float]  # bits, and the most bit/s


@dataclass(eq=False)
class _Part:
    """A message on its way, of so many ``bits`` with headers, and when it would arrive without other clients.

    mean    bit/s, if it had the channels for itself
    window  bits that the first round trip may carry
    behind  s that it waits behind packets of others
    phases  what is left to send once it has started, in bits, each with the most bit/s
    end     what its class has given to each transfer at the end of the first phase
    """

    bits: float
    alone: float
    mean: float
    window: float
    behind: float = 0.0
    phases: deque[Phase] = field(default_factory=deque)
    end: float = math.inf

    def start(self, own: LinkProfile, round_trip: float, behind: float) -> None:
        """Set the phases: slow start with a window that doubles in each round trip, then the rate of its own link. With
        losses there is one, with the mean rate."""
        self.behind = behind
        if _loses(own):
            whole = (self.bits, self.mean)
            self.phases.append(whole)
            return
        round_trip += behind
        left = self.bits
        window = self.window
        peak = own.rate or FASTEST
        while window < min(left, peak * round_trip):
            rate = window / round_trip
            self.phases.append((window, rate))
            left -= window
            window *= 2
        self.phases.append((left, peak))


def _loses(link: LinkProfile) -> bool:
    return bool(link.mean_loss or link.corrupt)


class FlowClass:
    """The transfers of a class, see `orchestrator.drivers.sim.media.channels.Sharing`."""

    def __init__(
        self,
        media: SharedMedia,
        crossings: tuple[Crossing, ...],
        most: float,
        weight: float,
    ) -> None:
        self.crossings = crossings
        self.sending = False
        self.plan = 0
        self.waits_in: str | None = None
        self._media = media
        self._most = most
        self._weight = weight
        self.rate = 0.0  # bit/s of each transfer
        self._given = 0.0  # bits of each transfer
        self._at = media.arrivals.loop.time()
        self._waiting: list[tuple[float, int, _Part, ClientFlow]] = []  # a heap
        self._numbers = count()
        self._transfers = 0
        self._uncounted = 0.0  # bits that all have been given
        media.flows.append(self)

    def add(self, part: _Part, flow: ClientFlow) -> None:
        self._advance()
        bits, _ = part.phases[0]
        part.end = self._given + bits
        number = next(self._numbers)
        transfer = (part.end, number, part, flow)
        heappush(self._waiting, transfer)
        self._resize(1)

    def remove(self, part: _Part) -> None:
        """End a transfer before it has been sent."""
        self._advance()
        part.end = math.inf
        self._resize(-1)

    def left(self, part: _Part) -> float:
        """The bits that are left of a transfer."""
        self._advance()
        return max(0.0, part.end - self._given)

    def arrive(self) -> None:
        """Some transfers have been sent."""
        self._advance()
        done = []
        given = self._given + self.rate * TICK
        while self._waiting:
            end, _, part, flow = self._waiting[0]
            if end > given and part.end != math.inf:
                break
            heappop(self._waiting)
            if part.end == end:
                part.end = math.inf
                done.append(flow)
        self._resize(-len(done))
        for flow in done:
            flow.sent()

    def is_silent(self, now: float) -> bool:
        return False

    def demand(self, now: float) -> tuple[float, float]:
        return math.inf, math.inf

    def transfer(self, profiles: Profiles, links: Senders) -> Transfer:
        """What each transfer can use, at the expense of all of the class."""
        uses = {}
        for channel, member in self.crossings:
            profile = profiles[channel]
            weight = 1.0 if profile.rule.own_queues else self._weight
            use = use_of(profile, member, weight)
            seconds = self._transfers * use.seconds
            uses[channel] = use._replace(seconds=seconds)
        return Transfer(uses, self._most)

    def limit(self, now: float, rate: float, channel: str | None) -> None:
        self._advance()
        self.rate = rate
        self.waits_in = channel if rate < self._most else None
        self.plan += 1
        if self._waiting and rate > 0:
            end = self._waiting[0][0]
            left = max(0.0, end - self._given)
            sent = now + left / rate
            self._media.arrivals.add(sent, self)

    def count(self, now: float) -> None:
        self._advance()
        size = self._uncounted / 8
        packets = size / FULL_FRAME
        self._uncounted = 0.0
        for channel, member in self.crossings:
            self._media.count(channel, member, packets, size)

    def queued(self, now: float) -> int:
        """The bytes with which TCP fills its part of the buffer, as far as the transfers have so many left."""
        if self.waits_in is None:
            return 0
        self._advance()
        channel = self._media.profile(self.waits_in)
        most = STANDING * channel.buffer * self.rate
        queued = []
        for end, _, part, _ in self._waiting:
            if part.end == end:
                left = end - self._given
                queued.append(min(most, left))
        bits = sum(queued)
        return round(bits / 8)

    def _advance(self) -> None:
        """Give all transfers their bits until now."""
        now = self._media.arrivals.loop.time()
        bits = self.rate * (now - self._at)
        self._given += bits
        self._uncounted += bits * self._transfers
        self._at = now

    def _resize(self, by: int) -> None:
        self._transfers += by
        if not self._transfers:
            self._waiting.clear()
            self.rate = 0.0
            self._given = 0.0
        self.sending = self._transfers > 0
        self._media.note(self)


class ClientFlow:
    """The flow of a client over channels, see `node.messaging.delivery.pair.FlowModel`. ``flow``: what the link alone
    does, with its channels for itself. ``ways``: the channels that it crosses there and back. ``classes``: those of the
    simulation. ``moved`` is called with the new arrival times of the messages in flight."""

    def __init__(
        self,
        media: SharedMedia,
        classes: dict[tuple[object, ...], FlowClass],
        link: BothProfiles,
        ways: tuple[Sequence[Crossing], Sequence[Crossing]],
        flow: Flow,
        seed: int,
        moved: Callable[[list[float]], None],
    ) -> None:
        self._media = media
        self._classes = classes
        self._flow = flow
        self._moved = moved
        self._link, self._link_back = link
        self._way, self._way_back = ways
        crossings = []
        has_fifo = False
        for crossing in self._way:
            crossings.append(crossing._replace(member=POPULATION))
            channel = media.profile(crossing.channel)
            if not channel.rule.own_queues:
                has_fifo = True
        self._crossings = tuple(crossings)
        self._limited: BothProfiles | None = None  # by the channels, once these have changed
        self._round_trip = self._link.latency + self._link_back.latency
        self._weight = 1.0
        if has_fifo:
            draws = Random(f"{seed} luck")
            luck = round(draws.gauss())  # in steps, so that there are few classes
            factor = math.exp(FIFO_SPREAD * luck)
            self._weight = fifo_weight(*link) * factor
        self._parts: deque[_Part] = deque()  # not yet sent
        self._arrivals: deque[float] = deque()
        self._class: FlowClass | None = None  # of the first of the parts

    def open(self, now: float) -> float:
        self.close()
        return self._flow.open(now)

    def send(self, now: float, size: int) -> float:
        self._forget(now)
        before = now
        if self._parts:
            last = self._parts[-1]
            before = max(now, last.alone)
        alone = self._flow.send(now, size)
        if alone == math.inf:
            self._arrivals.append(alone)
            return alone
        segments = -(-size // SEGMENT) or 1  # rounded up
        headers = segments * (FULL_FRAME - SEGMENT)
        bits = 8 * (size + headers)
        seconds = alone - before - self._link.latency
        mean = bits / max(seconds, 1e-6)
        window = math.inf
        if self._round_trip:
            rate, _ = self._flow.demand(now)
            window = rate * self._round_trip
        part = _Part(bits, alone, mean, window)
        self._parts.append(part)
        self._arrivals.append(LATER)
        if self._class is None:
            self._start()
        return LATER

    def _crosses(self, channels: Container[str]) -> bool:
        """Whether the link crosses one of these channels, in either direction."""
        for crossing in (*self._way, *self._way_back):
            if crossing.channel in channels:
                return True
        return False

    def change(self, now: float, channels: Container[str]) -> None:
        """Take the new profiles of these channels. Their rate limits when messages can arrive, and with losses also the
        most that they use."""
        if not self._crosses(channels):
            return
        forward = self._media.alone(self._link, self._way)
        backward = self._media.alone(self._link_back, self._way_back)
        if (forward, backward) == self._limited:
            return
        self._limited = (forward, backward)
        old = [part.alone for part in self._parts]
        arrivals = self._flow.reshape(now, forward, backward)
        parts = reversed(self._parts)
        latest = zip(reversed(arrivals), reversed(self._arrivals), strict=False)  # some have arrived
        for alone, arrival in latest:
            if arrival == LATER:
                part = next(parts)
                part.alone = alone
        if not _loses(self._link):
            return
        latency = self._link.latency
        before = now + latency
        after = now + latency
        for part, alone in zip(self._parts, old, strict=True):
            is_known = after + TICK < part.alone < math.inf
            if alone > before and is_known:
                former_seconds = alone - before
                seconds = part.alone - after
                part.mean *= former_seconds / seconds
            before = max(before, alone + latency)
            after = max(after, part.alone + latency)
        if self._class is not None:
            part = self._parts[0]
            left = self._class.left(part)
            rest = (left, part.mean)
            part.phases = deque([rest])
            self._class.remove(part)
            self._start()

    def cut(self, now: float) -> None:
        raise NotImplementedError("no fault cuts the link of a client of a population")

    def restore(self, now: float) -> list[float]:
        raise NotImplementedError("no fault cuts the link of a client of a population")

    def sent(self) -> None:
        """The first phase of the first message is over."""
        self._class = None
        part = self._parts[0]
        part.phases.popleft()
        if not part.phases:
            self._parts.popleft()
            now = self._media.arrivals.loop.time()
            self._forget(now)
            place = self._arrivals.index(LATER)
            before = now
            if place:
                before = self._arrivals[place - 1]
            arrival = now + part.behind + self._link.latency
            self._arrivals[place] = max(arrival, part.alone, before)
            arrivals = list(self._arrivals)
            self._moved(arrivals)
        if self._parts:
            self._start()

    def counted(self, now: float) -> Counters:
        """The link's counters, without what has not been sent."""
        counted = self._flow.counted(now)
        left = 0.0
        if self._class is not None:
            first, *others = self._parts
            _, *later_phases = first.phases
            left = self._class.left(first)
            left += sum(bits for bits, _ in later_phases)
            left += sum(part.bits for part in others)
        unsent = int(left / 8)
        size = min(unsent, counted.delivered_bytes)
        packets = min(size // FULL_FRAME, counted.delivered)
        counted.offered -= packets
        counted.delivered -= packets
        counted.offered_bytes -= size
        counted.delivered_bytes -= size
        return counted

    def close(self) -> None:
        """Send nothing of what is in flight any more."""
        if self._class is not None:
            self._class.remove(self._parts[0])
            self._class = None
        self._parts.clear()
        self._arrivals.clear()

    def _start(self) -> None:
        """Start the next phase, or the last one, if the window does not hold the transfer back."""
        part = self._parts[0]
        if not part.phases:
            wait = self._media.wait(self._crossings)
            part.start(self._link, self._round_trip, wait)
        _, rate = part.phases[0]
        _, final_rate = part.phases[-1]
        final = self._class_of(final_rate)
        is_slow = len(part.phases) > 1
        if is_slow and final.rate and final.rate < rate:
            bits = sum(bits for bits, _ in part.phases)
            whole = (bits, final_rate)
            part.phases = deque([whole])
            rate = final_rate
        self._class = self._class_of(rate)
        self._class.add(part, self)

    def _class_of(self, most: float) -> FlowClass:
        steps = math.log(most) / math.log(STEP)
        step = math.ceil(steps)
        key = (self._crossings, step, self._weight)
        flow_class = self._classes.get(key)
        if flow_class is None:
            upper = STEP**step
            flow_class = FlowClass(
                self._media,
                self._crossings,
                upper,
                self._weight,
            )
            self._classes[key] = flow_class
        return flow_class

    def _forget(self, now: float) -> None:
        arrivals = self._arrivals
        while arrivals and arrivals[0] <= now:
            arrivals.popleft()
