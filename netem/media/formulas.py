"""The rates that members of shared channels get, by formula: what the rules of `netem.media.profile` promise."""

from __future__ import annotations

from collections.abc import Sequence

from netem.media.profile import ChannelProfile


def shares(channel: ChannelProfile, members: Sequence[str]) -> dict[str, float]:
    """The rates (bit/s) of members that all have packets waiting, by the rule; ``fifo`` promises none, and counts as
    ``fair``."""
    number = len(members)
    if channel.share == "airtime":
        return {member: channel.rate_of(member) / number for member in members}
    if channel.share == "frames":
        together = 1 / sum(1 / channel.rate_of(member) for member in members)
        return dict.fromkeys(members, together)
    return dict.fromkeys(members, channel.rate / number)
