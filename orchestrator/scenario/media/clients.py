"""Shared media with the clients of a population as members.

Members are written as for single nodes: the clients are `device-0`, `device-1` and so on, and their links
`device-0 <-> cloud`. Only clients that take part need their channels, so these follow from the name of one client. A
scenario is checked with a few clients: the first ones, and for each pattern the one that is named like it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from netem.media.profile import Crossing
from orchestrator.scenario.media.routes import ResolvedMedia, resolve_media
from orchestrator.scenario.media.section import MediumSpec
from orchestrator.scenario.sections.topology import Pair

LOOKED_AT = 1000  # clients
_CLIENT = re.compile(r"device-(0|[1-9]\d{0,8})")


def resolve_for_clients(
    shared: Mapping[str, MediumSpec], routes: Mapping[str, Sequence[str]], clients: int
) -> ResolvedMedia:
    """The media of a population of so many clients. ``members`` are the patterns, and no planned link crosses them."""
    written = [*routes, *(member for spec in shared.values() for member in spec.members)]
    numbers = {int(number) for each in written for number in _CLIENT.findall(each.replace("*", ""))}
    numbers = {number for number in numbers if number < clients} | set(range(min(clients, LOOKED_AT)))
    found = resolve_media(shared, routes, [_pair(f"device-{number}") for number in sorted(numbers)])
    members = {name: tuple(spec.members) for name, spec in shared.items()}
    return replace(found, members=members, crossings={})


def crossings_of(
    shared: Mapping[str, MediumSpec], routes: Mapping[str, Sequence[str]], client: str
) -> tuple[tuple[Crossing, ...], tuple[Crossing, ...]]:
    """The channels that a client's link crosses towards the cloud and from it."""
    pair = _pair(client)
    crossings = resolve_media(shared, routes, [pair]).crossings
    return crossings.get((pair.lower, pair.upper), ()), crossings.get((pair.upper, pair.lower), ())


def _pair(client: str) -> Pair:
    return Pair(client, "cloud", "device-cloud")
