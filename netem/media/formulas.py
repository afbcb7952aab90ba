"""The rates that members of shared channels get, by formula: what the rules of `netem.media.profile` promise."""

from __future__ import annotations

from collections.abc import Sequence

from netem.media.profile import ChannelProfile


def shares(channel: ChannelProfile, members: Sequence[str]) -> dict[str, float]:
    """The rates (bit/s) of members that all have packets waiting, by the rule; ``fifo`` promises none, and counts as
    ``fair``."""
    rates = {member: channel.rate_of(member) for member in members}
    weights = {member: channel.rule.weight(rate) for member, rate in rates.items()}
    time = sum(weights[member] / rate for member, rate in rates.items())
    return {member: weight / time for member, weight in weights.items()}
