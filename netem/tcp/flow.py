"""Transfer times of messages over a TCP connection that crosses a shaped link, by published models without packets.

A `Flow` moves *rounds*: the packets that the window allows in one round trip (Cardwell, Savage and Anderson,
"Modeling TCP latency", INFOCOM 2000). Computing a round takes one to two microseconds (with jitter, each packet does).
Once the window fills a link without loss, the rest of a message is one round. The model sends nothing and never waits;
the same seed gives the same times.

**The link** is that of `netem.impair`, headers included. A round released at t starts to leave at b = max(t, end of the
queue) and has left at b + n s, where s is the time of a full frame at the rate. Its packets arrive the latency and a
jitter later, in order, so that a burst waits for the largest of its jitters. The first acknowledgement, which releases
the next round, arrives at b + s + both latencies. With jitter, the model follows each packet and each acknowledgement:
a late acknowledgement releases its packets late, and jitter may delay them again. Acknowledgements (one per two
packets, RFC 5681) that take longer than the data set the pace instead. Packets beyond the buffer at the longest queue
are dropped. A silent link (`LinkProfile.silence`) holds the queue back. Other losses are independent, or bursts of the
Gilbert–Elliott chain.

**The sender** models Linux:

- The initial window is 10 packets (RFC 6928). It grows by the acknowledged packets (slow start, RFC 5681) if half of it
  was in use or data waited for it (RFC 7661). It is halved for each retransmission timeout of idleness (RFC 2861;
  tcp_slow_start_after_idle in Linux' ip-sysctl documentation). Beats of the application end idleness. Their time
  counts from when the send buffer has taken the message; it takes twice the window (tcp_sndbuf_expand).
- Slow start ends at its threshold, or when the acknowledgements of a round keep coming for half a round trip, or are
  late by an eighth of one, 4 to 16 ms (HyStart: Ha and Rhee, "Taming the elephants", Computer Networks 55, 2011; the
  thresholds are those of Linux).
- Then CUBIC follows (RFC 9438: beta 0.7, C 0.4, fast convergence, Reno-friendly region). Linux' CUBIC grows by at least
  one packet in 20 until its first loss.
- The sender detects a loss a round trip later (RACK, RFC 8985). It retransmits the packet with the next round, which
  has 0.7 of the size (PRR, RFC 6937); later packets wait for it. Losses within one round trip shrink the window once.
  A loss at the end of a round is detected only with the next one, which also carries the rest.
  If nothing else is left to send, it retransmits when the third packet after the lost one is acknowledged, or a quarter
  of a round trip after the first is.
- If a loss is at the end of a message, no later packet reveals it. It is repaired by a probe after two round trips
  (TLP, RFC 8985) or by the retransmission timeout (RFC 6298; round trip + 200 ms, doubling); then the window is 1.
  After a probe the other lost packets follow in rounds of 2, 4, 8 ... (PRR's slow start, RFC 6937).
- On links with loss, beats and acknowledgements are lost too (`netem.tcp.acknowledgements`).
- No window exceeds `netem.tcp.sender.MAX_WINDOW` (tcp_wmem, tcp(7)). After 15 timeouts the connection gives up
  (tcp_retries2), and nothing arrives any more.

TCP loses corrupted packets by its checksum. Duplicated packets only take time on the link. Packets that overtake others
have no effect, because the receiver waits for the others and Linux undoes its spurious reactions (RFC 4015).

**Accuracy.** `benchmarks.transfers` compares it with Linux over the userspace engine (40 kB to 7 MB, 20 and 100 Mbit/s,
10 and 80 ms). Medians are within 7 % without loss, with jitter too. With 1 % of loss they are within a third, most
within a tenth; single transfers vary as much as the real ones. `tests.netem.tcp.test_captures` compares three transfers
with captured packets. A transfer of few rounds takes a whole number of round trips, so its time jumps if the model
takes one round more or less than Linux. Not modelled: other traffic on the link, acknowledgements that queue behind
data, delayed acknowledgements without loss, reordering by TCP's own measure, the growth of the receive window,
processing time (1 to 2 ms a message), and congestion control other than CUBIC. A small message less than a round trip
before a large one joins its round; in Linux it can make HyStart miss the full link, so that slow start overshoots.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from netem.impair import Counters
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.acknowledgements import acknowledge, beat
from netem.tcp.path import SEGMENT, Path
from netem.tcp.sender import COUNTED, GIVE_UP, SETUP_ROUND_TRIPS, Beats, Sender, lost_at_end


class Flow:
    """Arrival times of messages on one TCP connection over one direction of a link, first in, first out.

    Times are seconds on any clock, and never decrease from call to call. ``backward`` carries the acknowledgements.
    After about ``beat`` seconds without a message the connection carries a small packet of its own, which is not
    counted. Connections with one ``beat_seed`` look for that at the same times, as those of a node do. It gives up if
    nothing arrives for ``patience`` seconds.

    ``resume``: after a change of the profiles, packets that have been released stay in their round and in step with
    the acknowledgements, so that changes to the same profile change times by less than 2 % unless the buffer drops
    packets. Otherwise they start a new round.
    """

    def __init__(
        self,
        forward: LinkProfile,
        backward: LinkProfile,
        seed: int,
        beat: float = math.inf,
        patience: float = math.inf,
        *,
        resume: bool = False,
        beat_seed: int | None = None,
    ) -> None:
        self._random = Random(seed)
        self._path = Path(forward, backward, self._random)
        self._sender = Sender(self._path.round_trip)
        if beat_seed is None:
            beat_seed = seed
        phases = Random(f"{beat_seed} beats")
        phase = 0.0
        if beat != math.inf:
            phase = phases.uniform(0.0, beat / 2)
        self._beats = Beats(beat, phase)
        self._patience = patience
        self._resume = resume
        self._messages: deque[_Message] = deque()  # not yet arrived
        self._rounds: deque[_Round] = deque()  # the rounds that carry those messages
        self._number = 0
        self._cut_at: float | None = None
        self._profile = forward
        self._silent_until = -math.inf

    def copy(self, now: float, random: Random | None = None) -> Flow:
        """An equal flow at ``now``. Its later draws may come from another generator."""
        self._forget(now)
        other = copy(self)
        other._random = random or self._random
        other._sender = copy(self._sender)
        other._messages = deque(map(copy, self._messages))
        other._rounds = deque(map(copy, self._rounds))
        return other

    def counted(self, now: float) -> Counters:
        """The link's counters at ``now``. A packet is offered when it leaves the queue, and delivered when it arrives;
        the other counts grow at the end of a round. Counts that TCP notices are random draws, the others
        (duplicated, reordered) are expectations."""
        self._forget(now)
        rounds = self._rounds
        present = vars(self._sender)
        if not rounds:
            return _counters(present)
        states = [carried.state for carried in rounds]
        states.append(present)
        arrived = [carried.crossed(now) for carried in rounds]
        place = self._first_incomplete(arrived)
        counters = _counters(states[place])
        if place < len(rounds):
            after = _counters(states[place + 1])
            crossed = arrived[place]
            lost = sum(packet < crossed for packet in rounds[place].lost)
            more = crossed - lost
            delivered_bytes = counters.delivered_bytes + more * FULL_FRAME
            counters.delivered = min(counters.delivered + more, after.delivered)
            counters.delivered_bytes = min(delivered_bytes, after.delivered_bytes)
        sent = [int(carried.sent(now)) for carried in rounds]
        place = self._first_incomplete(sent)
        state = states[place]
        more = 0
        if place < len(rounds):
            more = sent[place]
        counters.offered = state["offered"] + more
        counters.offered_bytes = state["offered_bytes"] + more * FULL_FRAME
        return counters

    def _first_incomplete(self, counts: Sequence[int]) -> int:
        """The place of the first round with fewer packets in ``counts`` than it has; the number of rounds if all are
        complete."""
        for place, carried in enumerate(self._rounds):
            if counts[place] < carried.packets:
                return place
        return len(self._rounds)

    @property
    def is_cut(self) -> bool:
        return self._cut_at is not None

    def leaves(self) -> float:
        """When the last message in flight has left the queue; minus infinity without any, infinity if it never does."""
        if not self._messages:
            return -math.inf
        if self._messages[-1].arrival < math.inf:
            return self._sender.free
        return math.inf

    def demand(self, now: float) -> tuple[float, float]:
        """The bit/s that the window allows on an empty link, and when the window changes next."""
        allowed = math.inf
        round_trip = self._path.round_trip
        for carried in self._rounds:
            if carried.start > now + 1e-9:
                return allowed, carried.start
            if round_trip:
                allowed = 8 * FULL_FRAME * carried.state["limit"] / round_trip
            else:
                allowed = math.inf
        return allowed, math.inf

    def queued(self, now: float) -> int:
        """Number of packets that wait in the queue or are being sent."""
        packets = 0
        for carried in self._rounds:
            sent = int(carried.sent(now))
            packets += max(0, carried.let_go(now) - sent)
        return packets

    def open(self, now: float) -> float:
        """Start a new connection and discard messages in flight; returns the seconds until its first message."""
        counted = self.counted(now)  # without what waits in the queue
        self._messages.clear()
        self._rounds.clear()
        self._sender = Sender(self._path.round_trip)
        for name in COUNTED:
            setattr(self._sender, name, getattr(counted, name))
        self._sender.free = self._silent_until
        return SETUP_ROUND_TRIPS * self._path.round_trip

    def send(self, now: float, size: int, *, more: bool = False) -> float:
        """Arrival time of the last byte of a message of ``size`` bytes; infinity while the link is cut.

        ``more``: another message follows immediately, which reveals a loss at the end of this one.
        """
        if self._messages:
            self._forget(now)
        packets = -(-size // SEGMENT) or 1
        missing = packets * SEGMENT - size
        self._number += 1
        message = _Message(self._number, now, packets, packets, missing, more)
        self._messages.append(message)
        if self._cut_at is None:
            self._carry(message, now)
        return message.arrival

    def reshape(self, now: float, forward: LinkProfile, backward: LinkProfile) -> list[float]:
        """Change the link's profiles; returns the new arrival times of the messages in flight, in order.

        Packets that have left the queue keep their times, see "Changes" in `netem.impair`; the rest takes the new link.
        The packet being sent keeps the share of it that has been sent.
        """
        self._forget(now)
        sent = [carried.sent(now) for carried in self._rounds]
        whole = [int(packets) for packets in sent]
        share = self._share_of_packet(sent)
        changed: list[_Message] = []
        if self._cut_at is None:
            changed = self._rewind(whole)
        self._path = Path(forward, backward, self._random)
        if forward != self._profile:
            self._profile = forward
            self._silent_until = now + forward.silence
        begun = share * self._path.pace
        self._sender.free = max(now, self._silent_until) - begun
        if self._resume and changed:
            self._sender.next = max(self._sender.next, now)  # the queue is not empty: acknowledgements keep coming
        for message in changed:
            resumed = self._resume and message is changed[0]
            self._carry(message, now - begun, resumed=resumed)
            begun = 0.0
        return [message.arrival for message in self._messages]

    def _share_of_packet(self, sent: Sequence[float]) -> float:
        """The share of the packet being sent that has been sent, of the rounds with so many ``sent`` packets."""
        for packets, carried in zip(sent, self._rounds, strict=True):
            if packets < carried.packets:
                return packets % 1
        return 0.0

    def cut(self, now: float) -> None:
        """Cut the link: packets in flight are lost. Messages may still be sent; they wait."""
        if self._cut_at is not None:
            return
        self._forget(now)
        self._cut_at = now
        crossed = [carried.crossed(now) for carried in self._rounds]
        lost = 0
        for carried, arrived in zip(self._rounds, crossed, strict=True):
            lost += max(0, carried.let_go(now) - arrived)
        for message in self._rewind(crossed):
            message.arrival = math.inf
        self._sender.offered += lost
        self._sender.offered_bytes += lost * FULL_FRAME
        self._sender.lost += lost

    def restore(self, now: float) -> list[float]:
        """Undo a cut; returns the new arrival times of the messages in flight, in order.

        TCP is not notified. Its timer has expired repeatedly during the cut, with growing waits. The first attempt that
        crosses is at the next expiry (RFC 6298).
        """
        self._forget(now)
        waiting = [message for message in self._messages if message.arrival == math.inf]
        if self._cut_at is not None and waiting:
            sender = self._sender
            packets = sum(message.rest for message in waiting)
            cut_short = max(self._cut_at, waiting[0].written)
            attempt = cut_short + sender.probe_timeout(packets)
            while attempt < now:
                attempt += sender.timeout
                sender.time_out()
            sender.stall(attempt)
            for message in waiting:
                self._carry(message, now)
        self._cut_at = None
        return [message.arrival for message in self._messages]

    def _forget(self, now: float) -> None:
        """Drop messages and rounds that have arrived."""
        messages = self._messages
        rounds = self._rounds
        while messages and messages[0].arrival <= now:
            messages.popleft()
        if not messages:
            rounds.clear()
            return
        number = messages[0].number
        while rounds:
            oldest = rounds[0]
            if oldest.number >= number and oldest.crossed(now) < oldest.packets:
                return
            rounds.popleft()

    def _rewind(self, kept: Sequence[int]) -> list[_Message]:
        """Undo the rounds from the first one that is not kept completely; returns the messages to send again."""
        place = self._first_incomplete(kept)
        if place == len(self._rounds):
            return []
        undone = self._rounds[place]
        sender = self._sender
        path = self._path
        vars(sender).update(undone.state)
        while len(self._rounds) > place:
            self._rounds.pop()
        lost: list[int] = []
        count = kept[place]
        if count:
            lost = [packet for packet in undone.lost if packet < count]
            undone.packets = count
            undone.dropped = 0
            self._rounds.append(undone)
            room = sender.limit - sender.used
            if self._resume and count > room:  # the window grew with these packets
                queued = undone.begin - max(undone.start, self._silent_until)
                sender.steady(count, undone.begin - queued, undone.begin, path)
            sender.let_go(undone.start, undone.begin, count, 0, 0.0, path)
            sender.count(count, lost, 0, path)
            if lost:
                sender.miss(lost, 0, count, True, path)
        again = [message for message in self._messages if message.number >= undone.number]
        for message in again:
            message.rest = message.packets
        again[0].rest = undone.rest - count + len(lost)
        return again

    def _carry(self, message: _Message, now: float, resumed: bool = False) -> None:
        """Send the rest of a message, round by round, and set its arrival time. ``resumed``: the first round has been
        opened already."""
        sender = self._sender
        path = self._path
        rounds = self._rounds
        pace = path.pace
        latency = path.latency
        period = self._beats.period
        number = message.number
        rest = message.rest
        unnoticed = 0  # packets lost at the end of a round, which only those of the next one reveal
        if sender.sent and now > sender.next and now - sender.released > sender.timeout:
            sender.idle(now, pace, self._beats)
        now = beat(sender, path, self._beats, now, self._patience)
        written = False
        while sender.backoff <= GIVE_UP:
            if resumed and sender.used < sender.limit:
                start = max(now, sender.start)
                room = sender.limit - sender.used
            else:
                start, room = sender.open(now, path)
            if not written:  # the send buffer takes twice the window (tcp_sndbuf_expand)
                sender.written = start
                written = rest <= 2 * room
            begin = start if start > sender.free else sender.free
            count = min(room, rest - unnoticed or rest)
            queued = begin - max(start, self._silent_until)  # s
            state = vars(sender).copy()
            if rest > 2 * room and sender.steady(rest, begin - queued, begin, path):
                count = rest
                if not self._resume:
                    state = vars(sender).copy()
            clocked = sender.train > 0 or count > room
            lost: Sequence[int] = ()
            if path.losses:
                lost = path.losses.draw(count)
            dropped = 0
            if pace:
                dropped = sender.overflow(max(0.0, queued), min(count, room), path)
            carried = _Round(start, begin, pace, latency, count, clocked, number, rest, lost, dropped, state)
            rounds.append(carried)
            revealing = unnoticed > 0
            missing = len(lost) + dropped
            unnoticed = 0
            if missing:
                unnoticed = lost_at_end(lost, 0 if sender.train else dropped, count)
            rest += missing - count
            short = message.missing * path.byte if rest == 0 else 0.0
            sender.let_go(start, begin, count, dropped, short, path)
            if revealing:
                sender.limit = sender.used  # the lost packets follow its first acknowledgement
            sender.count(count, lost, dropped, path)
            resumed = False
            if rest == 0:
                sender.offered_bytes -= message.missing
                message.arrival = sender.arrived
                return
            if missing:
                more = rest > missing or message.more
                sender.miss(lost, dropped, count, more, path)
                if sender.probing:
                    wait = sender.next - sender.released
                    path.hears(round(wait / period))
            acknowledge(sender, path, period, count - missing, missing > 0)
            silent = sender.next + latency - max(sender.arrived, message.written)
            if silent > self._patience and (missing or path.losses):
                sender.backoff = 2 * GIVE_UP
        message.arrival = math.inf


@dataclass(slots=True)
class _Message:
    number: int
    written: float
    packets: int
    rest: int  # packets still to send
    missing: int  # bytes that the last packet lacks to be full
    more: bool
    arrival: float = math.inf


@dataclass(slots=True)
class _Round:
    """Packets released together, or one after the other if ``clocked``, and the sender's state before them."""

    start: float
    begin: float
    pace: float
    latency: float
    packets: int
    clocked: bool
    number: int
    rest: int
    lost: Sequence[int]  # which of the packets
    dropped: int  # by a full buffer, at the end of the round
    state: dict[str, Any]

    def let_go(self, now: float) -> int:
        """Number of packets that the sender has released by ``now``."""
        if now < self.start:
            return 0
        if not self.clocked or not self.pace or now == self.start:
            return self.packets
        packets = (now - self.start) / self.pace
        return min(self.packets, int(packets))

    def crossed(self, now: float) -> int:
        """Number of packets that have arrived by ``now``."""
        return int(self.sent(now - self.latency))

    def sent(self, now: float) -> float:
        """Number of packets that have left the queue by ``now``, with the share of the one being sent."""
        ahead = now - self.begin
        if not self.pace:
            return self.packets if ahead >= 0 else 0
        if ahead < 0:
            return 0
        sent = ahead / self.pace + 1e-9
        if sent < self.packets - self.dropped:
            return sent
        return self.packets


def _counters(state: Mapping[str, Any]) -> Counters:
    """Those of a sender in this state, once everything sent has arrived."""
    duplicated = round(state["duplicated"])
    missing = state["lost"] + state["overflowed"]
    more = duplicated - missing
    return Counters(
        offered=state["offered"],
        offered_bytes=state["offered_bytes"],
        delivered=state["offered"] + more,
        delivered_bytes=state["offered_bytes"] + FULL_FRAME * more,
        lost=state["lost"],
        overflowed=state["overflowed"],
        duplicated=duplicated,
        corrupted=state["corrupted"],
        reordered=round(state["reordered"]),
    )
