"""Shared media with the clients of a population as members.

Members are written as for single nodes: the clients are `device-0`, `device-1` and so on, and their links
`device-0 <-> cloud`. Only clients that take part need their channels, so these follow from the name of one client. A
scenario is checked with a few clients: the first ones, and for each pattern the one that is named like it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from netem.media.profile import Crossing
from orchestrator.scenario.media.routes import ResolvedMedia, Routes, Shared, joined, matches, regex, resolve_media
from orchestrator.scenario.sections.topology import Pair

LOOKED_AT = 1000  # clients

_Crossings = tuple[Crossing, ...]
_Way = list[tuple[str, bool]]  # the channels of a direction, and whether the client is a member or its link


def resolve_for_clients(
    shared: Shared,
    routes: Routes,
    clients: int,
) -> ResolvedMedia:
    """The media of a population of so many clients. ``members`` are the patterns, and no planned link crosses them."""
    numbers = set(range(min(clients, LOOKED_AT)))
    for pattern in _patterns(shared, routes):
        for filling in ("", "1"):  # "1": device-*000 has no device-000
            name = pattern.replace("*", filling)
            for digits in re.findall(r"\d{1,9}", name):
                number = int(digits)
                if number < clients:
                    numbers.add(number)
    pairs = [_pair(f"device-{number}") for number in sorted(numbers)]
    media = resolve_media(shared, routes, pairs)
    members = {}
    for name, spec in shared.items():
        members[name] = tuple(spec.members)
    return replace(media, members=members, crossings={})


def crossings_of(
    shared: Shared,
    routes: Routes,
) -> Callable[[str], tuple[_Crossings, _Crossings]]:
    """Gives the channels of a client's link, up and down; equal for clients that match the same patterns."""
    matchers = []
    for pattern in dict.fromkeys(_patterns(shared, routes)):
        expression = "|".join(_of_client(pattern))
        matchers.append(re.compile(expression).fullmatch)
    known: dict[tuple[bool, ...], tuple[_Way, _Way]] = {}

    def find(client: str) -> tuple[_Crossings, _Crossings]:
        pair = _pair(client)
        matched = tuple(matcher(client) is not None for matcher in matchers)
        if matched not in known:
            crossings = resolve_media(shared, routes, [pair]).crossings
            way_up = _way(crossings.get(pair.up, ()), client)
            way_down = _way(crossings.get(pair.down, ()), client)
            known[matched] = (way_up, way_down)
        way_up, way_down = known[matched]
        link = joined(pair)
        up = []
        for channel, by_node in way_up:
            member = client if by_node else link
            up.append(Crossing(channel, member))
        down = []
        for channel, by_node in way_down:
            member = client if by_node else link
            down.append(Crossing(channel, member))
        return tuple(up), tuple(down)

    return find


def _patterns(
    shared: Shared,
    routes: Routes,
) -> list[str]:
    """The names of links and members as the scenario has them."""
    patterns = list(routes)
    for spec in shared.values():
        patterns.extend(spec.members)
    return patterns


def _way(crossings: Sequence[Crossing], client: str) -> _Way:
    way = []
    for channel, member in crossings:
        by_node = member == client
        way.append((channel, by_node))
    return way


def _of_client(written: str) -> list[str]:
    """Regular expressions for the clients that a member or route names: as a node, or with either end of a link."""
    ends = written.split(" <-> ")
    if len(ends) == 1:
        return [regex(written)]
    first, second = ends
    expressions = []
    if matches(second, "cloud"):
        expressions.append(regex(first))
    if matches(first, "cloud"):
        expressions.append(regex(second))
    return expressions or ["(?!)"]  # which matches nothing


def _pair(client: str) -> Pair:
    return Pair(client, "cloud", "device-cloud")
