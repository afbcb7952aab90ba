"""How many segments of a super-packet cross a link as one packet."""

from __future__ import annotations

from collections.abc import Iterable

from netem.profile import FULL_FRAME, LinkProfile

PIECE_SECONDS = 0.001  # s that a packet of several segments may take at the rate of a link


def segments_together(profile: LinkProfile, channels: Iterable[float] = ()) -> int | None:
    """Maximum number of segments of a super-packet that cross a link of this profile as one packet; None: all.
    ``channels``: the rates (bit/s) at which the channels on the way send the link's packets."""
    if profile.needs_packet_truth:
        return 1
    rates = [*channels]
    if profile.rate is not None:
        rates.append(profile.rate)
    if not rates:
        return None
    packets = min(rates) * PIECE_SECONDS / (8 * FULL_FRAME)
    return max(1, int(packets))
