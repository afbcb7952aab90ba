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
        upward = self.links[::2]
        return list(dict.fromkeys(target for _, target in upward))

    def common(self, hosts: Mapping[str, str]) -> set[str]:
        """The hosts that all links pass."""
        source, target = self.links[0]
        common = {hosts[source], hosts[target]}
        for source, target in self.links[1:]:
            common &= {hosts[source], hosts[target]}
        return common


def ways(links: Iterable[LinkPlan], faults: Iterable[Fault]) -> list[Way]:
    """Every way of each link through channels: as planned, and after handovers."""
    through_channels = []
    for link in links:
        if link.crossings:
            through_channels.append((link.source, link.target, link.crossings))
    for fault in faults:
        through_channels.extend(fault.crossings)
    return through_channels


def media_homes(
    ways: Iterable[Way],
    hosts: Mapping[str, str],
    before: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The home of each medium that links cross; a medium without a possible home is missing. ``hosts``: of the nodes; a
    link of another node does not count. ``before``: homes that stay if they can."""
    homes: dict[str, str] = {}
    for group in _groups(ways, hosts):
        home = _home(group, hosts, before or {})
        if home is not None:
            homes |= dict.fromkeys(group.media, home)
    return homes


def _home(
    group: _Group,
    hosts: Mapping[str, str],
    before: Mapping[str, str],
) -> str | None:
    """An earlier home if it is still possible, else the host of an upper node, else that of a lower one."""
    common = group.common(hosts)
    for medium in group.media:
        if medium in before and before[medium] in common:
            return before[medium]
    source, target = group.links[0]
    for node in (target, source):
        if hosts[node] in common:
            return hosts[node]
    return None


def without_home(
    ways: Iterable[Way],
    hosts: Mapping[str, str],
    node: str | None = None,
) -> PlanError | None:
    """The error for media that have no home. ``node``: only those that its links cross."""
    for group in _groups(ways, hosts):
        concerned = node is None or any(node in link for link in group.links)
        if concerned and not group.common(hosts):
            first, second = _apart(group, hosts)
            one = _on_their_hosts(first, hosts)
            other = _on_their_hosts(second, hosts)
            medium = next(iter(group.media))
            return PlanError(
                ("shared", medium),
                f"the links of {text.some(group.media)} pass no common host that could queue their packets: {one},"
                f" {other}; give {text.some(group.above)} one host in `hosts`",
            )
    return None


def _apart(group: _Group, hosts: Mapping[str, str]) -> tuple[Ends, Ends]:
    """Two links of a group without a common host; if each two have one, the first and the last."""
    for pair in combinations(group.links, 2):
        if not _Group({}, [*pair]).common(hosts):
            return pair
    return group.links[0], group.links[-1]


def _on_their_hosts(link: Ends, hosts: Mapping[str, str]) -> str:
    source, target = link
    return f"{source} ({hosts[source]}) -> {target} ({hosts[target]})"


def media_groups(
    ways: Iterable[Way],
    nodes: Mapping[str, object],
) -> dict[str, str]:
    """The upper nodes that share a medium, each with the first of them: on one host, they give it a home."""
    first_by_node = {}
    for group in _groups(ways, nodes):
        first, *others = group.above
        for node in others:
            first_by_node[node] = first
    return first_by_node


def _groups(ways: Iterable[Way], nodes: Mapping[str, object]) -> list[_Group]:
    media_by_link: defaultdict[Ends, dict[str, None]] = defaultdict(dict)
    for source, target, crossings in ways:
        if source in nodes and target in nodes:
            media = media_by_link[source, target]
            for crossing in crossings:
                media[medium_of(crossing.channel)] = None
    groups: list[_Group] = []
    for link, media in media_by_link.items():
        merged = _Group({}, [])
        for group in list(groups):
            if group.media.keys() & media.keys():
                groups.remove(group)
                merged.media.update(group.media)
                merged.links.extend(group.links)
        merged.media.update(media)
        merged.links.append(link)
        groups.append(merged)
    return groups
