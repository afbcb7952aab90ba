"""The switch's state of one direction between two nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from random import Random

from netem.impair import Counters, Impairment
from netem.measurement.losses import AskedLosses
from netem.media.profile import Crossing
from netem.profile import LinkProfile
from netem.userspace.port import Port, Remote
from netem.userspace.segments import segments_together

COUNTED = tuple(field.name for field in fields(Counters))
_counted = attrgetter(*COUNTED)  # asdict() takes five times as long, while packets wait


class Link:
    """One direction between two nodes.

    A link that crosses channels of shared media has two Impairments in series. `impairment` has the steps before the
    channels, up to the link's own rate, and `propagation` has the rest; see `netem.impair`. Any other link has one.

    `segments` is the maximum number of segments of a super-packet that cross as one packet. It is 1 if the profile acts
    on single packets (loss, corruption, duplication, reordering). With a rate, or with channels, it is the number that
    the slowest of them sends in a millisecond, so that a 64 KiB super-packet neither overflows a short buffer nor
    arrives as one burst (CAKE and TBF also split; TCP itself paces in bursts of a millisecond). None: super-packets
    stay whole.
    """

    def __init__(
        self,
        profile: LinkProfile,
        seed: int,
        crossings: tuple[Crossing, ...] = (),
    ) -> None:
        self.profile = profile
        self.crossings = crossings
        if crossings:
            before, after = halves(profile)
            self.impairment = Impairment(before, seed)
            self.propagation: Impairment | None = Impairment(after, ~seed)  # with random draws of its own
        else:
            self.impairment = Impairment(profile, seed)
            self.propagation = None
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
        return self.reported == self._changing()

    def _changing(self) -> tuple[int, int, int]:
        return self.impairment.counters.offered, self.cut_dropped, self.nat_expired

    def counted(self, now: float) -> dict[str, int | float]:
        """The counters of the Impairments and the packets that channels dropped as one set of `Counters`, and these:

        cut_dropped     packets offered during a cut, and packets in flight at a cut; only the latter count as offered
        nat_expired     packets that a NAT dropped, see `netem.userspace.nat`; they do not count as offered
        drawn           packets that could be lost
        asked_lost, asked_variance   mean and variance of the losses configured for them, see netem.measurement.losses
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
        self.reported = None
        if self.propagation is None and self.impairment.at_rest:
            self.reported = (counters.offered, self.cut_dropped, self.nat_expired)
        values = _counted(counters)
        row: dict[str, int | float] = dict(zip(COUNTED, values, strict=True))
        row["cut_dropped"] = self.cut_dropped
        row["nat_expired"] = self.nat_expired
        row["drawn"] = counters.offered
        row["asked_lost"] = asked
        row["asked_variance"] = variance
        return row


def halves(profile: LinkProfile) -> tuple[LinkProfile, LinkProfile]:
    """The steps of a profile up to its rate queue, and the propagation."""
    queue = replace(
        profile,
        latency=0.0,
        jitter=0.0,
        reorder=0.0,
        buffer=None,
        buffer_bytes=profile.buffer_limit,
    )
    propagation = LinkProfile(
        latency=profile.latency,
        jitter=profile.jitter,
        distribution=profile.distribution,
        reorder=profile.reorder,
    )
    return queue, propagation
