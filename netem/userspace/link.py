"""The switch's state of one direction between two nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from operator import attrgetter
from random import Random

from netem.impair import Counters, Impairment
from netem.measurement.losses import AskedLosses
from netem.media.profile import Crossing
from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.port import Port, Remote

PIECE_SECONDS = 0.001
COUNTED = tuple(field.name for field in fields(Counters))
_counted = attrgetter(*COUNTED)  # asdict() takes five times as long, and packets wait meanwhile


class Link:
    """One direction between two nodes.

    A link that crosses channels of shared media has two Impairments in series. `impairment` has the steps before the
    channels, up to the link's own rate, and `propagation` has the rest; see `netem.impair`. Any other link has one.

    `segments` is the maximum number of segments of a super-packet that cross as one packet. It is 1 if the profile acts
    on single packets (loss, corruption, duplication, reordering). With a rate, or with channels, it is the number that
    the slowest of them sends in a millisecond, so that a 64 KiB super-packet neither overflows a short buffer nor
    arrives all at once (CAKE and TBF also split; TCP itself paces in bursts of a millisecond). None: super-packets stay
    whole.
    """

    def __init__(self, profile: LinkProfile, seed: int, crossings: tuple[Crossing, ...] = ()) -> None:
        self.profile = profile
        self.crossings = crossings
        before, after = halves(profile)
        self.impairment = Impairment(before if crossings else profile, seed)
        self.propagation = Impairment(after, ~seed) if crossings else None  # with random draws of its own
        self.asked = AskedLosses(profile)
        self.random = Random(seed)
        self.port: Port | Remote | None = None  # the way to the target; None while it is not attached
        self.segments = segments_together(profile)
        self.cut = False
        self.epoch = 0  # number of cuts so far; a packet in flight belongs to the epoch in which it entered the link
        self.cut_dropped = 0  # packets in flight at a cut, and offered during one
        self.overflowed = 0  # packets for which a channel had no room
        self.nat: Callable[[bytes, float], bool] | None = None  # whether the NAT at the inner end lets a packet pass
        self.nat_expired = 0  # packets that it did not
        # Packets offered, cut and expired, if `counted` was last called at rest.
        self.reported: tuple[int, int, int] | None = None

    def stop(self, now: float) -> None:
        """Cut the link: the packets in flight are lost."""
        self.cut = True
        self.epoch += 1
        self.cut_dropped += self.impairment.cut(now)
        if self.propagation is not None:
            self.cut_dropped += self.propagation.cut(now)

    def change(self, profile: LinkProfile, now: float) -> dict[float, float]:
        """Apply another profile from `now` on. Returns the changed delivery times of `impairment`, see its `change`."""
        self.asked.change(self.impairment.counters.offered, profile)
        self.profile = profile
        self.segments = segments_together(profile)
        if self.propagation is None:
            return self.impairment.change(profile, now)
        before, after = halves(profile)
        self.propagation.change(after, now)
        return self.impairment.change(before, now)

    @property
    def unchanged(self) -> bool:
        """Whether the counters are certainly those that were last `counted`. Unknown if the link crosses channels."""
        return self.reported == (self.impairment.counters.offered, self.cut_dropped, self.nat_expired)

    def counted(self, now: float) -> dict[str, int | float]:
        """The counters of the Impairments and the packets that channels dropped as one set of `Counters`, and these:

        cut_dropped     packets offered during a cut, and packets in flight at a cut; only the latter count as offered
        nat_expired     packets that a NAT dropped, see `netem.userspace.nat`; they do not count as offered
        drawn           packets that could be lost
        asked_lost, asked_variance   mean and variance of the losses asked for among them, see netem.measurement.losses
        """
        counters = self.impairment.counted(now)
        if self.propagation is not None:
            after = self.propagation.counted(now)
            counters = replace(
                counters,
                delivered=after.delivered,
                delivered_bytes=after.delivered_bytes,
                overflowed=counters.overflowed + self.overflowed,
                reordered=after.reordered,
            )
        asked, variance = self.asked.of(counters.offered)
        at_rest = self.propagation is None and self.impairment.at_rest
        if at_rest:
            self.reported = (counters.offered, self.cut_dropped, self.nat_expired)
        else:
            self.reported = None
        return {
            **dict(zip(COUNTED, _counted(counters), strict=True)),
            "cut_dropped": self.cut_dropped,
            "nat_expired": self.nat_expired,
            "drawn": counters.offered,
            "asked_lost": asked,
            "asked_variance": variance,
        }


def halves(profile: LinkProfile) -> tuple[LinkProfile, LinkProfile]:
    """The steps of a profile up to its rate queue, and the propagation."""
    queue = replace(profile, latency=0.0, jitter=0.0, reorder=0.0, buffer=None, buffer_bytes=profile.buffer_limit)
    names = ("latency", "jitter", "distribution", "reorder")
    return queue, LinkProfile(**{name: getattr(profile, name) for name in names})


def segments_together(profile: LinkProfile, channels: Iterable[float] = ()) -> int | None:
    """Maximum number of segments of a super-packet that cross a link of this profile as one packet; None: all.
    ``channels``: the rates (bit/s) at which the channels on the way send the link's packets."""
    if profile.needs_packet_truth:
        return 1
    if profile.rate is None:
        rates = [*channels]
    else:
        rates = [profile.rate, *channels]
    if rates:
        return max(1, int(min(rates) * PIECE_SECONDS / (8 * FULL_FRAME)))
    return None
