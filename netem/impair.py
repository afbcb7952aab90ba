"""A packet's fate on a link: whether it arrives, and when. On shared media `netem.media.channel` has a part in it.

An Impairment is one direction of one link. `offer` takes each frame and returns its deliveries. It keeps no packets,
only their sizes and times, does no I/O and never waits. Therefore the same seed gives the same fates. A frame passes
these steps, those of tc-netem(8) with a tail-drop rate queue in front of the propagation delay:

1. loss         independent (Bernoulli) or Gilbert–Elliott; the chain decides by its state, then makes one step
2. drop_above   a frame with a larger IP packet vanishes. It takes no time at the rate and no room in the buffer
3. duplicate    a second copy is made; each copy passes the following steps independently
4. corrupt      the copy is marked; the caller, which holds the bytes, flips the bit
5. rate queue   first in, first out, one frame after the other at `rate`. The frame being sent and those waiting
                occupy the buffer; a frame that does not fit is dropped (tail drop). An idle link takes any frame
6. propagation  latency plus a jitter drawn per frame, at least 0, counted from the end of step 5

**Order.** Deliveries keep the order of the queue: a frame is never delivered before its predecessor. One that waits for
its predecessor has the next floating-point number as its time, so that a change can move one and not the other. As a
consequence, jitter can only delay frames. Frames closer together than the jitter wait for the slowest frame ahead, so
the mean delay of a dense stream is above the latency and its spread is below the jitter. A frame drawn by `reorder`
leaves this order: it is delivered right after step 5, ahead of all frames in step 6. netem's reorder likewise sends a
packet immediately (tc-netem(8), reorder), but there the packet also skips the rate; here the rate always holds.

**Shared media.** A link that crosses their channels has two Impairments in series, see `netem.userspace.link`: one for
steps 1 to 5, in front of the channels, and one for step 6 behind them.

**Changes** (`Impairment.change`) have the effect of a change of the medium on a real link. Frames in step 6 are in
flight and keep their times. Frames in step 5 are not yet sent: they leave at the new rate, including the rest of the
frame being sent, and keep their drawn delay. So a slow phase of a schedule ends on time, whatever the backlog.
netem fixes a packet's time when it is enqueued (sch_netem.c, netem_enqueue). So in the kernel engine the backlog leaves
at the old rate: after a slow phase up to a buffer's worth of frames is late.

**Silence.** With `LinkProfile.silence` nothing leaves step 5 for that many seconds from the change on, and the buffer
fills. Frames in flight arrive. The frame being sent keeps what has been sent of it. A cut drops all of them.

**Jitter** has the distributions of netem's tables: "normal" with the jitter as standard deviation, "uniform" over
latency ± jitter, "pareto" as in iproute2's table: shape 3, mean 0, (4/3)(u^(-1/3) - 3/2) jitters, at most 4;
"paretonormal" mixes it with the normal one (`netem.jitter`). A negative delay becomes 0.
This cut raises the mean above the configured one, noticeably if jitter > latency / 2.

**Super-packets.** With segmentation offload a frame may stand for several packets. They share one fate: one draw in
each step and one step of the chain. The long-run fraction of lost packets stays as configured, but losses are bursts of
whole super-packets. A super-packet enters the buffer if its first segment fits; otherwise a buffer smaller than a
super-packet would never pass one. It arrives in one piece at the end of its last segment. If the profile acts on single
packets (`LinkProfile.needs_packet_truth`), the sender's offload must be off; otherwise `drop_above` compares the mean
size of the segments. Counters are in packets. A frame counts as delivered when it arrives, so no link delivers faster
than its rate.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from random import Random

from netem.jitter import quantile
from netem.profile import ETHERNET, GilbertElliott, LinkProfile

_Frame = tuple[float, int, int, float, float | None]
"""Delivery time, size, packets, end of step 4, delay (None if `reorder` was drawn)."""


@dataclass(slots=True)
class Counters:
    """Counters of one direction of a link, in packets (`_bytes`: in bytes). They never fall.

    `lost` are the packets lost at random and those that were `too_large`.

    Invariant: offered + duplicated == delivered + lost + overflowed + packets on the way or dropped by a cut.
    """

    offered: int = 0
    offered_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    lost: int = 0
    overflowed: int = 0
    duplicated: int = 0
    corrupted: int = 0
    reordered: int = 0
    too_large: int = 0


class Impairment:
    """One direction of a link with its state: the queue, the loss chain, the random draws, the counters.

    Loss has its own random stream: the same seed loses the same frames whatever the other settings are. Two runs that
    differ only in rate or delay can therefore be compared frame by frame.
    """

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self.counters = Counters()
        self._draw_loss = Random(f"{seed} loss").random
        path = Random(f"{seed} path")
        self._draw = path.random
        self._normal = path.gauss
        self._chain: GilbertElliott | None = None
        self._bad = False
        self._free_at = -math.inf
        self._last_delivery = -math.inf
        self._silent_until = -math.inf
        self._on_the_way: deque[_Frame] = deque()  # the frames that have not arrived
        self._bytes_per_second = 0.0
        self._configure(profile)

    def offer(
        self,
        now: float,
        size: int,
        packets: int = 1,
    ) -> list[tuple[float, bool]]:
        """Decide the fate of a frame of `size` bytes that enters the link at `now` (seconds, never decreasing).

        `packets` > 1: the frame is a super-packet of that many segments. Returns one (time of delivery, corrupt) per
        copy that arrives, each time at least `now`; an empty list if the frame is dropped.
        """
        counters = self.counters
        counters.offered += packets
        counters.offered_bytes += size
        if self._at_once and now >= self._last_delivery and now >= self._free_at:
            counters.delivered += packets
            counters.delivered_bytes += size
            return [(now, False)]
        if (self._loss or self._chain) and self._is_lost():
            counters.lost += packets
            return []
        if size / packets > self._largest_frame:
            counters.lost += packets
            counters.too_large += packets
            return []
        if self._duplicate and self._draw() < self._duplicate:
            counters.duplicated += packets
            first = self._pass_on(now, size, packets)
            second = self._pass_on(now, size, packets)
            return [copy for copy in (first, second) if copy is not None]
        delivery = self._pass_on(now, size, packets)
        if delivery is None:
            return []
        return [delivery]

    def change(self, profile: LinkProfile, now: float) -> dict[float, float]:
        """Continue with another profile from `now` on. Queue, order, chain state, random draws and counters stay.

        Returns the delivery times that have changed, old to new, see "Changes" above.
        """
        self._arrive(now)
        before = self._bytes_per_second
        begin_before = max(now, self._silent_until)
        begin = now + profile.silence
        self._configure(profile)
        self._silent_until = begin
        if self._free_at <= now and not profile.silence:
            return {}
        if self._bytes_per_second == before and begin == begin_before:
            return {}
        stretch = 0.0
        if self._bytes_per_second:
            stretch = before / self._bytes_per_second
        busy = max(0.0, self._free_at - begin_before)
        self._free_at = begin + busy * stretch
        waiting = self._on_the_way
        self._on_the_way = deque()
        last = -math.inf
        moved: dict[float, float] = {}
        for at, size, packets, sent, delay in waiting:
            new = at
            if sent > now:
                sent = begin + (sent - begin_before) * stretch
                new = sent + (delay or 0.0)
                if delay is not None and new < last:
                    new = math.nextafter(last, math.inf)
                moved[at] = max(new, moved.get(at, new))
            if delay is not None:
                last = new
            self._on_the_way.append((new, size, packets, sent, delay))
        self._last_delivery = last
        return moved

    def cut(self, now: float) -> int:
        """Drop all frames on the way; returns the number of their packets."""
        self._arrive(now)
        dropped = sum(packets for _, _, packets, _, _ in self._on_the_way)
        self._on_the_way.clear()
        self._free_at = self._silent_until
        self._last_delivery = -math.inf
        return dropped

    @property
    def at_rest(self) -> bool:
        """Whether no frame was on the way when the frames that have arrived were last counted."""
        return not self._on_the_way

    def counted(self, now: float) -> Counters:
        """The counters at `now`."""
        self._arrive(now)
        return self.counters

    def backlog(self, now: float) -> float:
        """Bytes in the rate queue at `now`, including the rest of the frame being sent."""
        begin = self._silent_until if self._silent_until > now else now
        return max(0.0, self._free_at - begin) * self._bytes_per_second

    def _arrive(self, now: float) -> None:
        """Count the frames that have arrived by `now`. A frame that overtook others counts with those ahead of it."""
        frames = self._on_the_way
        counters = self.counters
        while frames and frames[0][0] <= now:
            _, size, packets, _, _ = frames.popleft()
            counters.delivered += packets
            counters.delivered_bytes += size

    def _configure(self, profile: LinkProfile) -> None:
        self.profile = profile
        self._loss = 0.0
        chain = None
        if isinstance(profile.loss, GilbertElliott):
            chain = profile.loss
        else:
            self._loss = profile.loss
        if chain and not self._chain:
            # Start in the stationary distribution, so that the mean loss is as configured from the first packet on.
            self._bad = self._draw_loss() < chain.bad_fraction
        self._chain = chain
        self._duplicate = profile.duplicate
        self._corrupt = profile.corrupt
        self._reorder = profile.reorder
        self._latency = profile.latency
        self._jitter = profile.jitter
        self._distribution = profile.distribution
        self._bytes_per_second = 0.0
        self._seconds_per_byte = 0.0
        if profile.rate:
            self._bytes_per_second = profile.rate / 8
            self._seconds_per_byte = 8 / profile.rate
        self._largest_frame = math.inf
        if profile.drop_above is not None:
            self._largest_frame = profile.drop_above + ETHERNET
        self._limit = math.inf
        limit = profile.buffer_limit
        if limit is not None:
            self._limit = limit + 0.5  # half a byte absorbs the rounding of times; sizes are whole bytes
        delays = profile.latency or profile.jitter or profile.rate or profile.silence
        self._at_once = not (delays or profile.needs_packet_truth)

    def _is_lost(self) -> bool:
        draw = self._draw_loss
        chain = self._chain
        if chain is None:
            return draw() < self._loss
        if self._bad:
            lost = draw() < chain.loss_bad
            self._bad = draw() >= chain.r
        else:
            lost = draw() < chain.loss_good
            self._bad = draw() < chain.p
        return lost

    def _pass_on(
        self,
        now: float,
        size: int,
        packets: int,
    ) -> tuple[float, bool] | None:
        """Steps 4 to 6 for one copy: its delivery time and whether it is corrupt; None if the buffer is full."""
        counters = self.counters
        corrupt = self._corrupt > 0 and self._draw() < self._corrupt
        sent = self._free_at
        if sent <= now:
            sent = now
        else:
            backlog = self.backlog(now)
            if backlog and backlog + size / packets > self._limit:
                counters.overflowed += packets
                return None
        sent += size * self._seconds_per_byte
        self._free_at = sent
        if self._reorder and self._draw() < self._reorder:
            counters.reordered += packets
            at = sent
            delay = None
        else:
            delay = self._delay() if self._jitter else self._latency
            at = sent + delay
            if at < self._last_delivery:
                at = math.nextafter(self._last_delivery, math.inf)
            self._last_delivery = at
        if corrupt:
            counters.corrupted += packets
        frames = self._on_the_way
        frames.append((at, size, packets, sent, delay))
        while frames and frames[0][0] <= now:  # `_arrive` written out: a call would cost more than the rest
            _, size, packets, _, _ = frames.popleft()
            counters.delivered += packets
            counters.delivered_bytes += size
        return at, corrupt

    def _delay(self) -> float:
        if self._distribution == "normal":
            deviation = self._normal()
        else:
            deviation = quantile(self._distribution, self._draw())
        return max(0.0, self._latency + self._jitter * deviation)
