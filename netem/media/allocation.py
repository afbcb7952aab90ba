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


Transfers = Mapping[Name, Transfer]
Levels = Mapping[str, float]


def use_of(channel: ChannelProfile, member: str, weight: float = 1.0) -> Use:
    """The use of a channel by a transfer of a member. With equal weights, members get what
    `netem.media.formulas.shares` gives."""
    rate = channel.rate_of(member)
    own_weight = channel.rule.weight(rate)
    return Use(1 / rate, weight * own_weight)


def allocate(transfers: Transfers[Name], free: Levels) -> dict[Name, float]:
    """The rate of each transfer in bit/s. ``free``: the fraction of its time that each channel has for them.

    In every channel the times per bit times the rates sum up to ``free`` at most. Weights that differ between channels
    can contradict each other in a circle; then the transfer with the lowest rate is settled first.
    """
    rates: dict[Name, float] = {}
    waiting = dict(transfers)
    left = dict(free)
    while waiting:
        levels = _levels(waiting, left)
        offers = {}
        for name, transfer in waiting.items():
            offers[name] = _offer(transfer, levels)
        for name in _settled(waiting, levels, offers):
            rate = offers[name]
            rates[name] = rate
            uses = waiting.pop(name).uses
            for channel, use in uses.items():
                left[channel] -= rate * use.seconds
    return rates


def _levels(transfers: Transfers[Name], left: Levels) -> dict[str, float]:
    """The rate per unit of weight at which these transfers would fill each channel."""
    times: defaultdict[str, float] = defaultdict(float)
    for transfer in transfers.values():
        for channel, use in transfer.uses.items():
            times[channel] += use.seconds * use.weight
    levels = {}
    for channel, time in times.items():
        levels[channel] = max(0.0, left[channel]) / time
    return levels


def _settled(
    transfers: Transfers[Name],
    levels: Levels,
    offers: Mapping[Name, float],
) -> list[Name]:
    """The transfers that get no more than their offers."""
    settled = []
    for name, transfer in transfers.items():
        if offers[name] >= transfer.most:
            settled.append(name)
    if settled:
        return settled
    # A channel without a transfer that is held back elsewhere gets full at this level.
    slack = _slack(transfers, levels, offers)
    for name, transfer in transfers.items():
        if transfer.uses.keys() - slack:
            settled.append(name)
    if settled:
        return settled
    lowest = min(transfers, key=offers.__getitem__)
    return [lowest]


def _offer(transfer: Transfer, levels: Levels) -> float:
    """The rate that a transfer can have at these levels."""
    rates = [transfer.most]
    for channel, use in transfer.uses.items():
        rates.append(levels[channel] * use.weight)
    return min(rates)


def _slack(
    transfers: Transfers[Name],
    levels: Levels,
    offers: Mapping[Name, float],
) -> set[str]:
    """The channels with a transfer that another channel holds back."""
    slack = set()
    for name, transfer in transfers.items():
        reached = offers[name] * (1 + 1e-9)
        for channel, use in transfer.uses.items():
            if levels[channel] * use.weight > reached:
                slack.add(channel)
    return slack
