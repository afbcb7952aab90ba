"""The kernel engine's counters of links, from what tc shows of an interface, and beyond its life. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netem.kernel import tc
from netem.kernel.filters import parse_police, show_police_command
from netem.measurement.losses import AskedLosses
from netem.profile import LinkProfile
from orchestrator.fabric.base import LinkRow

Pair = tuple[str, str]  # the source and the target of a link

# drawn: packets whose loss netem has decided; the other offered packets found no room or came during a cut.
_COUNTERS = ("offered", "offered_bytes", "delivered", "delivered_bytes", "lost", "overflowed", "cut_dropped", "drawn")


class Reading(NamedTuple):
    """Counters of the qdiscs of an interface, by the index of the link, the packets that ``passed`` unshaped, and the
    bytes that are queued or in flight, by the index of the link."""

    links: dict[int, dict[str, int]]
    passed: int
    backlog: dict[int, int]


NOTHING = Reading({}, 0, {})  # of no interface


def show_commands(interface: str) -> list[list[str]]:
    """The commands whose output `read` takes."""
    return [tc.show_command(interface), show_police_command(interface)]


def read(shown: str, policed: str) -> Reading:
    """The counters in what tc shows of the qdiscs and of the policers of an interface; "" if it has no policers."""
    states = tc.parse_qdiscs(shown)
    links = {index: counts(state) for index, state in states.items()}
    links |= {index: cut_off(packets) for index, packets in tc.parse_cuts(shown).items()}
    for index, packets in (parse_police(policed) if policed else {}).items():
        links[index] = _sum(links.get(index, {}), overflow(packets))
    backlog = {index: state.backlog for index, state in states.items()}
    return Reading(links, tc.parse_passed(shown), backlog)


def overflow(packets: int) -> dict[str, int]:
    """Counters of packets that found no room in the buffer."""
    return {"offered": packets, "overflowed": packets}


def counts(state: tc.KernelLinkState) -> dict[str, int]:
    """Counters from netem's sent, queued and dropped packets. netem drops only what is lost at random, or too corrupt
    to send: its limit never binds."""
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

    def begin(self, link: Pair, profile: LinkProfile) -> None:
        self._asked[link] = AskedLosses(profile)

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
        return {"source": link[0], "target": link[1], **whole, "asked_lost": mean, "asked_variance": variance}

    def _whole(self, link: Pair, now: Mapping[str, int]) -> dict[str, int]:
        return _sum(self._kept.get(link, {}), now)


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in _COUNTERS}
