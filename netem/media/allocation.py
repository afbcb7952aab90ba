"""Rates of simultaneous transfers over shared channels: max–min fairness by progressive filling.

Bertsekas and Gallager, "Data Networks", 2nd edition 1992, section 6.5.2, here with a weight for each transfer in each
channel. The rates of a channel's transfers grow in proportion to their weights until the channel is full. A transfer
that has reached its maximum, or that another channel holds back, leaves the rest to the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from netem.media.profile import ChannelProfile

Name = TypeVar("Name", bound=Hashable)


class Use(NamedTuple):
    """A transfer's use of a channel: the channel's time per bit (s), and the transfer's weight in the channel."""

    seconds: float
    weight: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer's use of each channel that it crosses, and its maximum rate in bit/s."""

    uses: Mapping[str, Use]
    most: float = math.inf


def use_of(channel: ChannelProfile, member: str, weight: float = 1.0) -> Use:
    """The use of a channel by a transfer of a member. With equal weights, members get what
    `netem.media.formulas.shares` gives."""
    rate = channel.rate_of(member)
    return Use(1 / rate, weight * channel.rule.weight(rate))


def allocate(transfers: Mapping[Name, Transfer], free: Mapping[str, float]) -> dict[Name, float]:
    """The rate of each transfer in bit/s. ``free``: the fraction of its time that each channel has for them.

    In every channel the times per bit times the rates sum up to ``free`` at most. Weights that differ between channels
    can contradict each other in a circle; then the transfer with the lowest rate is settled first.
    """
    rates: dict[Name, float] = {}
    waiting = dict(transfers)
    left = dict(free)
    while waiting:
        levels = _levels(waiting, left)
        offers = {
            name: min([each.most, *(levels[channel] * use.weight for channel, use in each.uses.items())])
            for name, each in waiting.items()
        }
        settled = [name for name, transfer in waiting.items() if offers[name] >= transfer.most]
        if not settled:
            # A channel of which no transfer is held back elsewhere gets full at this level.
            slack = {
                channel
                for name, transfer in waiting.items()
                for channel, use in transfer.uses.items()
                if levels[channel] * use.weight > offers[name] * (1 + 1e-9)
            }
            settled = [name for name, transfer in waiting.items() if transfer.uses.keys() - slack]
        for name in settled or [min(waiting, key=offers.__getitem__)]:
            rates[name] = offers[name]
            for channel, use in waiting.pop(name).uses.items():
                left[channel] -= offers[name] * use.seconds
    return rates


def _levels(transfers: Mapping[Name, Transfer], left: Mapping[str, float]) -> dict[str, float]:
    """The rate per unit of weight at which these transfers would fill each channel."""
    time: defaultdict[str, float] = defaultdict(float)
    for transfer in transfers.values():
        for channel, use in transfer.uses.items():
            time[channel] += use.seconds * use.weight
    return {channel: max(0.0, left[channel]) / each for channel, each in time.items()}
