"""Links between nodes of different hosts, and what the network between these hosts, the underlay, must give them.

The underlay delays a packet by u seconds before edgebed can. So on a link that asks for D seconds edgebed sets D - u. A
link is refused if D is below u and a margin, because measurements of u vary. A jitter takes from D: D is the delay that
`EARLY` of the link's packets fall short of. A real link asks for nothing: the underlay is the link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netem.jitter import quantile
from netem.profile import LinkProfile
from netem.units import format_duration
from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.planning.hosts.inventory import Inventory, Underlay
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.sections.topology import Ends

LEAST_MARGIN = 0.0001  # s, about what a network card may delay an interrupt (see "lan" in `netem.library`)
MARGIN_SHARE = 0.1  # of the underlay's delay
EARLY = 0.02
"""The share of packets that may ask for less than the underlay takes. It is the share of a normal jitter of half the
latency that is cut at a delay of 0 on one host too; the mean does not show such a cut (see `netem.impair`)."""
_ROUNDING = 1e-9  # s


@dataclass(frozen=True)
class AskedLink:
    """One direction of a link between two nodes, and every profile that schedules and faults may give it."""

    source: str
    target: str
    link_class: str
    profiles: Sequence[LinkProfile]

    @property
    def fastest(self) -> LinkProfile:
        """The profile that asks for the least delay."""
        return min(self.profiles, key=least_delay)

    @property
    def rate(self) -> float | None:
        """The highest rate in bit/s; None if the link is not limited."""
        rates = [profile.rate for profile in self.profiles]
        if None in rates:
            return None
        return max(rate for rate in rates if rate is not None)

    @property
    def real(self) -> bool:
        """Whether the underlay is the link."""
        return any(profile.real for profile in self.profiles)


@dataclass(frozen=True)
class HostCrossing:
    """The links from the nodes of one host to the nodes of another: their number, how many of them are ``real``, and
    the sum of the other ones' rates in bit/s, None if one is not limited. ``underlay``: None if it was not measured."""

    source: str
    target: str
    links: int
    rate: float | None
    underlay: Underlay | None
    real: int = 0

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def least_delay(profile: LinkProfile) -> float:
    """The delay in seconds that only `EARLY` of the packets fall short of."""
    return max(0.0, profile.latency + profile.jitter * quantile(profile.distribution, EARLY))


def margin(underlay: Underlay) -> float:
    """How far above the underlay's delay a link must be, in seconds."""
    return max(LEAST_MARGIN, MARGIN_SHARE * underlay.delay)


def too_fast(link: AskedLink, underlay: Underlay) -> bool:
    """Whether a link asks for less delay than the underlay has. A real one asks for nothing."""
    return not link.real and least_delay(link.fastest) < underlay.delay + margin(underlay) - _ROUNDING


def crossings(links: Iterable[AskedLink], hosts: Mapping[str, str], inventory: Inventory) -> tuple[HostCrossing, ...]:
    """The crossings between ``hosts``, by name. PlanError if a link has less delay than the underlay."""
    between: defaultdict[tuple[str, str], list[AskedLink]] = defaultdict(list)
    for link in links:
        if hosts[link.source] != hosts[link.target]:
            between[hosts[link.source], hosts[link.target]].append(link)
    _refuse_short(between, inventory)
    found = []
    for source, target in sorted(between):
        links = between[source, target]
        rates = [link.rate for link in links if not link.real]
        if None in rates:
            total = None
        else:
            total = sum(rate for rate in rates if rate is not None)
        underlay = inventory.underlay.get((source, target))
        found.append(HostCrossing(source, target, len(links), total, underlay, len(links) - len(rates)))
    return tuple(found)


def refuse_real_within_hosts(
    links: Iterable[AskedLink], hosts: Mapping[str, str], entries: Mapping[Ends, KeyPath]
) -> None:
    """PlanError if a real link joins two nodes of one of the ``hosts``. ``entries``: what made the links real."""
    within = [link for link in links if link.real and hosts[link.source] == hosts[link.target]]
    if within:
        link = within[0]
        others = f" ({text.count(len(within) - 1, 'more link')} like it)" if len(within) > 1 else ""
        raise PlanError(
            entries[link.source, link.target],
            f"{link.source} -> {link.target} is real, and both nodes run on {hosts[link.source]}, where no network is"
            f" between them{others}: give them different hosts in `hosts`, or give the link a profile",
        )


def crossing_notes(crossings: Iterable[HostCrossing]) -> Iterator[str]:
    """What the network may not give the links."""
    unknown = []
    full = []
    for each in crossings:
        if each.real == each.links:
            continue
        if each.underlay is None:
            unknown.append(str(each))
        elif each.rate is not None and each.underlay.rate is not None and each.rate > each.underlay.rate:
            full.append(f"{each} ({text.rate(each.rate)} of {text.rate(each.underlay.rate)})")
    if full:
        yield f"links ask for more rate than the network has, {text.some(full)}: not all can be full at once"
    if unknown:
        yield f"the network was not measured, {text.some(unknown)}: its delay adds to that of the links"


def _refuse_short(between: Mapping[tuple[str, str], Sequence[AskedLink]], inventory: Inventory) -> None:
    short = []
    for (source, target), links in sorted(between.items()):
        underlay = inventory.underlay.get((source, target))
        if underlay is not None:
            short += [(link, source, target, underlay) for link in links if too_fast(link, underlay)]
    if not short:
        return
    link, source, target, underlay = short[0]
    configured = format_duration(link.fastest.latency)
    if link.fastest.jitter:
        configured += (
            f" ±{format_duration(link.fastest.jitter)}, so {text.duration(least_delay(link.fastest))} at least,"
        )
    others = f" ({text.count(len(short) - 1, 'more link')} like it)" if len(short) > 1 else ""
    raise PlanError(
        ("links", link.link_class),
        f"{link.source} -> {link.target} is configured with {configured} one way, and the network from {source} to"
        f" {target} takes {text.duration(underlay.delay)}, {text.duration(underlay.delay + margin(underlay))} with a"
        f" margin{others}: set more latency, or give both nodes one host in `hosts`",
    )
