"""Model of the Linux TCP sender: windows, timers and reactions to losses, one round trip at a time.

`netem.tcp.flow` names the sources of the rules. Windows and counts are in packets, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from netem.profile import FULL_FRAME
from netem.tcp.path import Path

INITIAL_WINDOW = 10
MAX_WINDOW = 1950
"""Maximum number of packets in flight, as measured: a send buffer of 4 MiB (tcp_wmem, tcp(7)), a third overhead."""

BETA = 0.7
C = 0.4
HYSTART_WINDOW = 16
HYSTART_SAMPLES = 8
HYSTART_GAP = 0.002  # s between the acknowledgements of one train
DUPLICATES = 3  # acknowledgements of later packets that reveal a loss immediately
QUICK = 16  # TCP_MAX_QUICKACKS
LEAST_TIMEOUT = 0.2  # s in addition to the round trip, TCP_RTO_MIN
LONGEST_TIMEOUT = 120.0  # s, TCP_RTO_MAX
GIVE_UP = 2**15  # times the first timeout, tcp_retries2
PROBE_MARGIN = 0.008  # s, two ticks of a kernel with 250 ticks a second

SETUP_ROUND_TRIPS = 5.0
"""Round trips from connect to the first byte of a message: TCP 1, the greetings of ZMTP 2, because libzmq sends them
in pieces (RFC 23 of ZeroMQ), hello and welcome, initiate and ready of CURVE 2 (RFC 26 of ZeroMQ)."""

COUNTED = ("offered", "offered_bytes", "lost", "overflowed", "duplicated", "corrupted", "reordered")
KEPT = (*COUNTED, "sent", "released", "written", "free", "arrived")  # when a new connection starts


@dataclass(frozen=True)
class Beats:
    """Small packets of an application that has sent nothing for three quarters of ``period`` seconds. It looks for that
    twice in a period, at ``phase`` seconds from its start on."""

    period: float = math.inf
    phase: float = 0.0

    def after(self, sent: float) -> float:
        """When the beat leaves that follows what was written at ``sent``."""
        if self.period == math.inf:
            return math.inf
        step = self.period / 2
        idle = sent + 0.75 * self.period
        steps = math.ceil((idle - self.phase) / step)
        return self.phase + steps * step


class Sender:
    """State and decisions of TCP. `vars` of it is the whole state: only numbers, and fast to copy."""

    def __init__(self, round_trip: float) -> None:
        self.window = float(INITIAL_WINDOW)
        self.threshold = math.inf  # of slow start
        self.peak = 0.0  # the window before the last loss
        self.epoch = -math.inf  # when CUBIC's curve started; minus infinity: it restarts
        self.origin = 0.0  # the curve's W_max
        self.inflection = 0.0  # the curve's K
        self.reno = 0.0  # window of Reno in the same situation
        self.left_slow_start = False  # by HyStart
        self.least = math.inf  # shortest round trip seen
        self.srtt = round_trip  # of the latest packet
        self.first_rtt = round_trip  # of this round's first packet
        self.backoff = 1
        self.start = -math.inf  # of this round
        self.next = -math.inf  # start of the next round, at this round's first acknowledgement
        self.limit = INITIAL_WINDOW  # of this round
        self.used = 0
        self.train = 0  # packets: their acknowledgements release this round, one after the other
        self.clock: tuple[float, ...] = ()  # arrival times of those acknowledgements, if delays vary
        self.acks: tuple[float, ...] = ()  # the same for this round's
        self.back = -math.inf  # latest acknowledgement, if delays vary
        self.pressed = False  # whether more packets were waiting when this round started
        self.lossy = False
        self.recovering = False
        self.probing = False
        self.unheard = 0  # packets of the latest round that arrived, but are acknowledged only with the next round
        self.pending = 0  # how many of them the receiver has not acknowledged yet
        self.quick = QUICK  # packets that the receiver will acknowledge one by one
        self.repairs = 0  # packets that were lost at the end of a round and are to be sent again
        self.repair = 0  # how many of them the latest round may send
        self.sent = 0  # packets so far
        self.recover = 0  # losses before this number of packets count as one
        self.released = -math.inf  # when the latest packet was released
        self.written = -math.inf  # when the send buffer took the end of the latest message
        self.free = -math.inf  # end of the link's queue
        self.arrived = -math.inf  # latest arrival
        self.offered = 0
        self.offered_bytes = 0
        self.lost = 0
        self.overflowed = 0
        self.corrupted = 0
        self.duplicated = 0.0
        self.reordered = 0.0

    def reconnect(self, round_trip: float) -> None:
        """Start a new connection over the same link."""
        kept = {name: getattr(self, name) for name in KEPT}
        fresh = Sender(round_trip)
        vars(self).update(vars(fresh))
        vars(self).update(kept)

    @property
    def timeout(self) -> float:
        first = self.srtt + LEAST_TIMEOUT
        return min(first * self.backoff, LONGEST_TIMEOUT)

    def probe_timeout(self, outstanding: int) -> float:
        """Timeout of the probe (TLP); longer for a single packet, because its acknowledgement may be delayed."""
        margin = PROBE_MARGIN if outstanding > 1 else LEAST_TIMEOUT
        return min(2 * self.srtt + margin, self.timeout)

    def open(self, now: float, path: Path) -> tuple[float, int]:
        """When packets written at ``now`` can be released, and how many of them."""
        start = now if now > self.start else self.start
        room = self.limit - self.used
        if room > 0 and start < self.next:
            return start, room
        clocked = now <= self.next
        start = self.next if clocked else now
        full = self.used >= self.limit
        self._acknowledge(start, path.pace)
        self.pressed = clocked and full
        self.train = self.used if clocked else 0
        self.clock = self.acks if self.train else ()
        self.acks = ()
        self.used = 0
        self.start = start
        if self.probing:
            room = 1
        else:
            room = min(int(self.window), MAX_WINDOW)
            if clocked:
                room -= self.unheard
            room = max(room, 1)
        self.unheard = 0
        if self.repairs > 0 and not self.probing:
            self.repair *= 2
            room = min(self.repair, room)
        self.limit = room
        self.probing = False
        return start, room

    def let_go(
        self,
        start: float,
        begin: float,
        count: int,
        dropped: int,
        short: float,
        path: Path,
    ) -> None:
        """Release packets at ``start``; all but the dropped ones leave from ``begin`` on. The last one takes
        ``short`` s less than a full one."""
        room = self.limit - self.used
        self.sent += count
        self.repairs -= count
        if path.wavers and count <= room:
            self._one_by_one(start, count - dropped, short, path)
            self.used += count
            return
        pace = path.pace
        finish = begin + (count - dropped) * pace - short
        if self.used == 0:
            first = begin + pace + path.latency
            if path.jitter:
                first = max(first + path.late(1), self.arrived)
            self.next = first + path.way_back()
            self.first_rtt = self.next - start
            if self.first_rtt < self.least:
                self.least = self.first_rtt
        if count > room:  # the window moves with the packets
            self.released = start + count * pace
            self.next = self.released
            self.used = self.limit
        else:
            clocked = min(count, max(0, self.train - self.used))
            self.released = start + clocked * pace
            self.used += count
        self.free = finish
        at = finish + path.latency
        if path.jitter:
            at += path.late(count)
        if at > self.arrived:
            self.arrived = at
        self.srtt = max(finish - self.released, 0.0) + path.round_trip

    def _one_by_one(
        self,
        start: float,
        count: int,
        short: float,
        path: Path,
    ) -> None:
        """Release packets one by one, for delays that vary: each packet and acknowledgement waits for its predecessors.
        A late acknowledgement delays the packets that it releases, and these may wait again."""
        pace = path.pace
        latency = path.latency
        clock = self.clock
        acks = list(self.acks)
        free = self.free
        arrived = self.arrived
        back = self.back
        samples = []
        release = start
        for number in range(1, count + 1):
            if clock:
                share = (self.used + number) * len(clock)
                releasing = -(-share // self.limit)  # rounded up
                due = clock[min(releasing, len(clock)) - 1]
                release = due if due > start else start
            free = (free if free > release else release) + pace
            if number == count:
                free -= short
            at = free + latency + path.late(1)
            if at > arrived:
                arrived = at
            if number % 2 == 0 or number == count:
                at = arrived + path.way_back()
                if at > back:
                    back = at
                acks += [back] * (2 - number % 2)
                samples.append(back - release)
        if self.used == 0:
            if acks:
                self.next = acks[0]
            else:
                self.next = start + path.round_trip
        if samples:
            self.least = min(self.least, *samples)
            self.first_rtt = min(samples[:HYSTART_SAMPLES])
            self.srtt = samples[-1]
        self.acks = tuple(acks)
        self.released = release
        self.free = free
        self.arrived = arrived
        self.back = back

    def idle(self, now: float, pace: float, beats: Beats) -> None:
        """Halve the window for each timeout during which nothing was sent, not even a beat."""
        self._acknowledge(self.next, pace)
        self.used = 0
        sent = self.released
        written = self.written
        while sent < now and self.window > INITIAL_WINDOW:
            written = min(beats.after(written), now)
            halvings = math.ceil((written - sent) / self.timeout) - 1
            if halvings > 0:
                halved = math.ldexp(self.window, -halvings) // 1
                self.threshold = max(self.threshold, 0.75 * self.window)
                self.window = max(halved, INITIAL_WINDOW)
            sent = max(sent, written)
        self.epoch += now - self.released
        self.quick = QUICK
        self.pending = 0
        self.start = -math.inf  # nothing is in flight
        self.next = -math.inf

    def _acknowledge(self, now: float, pace: float) -> None:
        """Acknowledge the packets of the round that ends."""
        slow_start = self.window < self.threshold
        grows = not self.lossy and (not self.recovering or slow_start)
        self.recovering = self.lossy
        self.lossy = False
        acknowledged = self.used
        if not grows or not acknowledged:
            return
        limited = self.pressed or acknowledged >= self.limit
        if slow_start:
            if not limited and 2 * acknowledged < self.window:
                return
            if not self.left_slow_start:
                self._leave_slow_start(acknowledged, pace)
            grown = self.window + acknowledged
            self.window = min(grown, self.threshold)
            acknowledged = int(grown - self.window)
        elif not limited:
            return
        if acknowledged and self.window < MAX_WINDOW:
            self.window += self._growth(acknowledged, now)

    def _leave_slow_start(self, acknowledged: int, pace: float) -> None:
        """HyStart: set the threshold if this round fills the link."""
        if self.window + acknowledged < HYSTART_WINDOW:
            return
        late = self.first_rtt - self.least
        tolerated = min(max(self.least / 8, 0.004), 0.016)
        if late > tolerated:
            samples = min(HYSTART_SAMPLES, acknowledged)
            self.threshold = max(self.window + samples, HYSTART_WINDOW)
            self.left_slow_start = True
            return
        close = 0 < 2 * pace <= HYSTART_GAP
        if close and self._train(acknowledged, pace) > self.least / 2:
            half_round_trip = self.least / 2 / pace  # packets
            self.threshold = max(self.window + half_round_trip, HYSTART_WINDOW)
            self.left_slow_start = True

    def _train(self, acknowledged: int, pace: float) -> float:
        """Duration (s) of the unbroken train of acknowledgements from the first one."""
        if not self.acks:
            return acknowledged * pace
        first = self.acks[0]
        pairs = zip(self.acks, self.acks[1:], strict=False)
        for before, after in pairs:
            if after - before > HYSTART_GAP:
                return before - first
        return self.acks[-1] - first

    def _growth(self, acknowledged: int, now: float) -> float:
        """Growth of CUBIC's window in packets."""
        window = self.window
        if self.epoch == -math.inf:
            self.epoch = now
            self.reno = window
            self.origin = max(self.peak, window)
            self.inflection = ((self.origin - window) / C) ** (1 / 3)
        ahead = C * (now - self.epoch + self.least - self.inflection) ** 3
        # Whole packets from W_max.
        if ahead < 0:
            curve = math.ceil(self.origin + ahead)
        else:
            curve = int(self.origin + ahead)
        self.reno += acknowledged / window * 3 * (1 - BETA) / (1 + BETA)
        target = max(curve, int(self.reno))
        if self.peak:
            growth = climb(window, target, acknowledged)
        else:
            distance = max(target - int(window), 0)
            growth = distance * min(acknowledged / window, 1.0)
            growth = max(growth, acknowledged / 20)
        return min(growth, acknowledged / 2)

    def steady(
        self,
        packets: int,
        start: float,
        begin: float,
        path: Path,
    ) -> bool:
        """Whether ``packets`` packets keep the link full without a loss; if so, grow the window as in that time."""
        if path.losses or not path.pace:
            return False
        if self.window < self.threshold or self.used:
            return False
        if self.limit * path.pace < path.round_trip or self.recovering or self.lossy:
            return False
        curve = (self.epoch, self.origin, self.inflection, self.reno)
        self._growth(0, start)  # starts the curve
        end = start + packets * path.pace
        grown = min(self.window + self._growth(packets, end), MAX_WINDOW)
        queue = (begin - start) / path.pace + grown - self.window
        if queue > path.buffer:
            self.epoch, self.origin, self.inflection, self.reno = curve
            return False
        self.window = max(grown, self.window)
        return True

    def overflow(self, queue: float, count: int, path: Path) -> int:
        """Number of packets that find the buffer full when ``queue`` s of it are occupied."""
        clocked = max(0, self.train - self.used)
        excess = queue / path.pace + count - clocked - path.buffer
        if excess < 1:
            return 0
        most = count if queue else count - 1
        return min(int(excess), most)

    def miss(
        self,
        lost: Sequence[int],
        dropped: int,
        count: int,
        more: bool,
        path: Path,
    ) -> None:
        """React to losses among the ``count`` packets just released; ``more``: further packets follow."""
        missing = len(lost) + dropped
        first = lost[0] if lost else count - dropped
        first_number = self.sent - count + first
        everything = missing == count == self.used
        at_the_end = dropped > 0 or lost[-1] == count - 1
        retransmitted = self.recovering
        if first_number >= self.recover and not (everything and retransmitted):
            if self.window < self.threshold and not self.recovering:
                self.window += first
            # What is sent until the loss is detected is lost with it.
            if more:
                self.recover = first_number + max(int(self.window), 1)
            else:
                self.recover = self.sent
            self.shrink()
        self.lossy = True
        if not everything and not at_the_end:
            if not more:
                self.limit = self.used  # the remaining packets wait until the loss is detected
                place = self.used - count + first
                behind = count - first - 1
                self.next = max(self.next, self._known(place, behind, path.pace))
            return
        if not everything and more:
            return
        if everything:
            known = self.released
        else:
            known = self.free + path.latency + path.way_back()
        if retransmitted:
            self.stall(known + self.timeout)
            self.time_out()
        else:
            self.stall(known + self.probe_timeout(missing))
            self.repairs = missing
            self.repair = 1

    def _known(self, place: int, behind: int, pace: float) -> float:
        """When the sender detects the loss of packet ``place`` of the round, which ``behind`` packets follow: at their
        third acknowledgement, or a quarter of a round trip after the first."""
        second = self._acknowledged_at(place + 1, pace)
        waited = second + self.least / 4
        if behind < DUPLICATES:
            return waited
        third = self._acknowledged_at(place + DUPLICATES, pace)
        return min(waited, third)

    def _acknowledged_at(self, place: int, pace: float) -> float:
        """When packet ``place`` of the round is acknowledged."""
        if self.acks:
            last = len(self.acks) - 1
            return self.acks[min(place, last)]
        return self.next + place * pace

    def shrink(self) -> None:
        window = int(self.window)  # Linux counts whole packets, and rounds down
        if window < self.peak:
            self.peak = int(window * (1 + BETA) / 2)
        else:
            self.peak = window
        self.window = max(int(BETA * window), 2.0)
        self.threshold = self.window
        self.epoch = -math.inf

    def time_out(self) -> None:
        if self.backoff == 1 and self.window > 1:
            if self.lossy:
                self.threshold = max(self.window, 2.0)
            else:
                self.threshold = max(BETA * self.window, 2.0)
        self.window = 1.0
        self.peak = 0.0
        self.epoch = -math.inf
        self.left_slow_start = False
        self.backoff *= 2

    def stall(self, until: float) -> None:
        """Release nothing before ``until``, and then one packet."""
        self.next = until
        self.limit = 0
        self.used = 0
        self.probing = True

    def count(
        self,
        packets: int,
        lost: Sequence[int],
        dropped: int,
        path: Path,
    ) -> None:
        """Update the counters; an arrival ends the backoff."""
        if len(lost) + dropped < packets:
            self.backoff = 1
        self.offered += packets
        self.offered_bytes += packets * FULL_FRAME
        if lost or dropped:
            corrupted = 0
            if path.corrupt:
                corrupted = sum(path.is_corrupt() for _ in lost)
            self.corrupted += corrupted
            self.lost += len(lost) - corrupted
            self.overflowed += dropped
        if path.odd:
            self.duplicated += packets * path.duplicate
            self.reordered += packets * path.reorder


def climb(window: float, target: int, acknowledged: int) -> float:
    """Growth of a window towards a target by so many acknowledged packets, at most a window of them. A window grows by
    one for each window / distance of them. The distance counts whole packets (Linux, tcp_cubic.c, bictcp_update)."""
    whole = int(window)
    left = float(min(acknowledged, window))
    grown = 0.0
    while left > 0 and whole < target:
        needed = max(whole // (target - whole), 2)
        grown += min(left / needed, 1.0)
        left -= needed
        whole += 1
    return grown


def lost_at_end(lost: Sequence[int], dropped: int, count: int) -> int:
    """The number of packets lost at the end of a round of ``count``: ``dropped`` ones, and those just before them."""
    last = dropped
    for place in reversed(lost):
        if place != count - 1 - last:
            break
        last += 1
    return last
