"""Shared media with the clients of a population as members.

Members are written as for single nodes: the clients are `device-0`, `device-1` and so on, and their links
`device-0 <-> cloud`. Only clients that take part need their channels, so these follow from the name of one client. A
scenario is checked with a few clients: the first ones, and for each pattern the one that is named like it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netem.media.profile import Crossing
from orchestrator.scenario.media.routes import ResolvedMedia, joined, matches, regex, resolve_media
from orchestrator.scenario.media.section import MediumSpec
from orchestrator.scenario.sections.topology import Pair

LOOKED_AT = 1000  # clients


def resolve_for_clients(
    shared: Mapping[str, MediumSpec], routes: Mapping[str, Sequence[str]], clients: int
) -> ResolvedMedia:
    """The media of a population of so many clients. ``members`` are the patterns, and no planned link crosses them."""
    written = [*routes, *(member for spec in shared.values() for member in spec.members)]
    named = [each.replace("*", text) for each in written for text in ("", "1")]  # "1": device-*000 has no device-000
    numbers = {int(number) for each in named for number in re.findall(r"\d{1,9}", each)}
    numbers = {number for number in numbers if number < clients} | set(range(min(clients, LOOKED_AT)))
    found = resolve_media(shared, routes, [_pair(f"device-{number}") for number in sorted(numbers)])
    members = {name: tuple(spec.members) for name, spec in shared.items()}
    return replace(found, members=members, crossings={})


def crossings_of(
    shared: Mapping[str, MediumSpec], routes: Mapping[str, Sequence[str]]
) -> Callable[[str], tuple[tuple[Crossing, ...], tuple[Crossing, ...]]]:
    """Gives the channels of a client's link, up and down; equal for clients that match the same patterns."""
    patterns = dict.fromkeys([*routes, *(member for spec in shared.values() for member in spec.members)])
    match = [re.compile("|".join(_of_client(each))).fullmatch for each in patterns]
    known: dict[tuple[bool, ...], tuple[list[tuple[str, bool]], list[tuple[str, bool]]]] = {}

    def find(client: str) -> tuple[tuple[Crossing, ...], tuple[Crossing, ...]]:
        pair = _pair(client)
        key = tuple(each(client) is not None for each in match)
        if key not in known:
            ways = resolve_media(shared, routes, [pair]).crossings
            up, down = (
                [(channel, member == client) for channel, member in ways.get(ends, ())]
                for ends in ((pair.lower, pair.upper), (pair.upper, pair.lower))
            )
            known[key] = up, down
        there, back = (
            tuple(Crossing(channel, client if by_node else joined(pair)) for channel, by_node in way)
            for way in known[key]
        )
        return there, back

    return find


def _of_client(written: str) -> list[str]:
    """Regular expressions for the clients that a member or route names: as a node, or with either end of a link."""
    ends = written.split(" <-> ")
    if len(ends) == 1:
        return [regex(written)]
    return [regex(end) for end, other in (ends, reversed(ends)) if matches(other, "cloud")] or ["(?!)"]


def _pair(client: str) -> Pair:
    return Pair(client, "cloud", "device-cloud")
