"""Channels of shared media as links, and back: with the same rate and the same buffer."""

from __future__ import annotations

from dataclasses import replace

from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME, LinkProfile

BUFFER = 0.1  # s, the default
FEWEST_FRAMES = 16  # full frames that the default buffer holds at least, as that of a link


def default_buffer(rate: float) -> float:
    """The seconds of a channel's buffer at a rate, if none is configured."""
    frames = FEWEST_FRAMES * FULL_FRAME * 8 / rate
    return max(BUFFER, frames)


def link_like(channel: ChannelProfile) -> LinkProfile:
    """A link with the rate and the buffer of a channel, for schedules. A default buffer stays one at other rates."""
    if channel.size is not None:
        return LinkProfile(rate=channel.rate, buffer_bytes=channel.size)
    if channel.buffer == default_buffer(channel.rate):
        return LinkProfile(rate=channel.rate)
    return LinkProfile(rate=channel.rate, buffer=channel.buffer)


def channel_like(channel: ChannelProfile, link: LinkProfile) -> ChannelProfile:
    """A channel with the rate and the buffer of a link. No member keeps a rate above that of the channel."""
    assert link.rate is not None
    assert link.buffer_limit is not None
    rates = {}
    for member, rate in channel.rates.items():
        rates[member] = min(rate, link.rate)
    return replace(
        channel,
        rate=link.rate,
        buffer=8 * link.buffer_limit / link.rate,
        rates=rates,
        size=link.buffer_bytes,
    )
