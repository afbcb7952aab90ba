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
        rates = []
        for profile in self.profiles:
            if profile.rate is None:
                return None
            rates.append(profile.rate)
        return max(rates)

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
    earliest = quantile(profile.distribution, EARLY)
    return max(0.0, profile.latency + profile.jitter * earliest)


def margin(underlay: Underlay) -> float:
    """How far above the underlay's delay a link must be, in seconds."""
    return max(LEAST_MARGIN, MARGIN_SHARE * underlay.delay)


def too_fast(link: AskedLink, underlay: Underlay) -> bool:
    """Whether a link asks for less delay than the underlay has. A real one asks for nothing."""
    if link.real:
        return False
    least = underlay.delay + margin(underlay) - _ROUNDING
    return least_delay(link.fastest) < least


def crossings(
    links: Iterable[AskedLink],
    hosts: Mapping[str, str],
    inventory: Inventory,
) -> tuple[HostCrossing, ...]:
    """The crossings between ``hosts``, by name. PlanError if a link has less delay than the underlay."""
    between: defaultdict[Ends, list[AskedLink]] = defaultdict(list)
    for link in links:
        source = hosts[link.source]
        target = hosts[link.target]
        if source != target:
            between[source, target].append(link)
    _refuse_short(between, inventory)
    host_crossings = []
    for (source, target), crossing in sorted(between.items()):
        emulated = [link for link in crossing if not link.real]
        host_crossings.append(
            HostCrossing(
                source,
                target,
                links=len(crossing),
                rate=_total_rate(emulated),
                underlay=inventory.underlay.get((source, target)),
                real=len(crossing) - len(emulated),
            )
        )
    return tuple(host_crossings)


def _total_rate(links: Iterable[AskedLink]) -> float | None:
    """The sum in bit/s; None if one is not limited."""
    rates = []
    for link in links:
        if link.rate is None:
            return None
        rates.append(link.rate)
    return sum(rates)


def refuse_real_within_hosts(
    links: Iterable[AskedLink],
    hosts: Mapping[str, str],
    entries: Mapping[Ends, KeyPath],
) -> None:
    """PlanError if a real link joins two nodes of one of the ``hosts``. ``entries``: what made the links real."""
    within = []
    for link in links:
        if link.real and hosts[link.source] == hosts[link.target]:
            within.append(link)
    if within:
        link = within[0]
        raise PlanError(
            entries[link.source, link.target],
            f"{link.source} -> {link.target} is real, and both nodes run on {hosts[link.source]}, where no network is"
            f" between them{_others(within)}: give them different hosts in `hosts`, or give the link a profile",
        )


def _others(links: Sequence[object]) -> str:
    """The number of links other than the one that a message names."""
    if len(links) == 1:
        return ""
    more = len(links) - 1
    return f" ({text.count(more, 'more link')} like it)"


def crossing_notes(crossings: Iterable[HostCrossing]) -> Iterator[str]:
    """What the network may not give the links."""
    unknown = []
    full = []
    for crossing in crossings:
        if crossing.real == crossing.links:
            continue
        underlay = crossing.underlay
        if underlay is None:
            unknown.append(str(crossing))
            continue
        if crossing.rate is None or underlay.rate is None:
            continue
        if crossing.rate > underlay.rate:
            full.append(f"{crossing} ({text.rate(crossing.rate)} of {text.rate(underlay.rate)})")
    if full:
        yield f"links ask for more rate than the network has, {text.some(full)}: not all can be full at once"
    if unknown:
        yield f"the network was not measured, {text.some(unknown)}: its delay adds to that of the links"


def _refuse_short(
    between: Mapping[tuple[str, str], Sequence[AskedLink]],
    inventory: Inventory,
) -> None:
    short = []
    for (source, target), links in sorted(between.items()):
        underlay = inventory.underlay.get((source, target))
        if underlay is None:
            continue
        for link in links:
            if too_fast(link, underlay):
                short.append((link, source, target, underlay))
    if not short:
        return
    link, source, target, underlay = short[0]
    configured = format_duration(link.fastest.latency)
    if link.fastest.jitter:
        jitter = format_duration(link.fastest.jitter)
        least = text.duration(least_delay(link.fastest))
        configured += f" ±{jitter}, so {least} at least,"
    with_margin = text.duration(underlay.delay + margin(underlay))
    raise PlanError(
        ("links", link.link_class),
        f"{link.source} -> {link.target} is configured with {configured} one way, and the network from {source} to"
        f" {target} takes {text.duration(underlay.delay)}, {with_margin} with a margin{_others(short)}: set more"
        " latency, or give both nodes one host in `hosts`",
    )
