"""The switch's state of one direction between two nodes."""

from __future__ import annotations

from dataclasses import asdict
from random import Random

from netem.impair import Impairment
from netem.measurement.losses import AskedLosses
from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.port import Port, Remote

PIECE_SECONDS = 0.001


class Link:
    """One direction between two nodes.

    `segments` is the maximum number of segments of a super-packet that cross as one packet. It is 1 if the profile acts
    on single packets (loss, corruption, duplication, reordering). With a rate it is the number that the link sends in a
    millisecond, so that a 64 KiB super-packet neither overflows a short buffer nor arrives all at once (CAKE and TBF
    also split; TCP itself paces in bursts of a millisecond). None: super-packets stay whole.
    """

    __slots__ = ("asked", "cut", "cut_dropped", "epoch", "impairment", "port", "random", "segments")

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self.impairment = Impairment(profile, seed)
        self.asked = AskedLosses(profile)
        self.random = Random(seed)
        self.port: Port | Remote | None = None  # the way to the target; None while it is not attached
        self.segments = segments_together(profile)
        self.cut = False
        self.epoch = 0  # number of cuts so far; a packet in flight belongs to the epoch in which it entered the link
        self.cut_dropped = 0  # packets in flight at a cut, and offered during one

    def stop(self, now: float) -> None:
        """Cut the link: the packets in flight are lost."""
        self.cut = True
        self.epoch += 1
        self.cut_dropped += self.impairment.cut(now)

    def change(self, profile: LinkProfile, now: float) -> dict[float, float]:
        """Apply another profile from `now` on. Returns the changed delivery times, see `Impairment.change`."""
        self.asked.change(self.impairment.counters.offered, profile)
        self.segments = segments_together(profile)
        return self.impairment.change(profile, now)

    def counted(self, now: float) -> dict[str, int | float]:
        """The counters of the Impairment, and these:

        cut_dropped     packets offered during a cut, and packets in flight at a cut; only the latter count as offered
        drawn           packets that could be lost
        asked_lost, asked_variance   mean and variance of the losses asked for among them, see netem.measurement.losses
        """
        counters = self.impairment.counted(now)
        asked, variance = self.asked.of(counters.offered)
        return {
            **asdict(counters),
            "cut_dropped": self.cut_dropped,
            "drawn": counters.offered,
            "asked_lost": asked,
            "asked_variance": variance,
        }


def segments_together(profile: LinkProfile) -> int | None:
    """Maximum number of segments of a super-packet that cross a link of this profile as one packet; None: all."""
    if profile.needs_packet_truth:
        return 1
    if profile.rate is None:
        return None
    return max(1, int(profile.rate * PIECE_SECONDS / (8 * FULL_FRAME)))
