"""The kernel engine's counters of links, from what tc shows of an interface, and beyond its life. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netem.kernel import tc
from netem.measurement.losses import AskedLosses
from netem.profile import LinkProfile
from orchestrator.fabric.base import LinkRow

Pair = tuple[str, str]  # the source and the target of a link

# drawn: packets whose loss netem has decided; the other offered packets came during a cut.
_COUNTERS = ("offered", "offered_bytes", "delivered", "delivered_bytes", "lost", "cut_dropped", "drawn")


class Reading(NamedTuple):
    """Counters of the qdiscs of an interface, by the index of the link, and the packets that ``passed`` unshaped."""

    links: dict[int, dict[str, int]]
    passed: int


NOTHING = Reading({}, 0)  # of no interface


def read(shown: str) -> Reading:
    """The counters in what tc shows of an interface."""
    counted = {index: counts(state) for index, state in tc.parse_qdiscs(shown).items()}
    cuts = {index: cut_off(packets) for index, packets in tc.parse_cuts(shown).items()}
    return Reading(counted | cuts, tc.parse_passed(shown))


def counts(state: tc.KernelLinkState) -> dict[str, int]:
    """Counters from netem's sent, queued and dropped packets; netem does not report the cause of a drop."""
    drawn = state.packets + state.dropped + state.backlog_packets
    return {
        "offered": drawn,
        "drawn": drawn,
        "offered_bytes": state.sent_bytes + state.backlog,
        "delivered": state.packets,
        "delivered_bytes": state.sent_bytes,
        "lost": state.dropped,
    }


def cut_off(packets: int) -> dict[str, int]:
    """Counters of a link that is cut."""
    return {"offered": packets, "cut_dropped": packets}


class Ledger:
    """What becomes of the packets of each link, over all interfaces and qdiscs that it has had."""

    def __init__(self) -> None:
        self._kept: dict[Pair, dict[str, int]] = {}  # counters of removed qdiscs
        self._asked: dict[Pair, AskedLosses] = {}
        self._limited: set[Pair] = set()  # links with a rate, now or earlier: a full buffer drops packets

    def begin(self, link: Pair, profile: LinkProfile) -> None:
        self._asked[link] = AskedLosses(profile)
        self.note_rate(link, profile)

    def note_rate(self, link: Pair, profile: LinkProfile) -> None:
        if profile.rate is not None:
            self._limited.add(link)

    def change(self, link: Pair, profile: LinkProfile, now: Mapping[str, int]) -> None:
        """The link has another profile from now on. ``now``: the counters of its qdisc; none if it has no qdisc."""
        self._asked[link].change(self._whole(link, now)["drawn"], profile)

    def keep(self, link: Pair, counted: Mapping[str, int]) -> None:
        """Add the counters of a qdisc that ends."""
        self._kept[link] = self._whole(link, counted)

    def row(self, link: Pair, now: Mapping[str, int]) -> LinkRow:
        """All that is counted of a link. ``now``: see `change`."""
        whole = self._whole(link, now)
        mean, variance = self._asked[link].of(whole["drawn"])
        losses = {"asked_lost": mean, "asked_variance": variance, "others_too": int(link in self._limited)}
        return {"source": link[0], "target": link[1], **whole, **losses}

    def _whole(self, link: Pair, now: Mapping[str, int]) -> dict[str, int]:
        kept = self._kept.get(link, {})
        return {key: kept.get(key, 0) + now.get(key, 0) for key in _COUNTERS}
