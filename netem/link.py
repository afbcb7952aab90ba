"""One direction between two nodes, as the switch keeps it."""

from __future__ import annotations

from dataclasses import asdict
from random import Random

from netem.impair import Impairment
from netem.losses import AskedLosses
from netem.port import Port
from netem.profile import FULL_FRAME, LinkProfile

PIECE_SECONDS = 0.001


class Link:
    """One direction between two nodes.

    `segments` is how many segments of a super-packet travel as one. Where single packets are lost, damaged, doubled or
    overtaken it is 1. Under a rate it is what the link sends in a millisecond, so that a 64 KiB super-packet neither
    overflows a short buffer nor arrives in one go (as CAKE and TBF split; TCP itself paces in bursts of a
    millisecond). None means that super-packets stay whole.
    """

    __slots__ = ("asked", "cut", "cut_dropped", "epoch", "impairment", "port", "random", "segments")

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self.impairment = Impairment(profile, seed)
        self.asked = AskedLosses(profile)
        self.random = Random(seed)
        self.port: Port | None = None  # where it leads; None while the target is not attached
        self.segments = segments_together(profile)
        self.cut = False
        self.epoch = 0  # counts the cuts: a packet in flight belongs to the epoch in which it set out
        self.cut_dropped = 0

    def change(self, profile: LinkProfile, now: float) -> dict[float, float]:
        """Another profile from `now` on; what becomes of times of delivery, see Impairment.change."""
        self.asked.change(self.impairment.counters.offered, profile)
        self.segments = segments_together(profile)
        return self.impairment.change(profile, now)

    def counted(self) -> dict[str, int | float]:
        """The Impairment's counters, and beside them:

        cut_dropped     packets offered while cut, and packets in flight at a cut, which the Impairment had counted as
                        delivered
        drawn           packets that could be lost
        asked_lost, asked_variance   how many of them were to be lost, see netem.losses
        """
        counters = self.impairment.counters
        asked, variance = self.asked.of(counters.offered)
        return {
            **asdict(counters),
            "cut_dropped": self.cut_dropped,
            "drawn": counters.offered,
            "asked_lost": asked,
            "asked_variance": variance,
        }


def segments_together(profile: LinkProfile) -> int | None:
    """How many segments of a super-packet may cross a link of this profile as one packet; None: all of them."""
    if profile.needs_packet_truth:
        return 1
    if profile.rate is None:
        return None
    return max(1, int(profile.rate * PIECE_SECONDS / (8 * FULL_FRAME)))
