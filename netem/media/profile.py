"""What a shared medium is configured as.

A *medium* (a radio cell, an access point, an uplink) is one *channel*, if it is half duplex, or two, one for each
direction. A channel has a rate, a buffer and a sharing rule. Links cross channels: after the queue of its own rate, a
packet waits in the queue of each channel on its route, in order; then it propagates.

The rules, with the shares x_i (bit/s) of n members that always have packets waiting; R is the channel's rate, r_i the
rate of member i (`ChannelProfile.rates`, otherwise R):

    fifo      one queue, drop tail; the shares follow from the senders
    fair      equal bytes: x_i = R / n (max-min fair)
    airtime   equal time: x_i = r_i / n
    frames    equal frames: x_i = 1 / Σ_j 1/r_j, the same for all (the performance anomaly of 802.11b: Heusse et al.,
              INFOCOM 2003)

Rates are net: what a radio loses to access and acknowledgements is not part of a rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from netem import units
from netem.errors import ProfileError

Rule = Literal["fifo", "fair", "airtime", "frames"]
TrafficKind = Literal["constant", "poisson", "on-off", "trace"]


class SharingRule(NamedTuple):
    """What a rule means for the members of a channel.

    cost        what a queue pays for a packet of so many bytes, segments and seconds on the channel
    own_queues  each member has a queue; otherwise there is one for all, and the rule promises no shares
    own_rates   members may have rates of their own
    by_rate     the shares are in proportion to the members' rates; otherwise they are equal
    """

    cost: Callable[[int, int, float], float]
    own_queues: bool = True
    own_rates: bool = False
    by_rate: bool = False

    def weight(self, rate: float) -> float:
        """The weight of a member with this rate (bit/s) among those that always have packets waiting."""
        return rate if self.by_rate else 1.0


RULES: Mapping[Rule, SharingRule] = {
    "fifo": SharingRule(lambda size, packets, seconds: seconds, own_queues=False),
    "fair": SharingRule(lambda size, packets, seconds: size),
    "airtime": SharingRule(lambda size, packets, seconds: seconds, own_rates=True, by_rate=True),
    "frames": SharingRule(lambda size, packets, seconds: packets, own_rates=True),
}

CROSS_TRAFFIC = "cross traffic"
"""The member that others' traffic is; no node has this name, because the names of nodes have no spaces."""


class Crossing(NamedTuple):
    """A link's way through a channel: the channel's name, and the member as which the link has a share in it."""

    channel: str
    member: str


@dataclass(frozen=True)
class ChannelProfile:
    """One direction of a shared medium, or both directions of one that is half duplex.

    rate    bit/s, including the headers of packets, as in `netem.profile.LinkProfile`
    share   the rule by which members share the rate
    buffer  seconds of the rate that the queues hold together; the packet that is being sent occupies the buffer too
    rates   bit/s of single members; only with ``airtime`` and ``frames``
    size    bytes that the queues hold together at any rate; ``buffer`` then follows from it

    Raises ProfileError for another rule, a rate below 1 bit/s or a negative buffer.
    """

    rate: float
    share: Rule = "fair"
    buffer: float = 0.1
    rates: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None

    def __post_init__(self) -> None:
        if self.share not in RULES:
            known = ", ".join(RULES)
            raise ProfileError(f"share: {units.shown(self.share)} is not one of {known}")
        rates = [self.rate, *self.rates.values()]
        for rate in rates:
            if not 1 <= rate < math.inf:
                raise ProfileError("rate: must be at least 1bit")
        if self.size is not None:
            seconds = 8 * self.size / self.rate
            object.__setattr__(self, "buffer", seconds)
        if not 0 <= self.buffer < math.inf:
            raise ProfileError("buffer: must be 0 or more seconds")

    @property
    def rule(self) -> SharingRule:
        return RULES[self.share]

    @property
    def buffer_bytes(self) -> float:
        if self.size is None:
            return self.rate * self.buffer / 8
        return self.size

    def rate_of(self, member: str) -> float:
        """The rate (bit/s) at which a member's packets are sent."""
        return self.rates.get(member, self.rate)

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for JSON, in bit/s and seconds; `from_mapping` reads it."""
        mapping = dict(vars(self))
        mapping["rates"] = dict(self.rates)
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ChannelProfile:
        return cls(**mapping)


@dataclass(frozen=True)
class CrossTraffic:
    """Traffic of others on a channel: full frames that occupy it and are then discarded. It does not react to losses.

    rate     bit/s; of ``on-off`` while it is on, of ``trace`` unused
    on, off  mean seconds of the two states of ``on-off``; both are exponentially distributed
    rows     of ``trace``: (seconds from the start, bit/s from then on)
    """

    kind: TrafficKind
    rate: float = 0.0
    on: float = 0.0
    off: float = 0.0
    rows: tuple[tuple[float, float], ...] = ()

    def mean_rate(self, duration: float = math.inf) -> float:
        """The mean rate (bit/s) over this many seconds."""
        if self.kind == "on-off":
            cycle = self.on + self.off
            return self.rate * self.on / cycle
        if self.kind != "trace":
            return self.rate
        last_at, last_rate = self.rows[-1]
        last_end = max(duration, last_at)
        if last_end == math.inf:
            return last_rate
        starts = [at for at, _ in self.rows]
        ends = [*starts[1:], last_end]
        bits = []
        for (at, rate), end in zip(self.rows, ends, strict=True):
            seconds = max(0.0, min(end, duration) - at)
            bits.append(rate * seconds)
        return sum(bits) / duration

    def since(self, seconds: float) -> CrossTraffic:
        """What is left of it after this time; only that of a trace differs."""
        current = None
        later = []
        for at, rate in self.rows:
            if at <= seconds:
                current = rate
            else:
                later.append((at - seconds, rate))
        if current is None:
            return self
        first = (0.0, current)
        return replace(self, rows=(first, *later))

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for JSON; `from_mapping` reads it."""
        mapping = dict(vars(self))
        mapping["rows"] = [list(row) for row in self.rows]
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CrossTraffic:
        rows = []
        for at, rate in mapping["rows"]:
            row = (float(at), float(rate))
            rows.append(row)
        fields = dict(mapping)
        fields["rows"] = tuple(rows)
        return cls(**fields)
