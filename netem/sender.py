"""What Linux' TCP sends when: windows, timers and their reactions to losses, a round trip at a time.

`netem.flow` tells the sources of the rules. Windows and counts are packets, times seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from netem.path import Path
from netem.profile import FULL_FRAME

INITIAL_WINDOW = 10
MAX_WINDOW = 1950
"""Packets on their way at most, as measured: a send buffer of 4 MiB (tcp_wmem, tcp(7)), a third of it not data."""

BETA = 0.7
C = 0.4
HYSTART_WINDOW = 16
HYSTART_SAMPLES = 8
HYSTART_GAP = 0.002  # s between the acknowledgements of one train
LEAST_TIMEOUT = 0.2  # s beside the round trip, TCP_RTO_MIN
LONGEST_TIMEOUT = 120.0  # s, TCP_RTO_MAX
PROBE_MARGIN = 0.008  # s, two ticks of a kernel that has 250 a second


class Sender:
    """What TCP knows and decides. `vars` of it are the whole state, numbers only, and quick to copy."""

    def __init__(self, round_trip: float) -> None:
        self.window = float(INITIAL_WINDOW)
        self.threshold = math.inf  # of slow start
        self.peak = 0.0  # the window before the last loss
        self.epoch = -math.inf  # when CUBIC's curve began; at minus infinity it has to begin anew
        self.origin = self.inflection = 0.0  # the curve's W_max and K
        self.reno = 0.0  # the window that Reno would have
        self.found = False  # HyStart has ended slow start
        self.least = math.inf  # shortest round trip seen
        self.srtt = self.first_rtt = round_trip  # of the latest packet, of the first of this round
        self.backoff = 1
        self.start = self.next = -math.inf  # of this round; of the next, when the first acknowledgement is there
        self.limit = INITIAL_WINDOW  # of this round
        self.used = 0
        self.train = 0  # packets whose acknowledgements let this round go, one after the other
        self.pressed = False  # whether more was waiting when this round began
        self.lossy = self.recovering = self.probing = False
        self.sent = self.recover = 0  # packets so far; those before `recover` are lost together
        self.released = -math.inf  # when the latest packet was let go
        self.free = -math.inf  # end of the link's queue
        self.arrived = -math.inf  # latest arrival
        self.offered = self.offered_bytes = self.lost = self.overflowed = self.corrupted = 0
        self.duplicated = self.reordered = 0.0

    @property
    def timeout(self) -> float:
        return min((self.srtt + LEAST_TIMEOUT) * self.backoff, LONGEST_TIMEOUT)

    def probe_timeout(self, outstanding: int) -> float:
        """A lone packet's acknowledgement may be delayed, so it is given longer."""
        return min(2 * self.srtt + (PROBE_MARGIN if outstanding > 1 else LEAST_TIMEOUT), self.timeout)

    def open(self, now: float, path: Path) -> tuple[float, int]:
        """When packets written at ``now`` can be let go, and how many of them then."""
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
        self.used = 0
        self.start = start
        self.limit = room = 1 if self.probing else min(int(self.window), MAX_WINDOW)
        self.probing = False
        return start, room

    def let_go(self, start: float, begin: float, finish: float, count: int, path: Path) -> None:
        """Packets were let go at ``start`` and leave from ``begin`` to ``finish``."""
        pace = path.pace
        if self.used == 0:
            first = begin + pace + path.latency
            if path.jitter:
                first += path.late(1)
                first = max(first, self.arrived)
            self.next = first + path.way_back()
            self.first_rtt = rtt = self.next - start
            if rtt < self.least:
                self.least = rtt
        room = self.limit - self.used
        if count > room:  # the window moves with the packets
            self.released = self.next = start + count * pace
            self.used = self.limit
        else:
            self.released = start + min(count, max(0, self.train - self.used)) * pace
            self.used += count
        self.sent += count
        self.free = finish
        at = finish + path.latency
        if path.jitter:
            at += path.late(count)
        if at > self.arrived:
            self.arrived = at
        self.srtt = max(finish - self.released, 0.0) + path.round_trip

    def idle(self, now: float, pace: float) -> None:
        """Nothing was sent for longer than a timeout: the window is halved for each."""
        self._acknowledge(self.next, pace)
        self.used = 0
        self.threshold = max(self.threshold, 0.75 * self.window)
        idle = now - self.released - self.timeout
        while idle > 0 and self.window > INITIAL_WINDOW:
            self.window = max(self.window // 2, INITIAL_WINDOW)
            idle -= self.timeout
        self.epoch += now - self.released
        self.next = self.start = -math.inf  # nothing is under way

    def _acknowledge(self, now: float, pace: float) -> None:
        """The packets of the round that ends are acknowledged."""
        grows = not self.lossy and (not self.recovering or self.window < self.threshold)
        self.recovering, self.lossy = self.lossy, False
        acknowledged = self.used
        if not grows or not acknowledged:
            return
        limited = self.pressed or acknowledged >= self.limit
        if self.window < self.threshold:
            if not limited and 2 * acknowledged < self.window:
                return
            if not self.found:
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
        if late > min(max(self.least / 8, 0.004), 0.016):
            self.threshold = max(self.window + min(HYSTART_SAMPLES, acknowledged), HYSTART_WINDOW)
            self.found = True
        elif 0 < 2 * pace <= HYSTART_GAP and acknowledged * pace > self.least / 2:
            self.threshold = max(self.window + self.least / 2 / pace, HYSTART_WINDOW)
            self.found = True

    def _growth(self, acknowledged: int, now: float) -> float:
        """By how much CUBIC's window grows."""
        window = self.window
        if self.epoch == -math.inf:
            self.epoch, self.reno = now, window
            self.origin = max(self.peak, window)
            self.inflection = ((self.origin - window) / C) ** (1 / 3)
        share = min(acknowledged / window, 1.0)
        curve = self.origin + C * (now - self.epoch + self.least - self.inflection) ** 3
        self.reno += acknowledged / window * 3 * (1 - BETA) / (1 + BETA)
        growth = max(max(int(curve), int(self.reno)) - int(window), 0) * share
        if not self.peak:
            growth = max(growth, acknowledged / 20)
        return min(growth, acknowledged / 2)

    def steady(self, packets: int, start: float, begin: float, path: Path) -> bool:
        """Whether so many packets keep the link full without a loss; if so, the window has grown as in that time."""
        if path.losses or not path.pace or self.window < self.threshold or self.used:
            return False
        if self.limit * path.pace < path.round_trip or self.recovering or self.lossy:
            return False
        state = self.epoch, self.origin, self.inflection, self.reno
        self._growth(0, start)  # begins the curve
        grown = min(self.window + self._growth(packets, start + packets * path.pace), MAX_WINDOW)
        if (begin - start) / path.pace + grown - self.window > path.buffer:
            self.epoch, self.origin, self.inflection, self.reno = state
            return False
        self.window = max(grown, self.window)
        return True

    def overflow(self, queue: float, count: int, path: Path) -> int:
        """How many of the packets find the buffer full, ``queue`` s of which are taken."""
        excess = queue / path.pace + count - max(0, self.train - self.used) - path.buffer
        return 0 if excess < 1 else min(int(excess), count if queue else count - 1)

    def miss(self, lost: Sequence[int], dropped: int, count: int, more: bool, path: Path) -> None:
        """Some of the ``count`` packets just let go did not arrive; ``more``: further ones follow them."""
        first = lost[0] if lost else count - dropped
        everything = len(lost) + dropped == count == self.used
        at_the_end = dropped > 0 or lost[-1] == count - 1
        retransmitted = self.recovering
        if self.sent - count + first >= self.recover:
            if self.window < self.threshold and not self.recovering:
                self.window += first
            self.recover = self.sent - count + first + max(int(self.window), 1)
            self._shrink()
        self.lossy = True
        if not everything and (more or not at_the_end):
            return
        known = self.released if everything else self.free + path.latency + path.way_back()
        if retransmitted:
            self.stall(known + self.timeout)
            self.time_out()
        else:
            self.stall(known + self.probe_timeout(len(lost) + dropped))

    def _shrink(self) -> None:
        self.peak = self.window * (1 + BETA) / 2 if self.window < self.peak else self.window
        self.threshold = self.window = max(BETA * self.window, 2.0)
        self.epoch = -math.inf

    def time_out(self) -> None:
        if self.backoff == 1 and self.window > 1:
            self.threshold = max(BETA * self.window, 2.0) if not self.lossy else max(self.window, 2.0)
        self.window = 1.0
        self.peak = 0.0
        self.epoch = -math.inf
        self.found = False
        self.backoff *= 2

    def stall(self, until: float) -> None:
        """Nothing is let go before ``until``, and then one packet."""
        self.next = until
        self.limit = self.used = 0
        self.probing = True

    def keep(self, packets: int, free: float) -> None:
        """Of a round that is undone these packets were sent all the same, until ``free``."""
        if packets:
            self.sent += packets
            self.offered += packets
            self.offered_bytes += packets * FULL_FRAME
            self.free = free

    def count(self, packets: int, lost: Sequence[int], dropped: int, path: Path) -> None:
        """Add to the counters; what arrives ends the backing off."""
        if len(lost) + dropped < packets:
            self.backoff = 1
        self.offered += packets
        self.offered_bytes += packets * FULL_FRAME
        if lost or dropped:
            corrupted = sum(path.is_corrupt() for _ in lost) if path.corrupt else 0
            self.corrupted += corrupted
            self.lost += len(lost) - corrupted
            self.overflowed += dropped
        if path.odd:
            self.duplicated += packets * path.duplicate
            self.reordered += packets * path.reorder
