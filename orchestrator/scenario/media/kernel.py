"""What the kernel engine cannot do of shared media."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from netem.media.profile import ChannelProfile, Crossing
from netem.profile import LinkProfile


def beyond_kernel(
    channels: Mapping[str, ChannelProfile],
    ways: Iterable[tuple[str, str, LinkProfile, Sequence[Crossing]]],
    cross_traffic: Sequence[str],
    *,
    several_hosts: bool,
) -> str:
    """The first thing in a few words; empty if the kernel engine can share these channels.

    ``ways``: the source, the target and the profile of each link, and the channels that it crosses. ``cross_traffic``:
    the media or channels that carry it. In the kernel a packet crosses the channel before its link, so what the link
    loses has used the channel.
    """
    if channels and several_hosts:
        return "their nodes are on several hosts"
    for name in cross_traffic:
        return f"cross traffic on {name}"
    for name, profile in channels.items():
        turns_by_packets = profile.rule.own_rates and not profile.rule.by_rate  # the kernel's queues count bytes
        if turns_by_packets or any(rate != profile.rate for rate in profile.rates.values()):
            return f"{name} has `share: {profile.share}`" + (" with rates of members" if profile.rates else "")
    for source, target, link, way in ways:
        if len(way) > 1:
            return f"the link {source} -> {target} crosses {len(way)} media"
        if way and link.mean_loss:
            return f"the link {source} -> {target} crosses {way[0].channel} and loses packets"
    return ""
