"""Both directions of the link below a TCP connection, in the quantities that `netem.tcp.sender` and `netem.tcp.flow`
use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from netem.jitter import quantile
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile

SEGMENT = 1448
"""Bytes of a message in a full packet: 1500 less the headers of IP and TCP and TCP's timestamps (RFC 7323)."""


def is_lossy(forward: LinkProfile, backward: LinkProfile) -> bool:
    for profile in (forward, backward):
        if profile.mean_loss or profile.corrupt:
            return True
    return False


def is_random(forward: LinkProfile, backward: LinkProfile) -> bool:
    """Whether the times of a connection over this link are random."""
    return bool(forward.jitter or backward.jitter) or is_lossy(forward, backward)


class Path:
    """Both directions of the link, in the quantities that a round needs."""

    def __init__(self, forward: LinkProfile, backward: LinkProfile, random: Random) -> None:
        if backward.rate:
            acknowledgement = 8 * (FULL_FRAME - SEGMENT) / backward.rate
        else:
            acknowledgement = 0.0
        self._forward = forward
        self._back = backward
        self._random = random.random
        self.latency = forward.latency
        self.jitter = forward.jitter
        self.wavers = bool(forward.jitter or backward.jitter)
        self.byte = 0.0  # s
        if forward.rate:
            self.byte = 8 * (1 + forward.duplicate) / forward.rate
        self.pace = max(FULL_FRAME * self.byte, acknowledgement / 2)  # s per packet
        self.round_trip = forward.latency + backward.latency + acknowledgement
        self.buffer = math.inf  # packets
        limit = forward.buffer_limit
        if limit is not None:
            self.buffer = limit / FULL_FRAME
        lossy = is_lossy(forward, backward)
        self.losses = LossProcess(forward, random) if lossy else None
        self.acknowledgements = LossProcess(backward, random) if lossy else None
        self.corrupt = forward.corrupt
        self.duplicate = forward.duplicate
        self.reorder = forward.reorder
        self.odd = bool(forward.duplicate or forward.reorder)
        self._share = 0.0
        total = forward.mean_loss + forward.corrupt - forward.mean_loss * forward.corrupt
        if total:
            self._share = forward.corrupt * (1 - forward.mean_loss) / total

    def late(self, packets: int) -> float:
        """The largest jitter (s, may be negative) in a burst of ``packets``."""
        if self.pace:
            together = 1 + int(2 * self.jitter / self.pace)
            packets = min(packets, together)
        return _largest_jitter(self._forward, packets, self._random())

    def way_back(self) -> float:
        """Seconds from a packet's arrival until its acknowledgement is back."""
        back = self._back
        if back.jitter:
            extra = _largest_jitter(back, 1, self._random())
        else:
            extra = 0.0
        return self.round_trip - self.latency + extra

    def reaches(self) -> tuple[bool, bool]:
        """Draw whether a single packet arrives, and whether its acknowledgement does."""
        assert self.losses is not None
        assert self.acknowledgements is not None
        arrives = not self.losses.draw(1)
        return arrives, arrives and not self.acknowledgements.draw(1)

    def hears(self, beats: int) -> bool:
        """Draw whether one of so many beats of the peer arrives. Their acknowledgements go the other way."""
        if self.losses is None or self.acknowledgements is None:
            return beats > 0
        self.losses.draw(beats)
        lost = self.acknowledgements.draw(beats)
        return len(lost) < beats

    def is_corrupt(self) -> bool:
        """Draw whether a packet that TCP misses was delivered, but corrupt."""
        return self._random() < self._share


class LossProcess:
    """Draws the packets that TCP misses: a Gilbert–Elliott chain, or one state of it, that jumps from loss to loss."""

    def __init__(self, profile: LinkProfile, random: Random) -> None:
        chain = profile.loss
        if not isinstance(chain, GilbertElliott):
            chain = GilbertElliott(p=0.0, r=1.0, loss_good=chain)
        sound = 1 - profile.corrupt
        good = 1 - (1 - chain.loss_good) * sound
        bad = 1 - (1 - chain.loss_bad) * sound
        # For the good and the bad state: the probabilities, per packet, of a loss and of leaving the state.
        self._states = ((good, chain.p), (bad, chain.r))
        self._random = random.random
        self._bad = random.random() < chain.bad_fraction
        self._stay = self._draw_stay()
        self.clear = self._next()  # packets before the next lost one

    def _draw_stay(self) -> float:
        """Number of packets until the chain leaves its state."""
        _, leaving = self._states[self._bad]
        return self._geometric(leaving) + 1

    def draw(self, count: int) -> Sequence[int]:
        """The indices of the lost ones among the next ``count`` packets."""
        gap = self.clear
        if gap >= count:
            self.clear = gap - count
            return ()
        lost = []
        while gap < count:
            lost.append(int(gap))
            gap += 1 + self._next()
        self.clear = gap - count
        return lost

    def _next(self) -> float:
        passed = 0.0
        while True:
            loss, _ = self._states[self._bad]
            ahead = self._geometric(loss)
            if ahead < self._stay:
                self._stay -= ahead + 1
                return passed + ahead
            if self._stay == math.inf:
                return math.inf
            passed += self._stay
            self._bad = not self._bad
            self._stay = self._draw_stay()

    def _geometric(self, chance: float) -> float:
        """Number of failed trials before the first success."""
        if chance >= 1:
            return 0
        if chance > 0:
            uniform = 1 - self._random()
            return int(math.log(uniform) / math.log1p(-chance))
        return math.inf


def _largest_jitter(profile: LinkProfile, packets: int, draw: float) -> float:
    """The largest of ``packets`` jitters. Its distribution function is that of one jitter to the power ``packets``."""
    share = max(draw, 1e-12) ** (1 / packets)
    jitter = profile.jitter * quantile(profile.distribution, share)
    return max(jitter, -profile.latency)
