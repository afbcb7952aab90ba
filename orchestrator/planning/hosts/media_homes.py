"""The home of each shared medium in a run on several hosts: the host that has its queues.

The packets of a link pass the hosts of its two nodes, and no other one. So a medium needs a host that all of its links
have in common, such as that of the edge of a cell. A queue there delays no packet on the way. Media that one link
crosses, at the same time or before and after a handover, have one home.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from netem.media.profile import Crossing
from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import LinkPlan
from orchestrator.scenario.media.section import medium_of
from orchestrator.scenario.sections.topology import Ends

Way = tuple[str, str, tuple[Crossing, ...]]  # the source and the target of a link, and the channels that it crosses


class _Group(NamedTuple):
    """Media with one home, and the links that cross them; each direction towards the cloud comes before the other."""

    media: dict[str, None]
    links: list[Ends]

    @property
    def above(self) -> list[str]:
        """The upper nodes of the links."""
        return list(dict.fromkeys(target for _, target in self.links[::2]))

    def common(self, hosts: Mapping[str, str]) -> set[str]:
        """The hosts that all links pass."""
        return set.intersection(*({hosts[source], hosts[target]} for source, target in self.links))


def ways(links: Iterable[LinkPlan], faults: Iterable[Fault]) -> list[Way]:
    """Every way of each link through channels: as planned, and after handovers."""
    planned = [(link.source, link.target, link.crossings) for link in links if link.crossings]
    return planned + [way for fault in faults for way in fault.crossings]


def media_homes(
    ways: Iterable[Way], hosts: Mapping[str, str], before: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The home of each medium that links cross; a medium without a possible home is missing. ``hosts``: of the nodes; a
    link of another node does not count. ``before``: homes that stay if they can."""
    homes: dict[str, str] = {}
    for group in _groups(ways, hosts):
        common = group.common(hosts)
        (source, target) = group.links[0]
        preferred = [*((before or {}).get(medium) for medium in group.media), hosts[target], hosts[source]]
        home = next((each for each in preferred if each in common), None)
        if home is not None:
            homes |= dict.fromkeys(group.media, home)
    return homes


def without_home(ways: Iterable[Way], hosts: Mapping[str, str], node: str | None = None) -> PlanError | None:
    """The error for media that have no home. ``node``: only those that its links cross."""
    for group in _groups(ways, hosts):
        if node is not None and not any(node in link for link in group.links):
            continue
        if not group.common(hosts):
            pairs = (pair for pair in combinations(group.links, 2) if not _Group({}, [*pair]).common(hosts))
            shown = next(pairs, (group.links[0], group.links[-1]))
            one, other = (f"{source} ({hosts[source]}) -> {target} ({hosts[target]})" for source, target in shown)
            return PlanError(
                ("shared", next(iter(group.media))),
                f"the links of {text.some(group.media)} pass no common host that could queue their packets: {one},"
                f" {other}; give {text.some(group.above)} one host in `hosts`",
            )
    return None


def media_groups(ways: Iterable[Way], nodes: Mapping[str, object]) -> dict[str, str]:
    """The upper nodes that share a medium, each with the first of them: on one host, they give it a home."""
    return {node: group.above[0] for group in _groups(ways, nodes) for node in group.above[1:]}


def _groups(ways: Iterable[Way], nodes: Mapping[str, object]) -> list[_Group]:
    crossed: defaultdict[Ends, dict[str, None]] = defaultdict(dict)
    for source, target, way in ways:
        if source in nodes and target in nodes:
            crossed[source, target] |= dict.fromkeys(medium_of(each.channel) for each in way)
    groups: list[_Group] = []
    for link, media in crossed.items():
        merged = _Group({}, [])
        for group in [each for each in groups if each.media.keys() & media.keys()]:
            groups.remove(group)
            merged.media.update(group.media)
            merged.links.extend(group.links)
        merged.media.update(media)
        merged.links.append(link)
        groups.append(merged)
    return groups
