"""What the kernel engine cannot do of a scenario's media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netem.profile import LinkProfile
from orchestrator.scenario.media.routes import ResolvedMedia
from orchestrator.scenario.sections.topology import Ends


def beyond_kernel(media: ResolvedMedia, profiles: Mapping[Ends, LinkProfile], cross_traffic: Sequence[str]) -> str:
    """The first thing in a few words; empty if the kernel engine can share these media. ``profiles``: of the links.
    ``cross_traffic``: the media or channels that carry it.

    In the kernel a packet crosses the medium before its link, so what the link loses has used the medium.
    """
    for name in cross_traffic:
        return f"cross traffic on {name}"
    for channels in media.channels.values():
        for name, profile in channels.items():
            if profile.share == "frames" or any(rate != profile.rate for rate in profile.rates.values()):
                return f"{name} has `share: {profile.share}`" + (" with rates of members" if profile.rates else "")
    for (source, target), way in media.crossings.items():
        if len(way) > 1:
            return f"the link {source} -> {target} crosses {len(way)} media"
        if way and profiles.get((source, target), LinkProfile()).mean_loss:
            return f"the link {source} -> {target} crosses {way[0].channel} and loses packets"
    return ""
