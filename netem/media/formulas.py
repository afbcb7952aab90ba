"""The rates that members of shared channels get, by formula: what the rules of `netem.media.profile` promise."""

from __future__ import annotations

from collections.abc import Sequence

from netem.media.profile import ChannelProfile


def shares(channel: ChannelProfile, members: Sequence[str]) -> dict[str, float]:
    """The rates (bit/s) of members that all have packets waiting, by the rule; ``fifo`` promises none, and counts as
    ``fair``."""
    weights = {}
    times = []
    for member in members:
        rate = channel.rate_of(member)
        weight = channel.rule.weight(rate)
        weights[member] = weight
        times.append(weight / rate)
    time = sum(times)
    rates = {}
    for member, weight in weights.items():
        rates[member] = weight / time
    return rates
