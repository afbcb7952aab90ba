"""One channel of a shared medium: the queues of its members, and who sends next.

A Channel is a server that sends one packet at a time and is never idle while a packet waits. It does no I/O and never
waits: the caller offers packets and asks it to `advance`. All times are nominal: a caller that is late gets the same
packets with the same times. So the result depends on what was offered when, and on the seed, and on nothing else.

**Rules.** `netem.media.profile` has the shares. All four are start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM
1996) with other costs. A packet that comes to the head of its queue gets a tag: what its queue has been charged so far,
but at least the tag of the packet that was sent last. The lowest tag is sent next, and charges its queue:

    fifo      one queue for all members
    fair      a queue per member, which pays a packet's bytes
    airtime   a queue per member, which pays the seconds that the channel is occupied
    frames    a queue per member, which pays 1 for each packet, whatever its size

Two members that have packets waiting never differ by more than one packet of each. A member that was idle has saved
nothing, and is sent next or nearly so.

**Time.** A packet of L bytes of member i occupies the channel for 8 L / r_i seconds.

**Buffer.** The packet being sent and those waiting occupy it. When it is full, the last packet of the longest queue (in
bytes; of equals, the one that has been charged most) is dropped until the new one fits; with ``fifo`` that is the new
one. The packet being sent is never dropped, and an idle channel takes any packet. A super-packet (see `netem.impair`)
fits if its first segment does.

**Changes.** What waits leaves at the new rate, and so does the rest of the packet being sent. A smaller buffer drops
nothing until the next packet comes.

**Cross traffic** (`netem.media.cross_traffic`) is a member of its own, CROSS_TRAFFIC; its frames are discarded when
they have been sent. While no packet of another member is in the channel nothing has to be computed. The next offer
catches up: with each frame, or, after a longer rest, with those of the last one or two WINDOWs of frames. The frames
before these are counted by their mean, which also gives the backlog that they leave.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from netem.media.cross_traffic import arrivals, mean_rates, peak
from netem.media.profile import CROSS_TRAFFIC, ChannelProfile, CrossTraffic
from netem.profile import FULL_FRAME

WINDOW = 256  # frames of cross traffic
SLOW = 5e6  # bit/s; every frame of slower cross traffic is followed

Payload = TypeVar("Payload")
Row = dict[str, int | float | str]
"""Counters of a member, see `Channel.counted`."""


@dataclass(eq=False, slots=True)
class _Queue(Generic[Payload]):
    waiting: deque[_Packet[Payload]] = field(default_factory=deque)
    bytes: int = 0
    charged: float = 0.0
    ordered: bool = False  # whether the channel's order of queues has it


@dataclass(eq=False, slots=True)
class _Member(Generic[Payload]):
    """A member's rate, queue and counters, see `Channel.counted`."""

    name: str
    rate: float
    queue: _Queue[Payload]
    packets: int = 0
    bytes: int = 0
    seconds: float = 0.0
    overflowed: int = 0
    queued_bytes: int = 0


class _Packet(NamedTuple, Generic[Payload]):
    number: int
    member: _Member[Payload]
    size: int
    packets: int
    payload: Payload | None  # None: a frame of cross traffic


class _Uncounted(NamedTuple):
    """Frames of cross traffic."""

    sent: float
    overflowed: float
    waiting: float


class Channel(Generic[Payload]):
    """A channel and what is in it. Times are seconds on any clock, and never decrease from call to call.

    ``drop`` is called with each packet for which the buffer has no room.
    """

    def __init__(self, profile: ChannelProfile, drop: Callable[[Payload], object]) -> None:
        self.profile = profile
        self._drop = drop
        self._limit = profile.buffer_bytes + 0.5  # half a byte absorbs rounding; sizes are whole bytes
        self._cost = profile.rule.cost
        self._members: dict[str, _Member[Payload]] = {}
        self._queues: dict[str, _Queue[Payload]] = {}
        self._order: list[tuple[float, int, _Queue[Payload]]] = []  # a heap of the queues with packets, by their tags
        self._numbers = count()
        self._tag = 0.0  # of the packet that was sent last
        self._sending: _Packet[Payload] | None = None
        self._began = math.inf  # when sending the packet that is being sent started
        self._ends = math.inf  # when it ends
        self._bytes = 0  # in the buffer
        self._payloads = 0  # packets in the channel that are not cross traffic
        self._left: list[tuple[float, Payload]] = []
        self._traffic: CrossTraffic | None = None
        self._since = 0.0  # the start of the cross traffic
        self._window = math.inf  # s; of WINDOW frames
        self._seed = 0
        self._frames: Iterator[float] = iter(())
        self._arrives = math.inf  # the next frame
        self._reached = 0.0  # the last event
        self._part = 0.0  # of a frame, which the mean has left over

    def offer(
        self,
        now: float,
        member: str,
        size: int,
        packets: int,
        payload: Payload,
    ) -> None:
        """A packet of ``size`` bytes comes to the channel; ``packets`` > 1: a super-packet of that many segments."""
        self._catch_up(now)
        sender = self._member(member)
        self._enter(now, sender, size, packets, payload)

    def advance(self, now: float) -> list[tuple[float, Payload]]:
        """The packets that have left since the last call, each with the time at which it left."""
        while self._payloads and self._step(now):
            pass
        left = self._left
        self._left = []
        return left

    def next(self) -> float:
        """When to `advance`, unless something else comes before; infinity if no packet but cross traffic waits."""
        if self._left:
            first, _ = self._left[0]
            return first
        if self._payloads:
            return self._ends
        return math.inf

    def change(self, profile: ChannelProfile, now: float) -> None:
        """Continue with another profile from now on, see "Changes" above. After a change of the rule what waits stays
        in the order of its arrival."""
        self._catch_up(now)
        former = self.profile
        self.profile = profile
        self._limit = profile.buffer_bytes + 0.5
        self._cost = profile.rule.cost
        if self._sending is not None:
            sender = self._sending.member
            stretch = sender.rate / profile.rate_of(sender.name)
            self._ends = now + (self._ends - now) * stretch
        for member in self._members.values():
            member.rate = profile.rate_of(member.name)
        if profile.share != former.share:
            self._start_order()

    def _start_order(self) -> None:
        """Queue what waits by the present rule, in the order of its arrival."""
        waiting: list[_Packet[Payload]] = []
        for queue in self._queues.values():
            waiting += queue.waiting
        self._queues = {}
        self._order = []
        self._tag = 0.0
        for member in self._members.values():
            member.queue = self._queue(member.name)
        for packet in sorted(waiting, key=lambda packet: packet.number):
            self._append(packet)

    def occupy(self, traffic: CrossTraffic | None, seed: int, now: float) -> None:
        """Start cross traffic. It replaces the present one, but waiting frames are still sent. None: end it."""
        self._catch_up(now)
        self._traffic = traffic
        self._seed = seed
        self._since = now
        self._reached = now
        highest = 0.0
        if traffic is not None:
            highest = peak(traffic)
        if highest > SLOW:
            self._window = WINDOW * 8 * FULL_FRAME / highest
        else:
            self._window = math.inf
        self._expect(0.0)

    def remove(self, now: float, wanted: Callable[[Payload], bool]) -> list[Payload]:
        """Take the waiting packets out for which ``wanted`` is true, and return them. The packet being sent stays."""
        self._catch_up(now)
        removed = []
        for queue in self._queues.values():
            waiting = queue.waiting
            queue.waiting = deque()
            for packet in waiting:
                if packet.payload is None or not wanted(packet.payload):
                    queue.waiting.append(packet)
                else:
                    queue.bytes -= packet.size
                    self._release(packet)
                    removed.append(packet.payload)
        return removed

    def counted(self, now: float) -> list[Row]:
        """A row for each member that has had a packet here: member, packets, bytes and seconds (what has left, and how
        long that occupied the channel), overflowed (packets dropped), queued_bytes (including the packet being sent).

        The first four never fall. Cross traffic may lag by two WINDOWs while the channel rests.
        """
        if self._window == math.inf:
            self._catch_up(now)
        while self._payloads and self._step(now):
            pass
        rows: list[Row] = []
        for member in self._members.values():
            sent = 0
            overflowed = 0
            if member.name == CROSS_TRAFFIC:
                uncounted = self._uncounted(now)
                sent = int(uncounted.sent)
                overflowed = int(uncounted.overflowed)
            size = sent * FULL_FRAME
            rows.append(
                {
                    "member": member.name,
                    "packets": member.packets + sent,
                    "bytes": member.bytes + size,
                    "seconds": member.seconds + 8 * size / member.rate,
                    "overflowed": member.overflowed + overflowed,
                    "queued_bytes": member.queued_bytes,
                }
            )
        return rows

    # Members and queues

    def _member(self, name: str) -> _Member[Payload]:
        member = self._members.get(name)
        if member is None:
            rate = self.profile.rate_of(name)
            member = _Member(name, rate, self._queue(name))
            self._members[name] = member
        return member

    def _queue(self, member: str) -> _Queue[Payload]:
        name = member if self.profile.rule.own_queues else ""
        return self._queues.setdefault(name, _Queue())

    def _enter(
        self,
        now: float,
        member: _Member[Payload],
        size: int,
        packets: int,
        payload: Payload | None,
    ) -> None:
        packet = _Packet(next(self._numbers), member, size, packets, payload)
        segment = size / packets
        while self._sending is not None and self._bytes + segment > self._limit:
            queues = (queue for _, _, queue in self._order)
            longest = max(queues, key=_length, default=member.queue)
            length = member.queue.bytes + size
            if _length(longest) <= (length, member.queue.charged):
                self._overflow(packet)
                return
            last = longest.waiting.pop()
            longest.bytes -= last.size
            self._release(last)
            self._overflow(last)
        self._bytes += size
        member.queued_bytes += size
        self._payloads += payload is not None
        self._append(packet)
        if self._sending is None:
            self._send(now)

    def _append(self, packet: _Packet[Payload]) -> None:
        queue = packet.member.queue
        queue.waiting.append(packet)
        queue.bytes += packet.size
        if not queue.ordered:
            queue.ordered = True
            tag = max(queue.charged, self._tag)
            heappush(self._order, (tag, next(self._numbers), queue))

    def _release(self, packet: _Packet[Payload]) -> None:
        """A packet no longer occupies the buffer."""
        self._bytes -= packet.size
        packet.member.queued_bytes -= packet.size
        self._payloads -= packet.payload is not None

    def _overflow(self, packet: _Packet[Payload]) -> None:
        packet.member.overflowed += packet.packets
        if packet.payload is not None:
            self._drop(packet.payload)

    # Time

    def _step(self, now: float) -> bool:
        """The next event, if it is not after ``now``: a frame of cross traffic comes, or a packet has been sent."""
        if self._arrives < self._ends:
            if self._arrives > now:
                return False
            self._reached = self._arrives
            others = self._member(CROSS_TRAFFIC)
            self._enter(self._arrives, others, FULL_FRAME, 1, None)
            self._arrives = self._since + next(self._frames, math.inf)
            return True
        if self._ends > now or self._sending is None:
            return False
        at = self._ends
        self._reached = at
        packet = self._sending
        member = packet.member
        member.packets += packet.packets
        member.bytes += packet.size
        member.seconds += at - self._began
        self._release(packet)
        if packet.payload is not None:
            self._left.append((at, packet.payload))
        self._send(at)
        return True

    def _send(self, now: float) -> None:
        """Start to send the next packet, if one waits."""
        order = self._order
        while order:
            tag, _, queue = heappop(order)
            if not queue.waiting:
                queue.ordered = False
                continue
            packet = queue.waiting.popleft()
            self._tag = tag
            self._sending = packet
            queue.bytes -= packet.size
            seconds = 8 * packet.size / packet.member.rate
            cost = self._cost(packet.size, packet.packets, seconds)
            queue.charged = tag + cost
            if queue.waiting:
                heappush(order, (queue.charged, next(self._numbers), queue))
            else:
                queue.ordered = False
            self._began = now
            self._ends = now + seconds
            return
        self._sending = None
        self._ends = math.inf

    # Cross traffic

    def _catch_up(self, now: float) -> None:
        """Reach ``now``, in the same way whatever was read about the time since the last offer."""
        while self._payloads and self._step(now):
            pass
        if not self._payloads:
            since = self._recent(now)
            if since > self._reached:
                self._skip_to(since, self._uncounted(now))
        while self._step(now):
            if self._sending is None and self._window < math.inf:
                self._alone(now)

    def _skip_to(self, since: float, uncounted: _Uncounted) -> None:
        """Count the frames of cross traffic before ``since`` by their mean, and continue with what waits then."""
        others = self._member(CROSS_TRAFFIC)
        sent = int(uncounted.sent)
        others.packets += sent
        others.bytes += sent * FULL_FRAME
        others.seconds += 8 * sent * FULL_FRAME / others.rate
        others.overflowed += int(uncounted.overflowed)
        self._part = uncounted.sent % 1 + uncounted.waiting % 1
        self._bytes = 0
        others.queued_bytes = 0
        others.queue.bytes = 0
        others.queue.waiting.clear()
        self._sending = None
        self._ends = math.inf
        self._reached = since
        self._expect(since - self._since)
        for _ in range(int(uncounted.waiting)):
            self._enter(since, others, FULL_FRAME, 1, None)

    def _alone(self, now: float) -> None:
        """The frames that come to the idle channel until ``now``: what one step after the other would do, in a tenth of
        the time."""
        others = self._member(CROSS_TRAFFIC)
        frame = 8 * FULL_FRAME / others.rate
        room = int(self._limit / FULL_FRAME)  # frames
        longest = (room - 1) * frame
        came = 0
        overflowed = 0
        arrives = self._arrives
        end = arrives
        while arrives <= now:
            came += 1
            if end <= arrives:
                end = arrives + frame
            elif end - arrives > longest:
                overflowed += 1
            else:
                end += frame
            arrives = self._since + next(self._frames, math.inf)
        self._arrives = arrives
        self._reached = now
        waiting = 0
        if came:
            frames = math.ceil((end - now) / frame)
            waiting = max(0, frames)
        for _ in range(waiting):
            self._enter(now, others, FULL_FRAME, 1, None)
        if waiting:
            self._began = end - waiting * frame
            self._ends = end - (waiting - 1) * frame
        else:
            self._began = now
            self._ends = math.inf
        sent = came - overflowed - waiting
        others.packets += sent
        others.bytes += sent * FULL_FRAME
        others.seconds += sent * frame
        others.overflowed += overflowed

    def _recent(self, now: float) -> float:
        """The time from which on frames have to be followed singly, to know at ``now`` what is in the channel."""
        if self._window == math.inf:
            return -math.inf
        windows = int((now - self._since) / self._window)
        return self._since + (windows - 1) * self._window

    def _uncounted(self, now: float) -> _Uncounted:
        """The frames of cross traffic that were sent and dropped before `_recent`, and are not counted yet; and those
        that waited then."""
        since = self._recent(now)
        if self._traffic is None or self._payloads or since <= self._reached:
            return _Uncounted(0.0, 0.0, 0.0)
        frame = 8 * FULL_FRAME  # bits
        rate = self.profile.rate_of(CROSS_TRAFFIC)
        sent = 0.0
        overflowed = 0.0
        queued = self._member(CROSS_TRAFFIC).queued_bytes / FULL_FRAME
        waiting = self._part + queued
        room = max(waiting, int(self._limit / FULL_FRAME))  # a smaller buffer drops nothing of what waits
        begin = self._reached - self._since
        end = since - self._since
        for seconds, offered in mean_rates(self._traffic, begin, end):
            waiting += seconds * offered / frame
            leaving = min(waiting, seconds * rate / frame)
            sent += leaving
            waiting -= leaving
            overflowed += max(0.0, waiting - room)
            waiting = min(waiting, room)
        return _Uncounted(sent, overflowed, waiting)

    def _expect(self, since: float) -> None:
        """Wait for the frames that come from ``since`` seconds after the start on."""
        self._member(CROSS_TRAFFIC)
        self._frames = iter(())
        if self._traffic is not None:
            self._frames = arrivals(self._traffic, self._seed, since)
        self._arrives = self._since + next(self._frames, math.inf)


def _length(queue: _Queue[Payload]) -> tuple[int, float]:
    return queue.bytes, queue.charged
