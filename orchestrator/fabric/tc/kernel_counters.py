"""The kernel engine's counters of links, from what tc shows of an interface, and after its end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netem.kernel import tc
from netem.kernel.batch import Commands
from netem.kernel.filters import parse_police, show_police_command
from netem.measurement.losses import AskedLosses
from netem.profile import LinkProfile
from orchestrator.fabric.base import LinkRow

Pair = tuple[str, str]  # the source and the target of a link
Counts = Mapping[str, int]

_COUNTERS = (
    "offered",
    "offered_bytes",
    "delivered",
    "delivered_bytes",
    "lost",
    "overflowed",
    "cut_dropped",
    "too_large",
    "drawn",  # packets that netem has lost or not; the other ones were too large, found no room, or came during a cut
)


class Reading(NamedTuple):
    """Counters of the qdiscs of an interface, by the index of the link, the packets that ``passed`` unshaped, and the
    bytes that are queued or in flight, by the index of the link."""

    links: dict[int, dict[str, int]]
    passed: int
    backlog: dict[int, int]


NOTHING = Reading({}, 0, {})  # of no interface


def show_commands(interface: str) -> Commands:
    """The commands with the output that `read` takes."""
    qdiscs = tc.show_command(interface)
    policers = show_police_command(interface)
    return [qdiscs, policers]


def read(shown: str, policed: str) -> Reading:
    """The counters in what tc shows of the qdiscs and of the policers of an interface; "" if it has no policers."""
    states = tc.parse_qdiscs(shown)
    links: dict[int, dict[str, int]] = {}
    backlog = {}
    for index, state in states.items():
        links[index] = counts(state)
        backlog[index] = state.backlog
    for index, packets in tc.parse_cuts(shown).items():
        links[index] = cut_off(packets)
    if policed:
        for index, dropped in parse_police(policed).items():
            counted = links.get(index, {})
            links[index] = _sum(counted, by_policers(dropped.too_large, dropped.overflowed))
    passed = tc.parse_passed(shown)
    return Reading(links, passed, backlog)


def by_policers(too_large: int, overflowed: int) -> dict[str, int]:
    """Counters of packets that policers dropped: ``overflowed`` ones found no room in the buffer."""
    return {
        "offered": too_large + overflowed,
        "lost": too_large,
        "too_large": too_large,
        "overflowed": overflowed,
    }


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

    def change(self, link: Pair, profile: LinkProfile, now: Counts) -> None:
        """The link has another profile from now on. ``now``: the counters of its qdisc; none if it has no qdisc."""
        whole = self._whole(link, now)
        asked = self._asked[link]
        asked.change(whole["drawn"], profile)

    def keep(self, link: Pair, counted: Counts) -> None:
        """Add the counters of a qdisc that ends."""
        self._kept[link] = self._whole(link, counted)

    def row(self, link: Pair, now: Counts) -> LinkRow:
        """All that is counted of a link. ``now``: see `change`."""
        source, target = link
        whole = self._whole(link, now)
        asked = self._asked[link]
        mean, variance = asked.of(whole["drawn"])
        return {
            "source": source,
            "target": target,
            **whole,
            "asked_lost": mean,
            "asked_variance": variance,
        }

    def _whole(self, link: Pair, now: Counts) -> dict[str, int]:
        kept = self._kept.get(link, {})
        return _sum(kept, now)


def _sum(first: Counts, second: Counts) -> dict[str, int]:
    total = {}
    for key in _COUNTERS:
        one = first.get(key, 0)
        other = second.get(key, 0)
        total[key] = one + other
    return total
