"""Which channels each link crosses, and in which order: the members and the routes of a scenario's shared media.

A link first crosses the medium of its lower node, then its own medium. `routes` gives the order where a link crosses
two of one kind. The reverse direction crosses the media in the reverse order.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from netem.media.profile import ChannelProfile, Crossing
from netem.units import format_duration, format_rate, parse_rate
from orchestrator import text
from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import shortened
from orchestrator.scenario.media.section import MediumSpec, buffer_of, buffer_values, channel_names
from orchestrator.scenario.sections.topology import Ends, Pair, unknown_node

Shared = Mapping[str, MediumSpec]
Routes = Mapping[str, Sequence[str]]  # the media of links, by link or pattern
_Way = tuple[Crossing, ...]  # the channels that a direction crosses
_NAME = re.compile("[a-z0-9][a-z0-9-]{0,39}")
_LINK = re.compile(r"(\S+) <-> (\S+)")


class _Use(NamedTuple):
    """A link's use of a medium: as which member, and whether that is its lower node."""

    medium: str
    member: str
    by_node: bool


@dataclass
class ResolvedMedia:
    """The ``channels`` and ``members`` of media, the ``crossings`` of directions, and the ``mistakes``."""

    channels: dict[str, dict[str, ChannelProfile]] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    crossings: dict[Ends, tuple[Crossing, ...]] = field(default_factory=dict)
    mistakes: list[tuple[KeyPath, str]] = field(default_factory=list)

    @cached_property
    def _media_by_member(self) -> dict[str, list[str]]:
        media: defaultdict[str, list[str]] = defaultdict(list)
        for medium, members in self.members.items():
            for member in members:
                media[member].append(medium)
        return media

    @cached_property
    def _ends_by_member(self) -> dict[str, list[Ends]]:
        links: defaultdict[str, list[Ends]] = defaultdict(list)
        for ends, way in self.crossings.items():
            for member in {crossing.member for crossing in way}:
                links[member].append(ends)
        return links

    def on(self, medium: str, direction: str | None) -> list[str]:
        """The channels of a medium; ``direction``: only the one up or down."""
        channels = list(self.channels[medium])
        if direction is None:
            return channels
        wanted = f"{medium} {direction}"
        return [name for name in channels if name == wanted]

    def crossing(self, channels: Collection[str]) -> tuple[Ends, ...]:
        """The directions that cross one of these channels."""
        directions = []
        for ends, way in self.crossings.items():
            crossed = {crossing.channel for crossing in way}
            if not crossed.isdisjoint(channels):
                directions.append(ends)
        return tuple(directions)

    def medium_of(self, node: str) -> str | None:
        """The medium that a node is in; None if there is none, or several."""
        media = self._media_by_member.get(node, [])
        if len(media) != 1:
            return None
        return media[0]

    def handed_over(
        self,
        node: str,
        to: str,
    ) -> tuple[tuple[str, str, _Way], ...]:
        """The directions of a node's links in its medium, with their crossings in another medium instead."""
        is_half = len(self.channels[to]) == 1
        up, down = channel_names(to, half=is_half)
        directions = []
        for ends in self._ends_by_member[node]:
            source, target = ends
            channel = up if source == node else down
            way = []
            for crossing in self.crossings[ends]:
                if crossing.member == node:
                    way.append(Crossing(channel, node))
                else:
                    way.append(crossing)
            directions.append((source, target, tuple(way)))
        return tuple(directions)

    def changed(
        self,
        channel: str,
        medium: str,
        keys: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The values that keys of a fault (``rate``, ``buffer``) give a channel's profile. A buffer that is not among
        them keeps its time or size, unless it is the default. No member keeps a rate above that of the channel.
        ValueError if no packet fits, or if the rate is above the planned one."""
        now = self.channels[medium][channel]
        rate = now.rate
        changes: dict[str, Any] = {}
        if "rate" in keys:
            rate = parse_rate(keys["rate"])
            if rate > now.rate:
                most = format_rate(now.rate)
                raise ValueError(f"rate: {format_rate(rate)} is more than {channel} has, {most}: lower it")
            changes["rate"] = rate
            if now.rates:
                changes["rates"] = _lowered(now.rates, rate)
        if "buffer" in keys:
            return changes | buffer_values(keys["buffer"], rate)
        if now.size is not None:
            return changes
        if now.buffer == buffer_of(None, now.rate):
            default = buffer_of(None, rate)
            if default != now.buffer:
                changes["buffer"] = default
            return changes
        seconds = round(now.buffer, 9)
        buffer_of(format_duration(seconds), rate)  # ValueError if no packet fits at this rate
        return changes


def _lowered(rates: Mapping[str, float], most: float) -> dict[str, float]:
    """The rates of members, none above ``most``."""
    limited = {}
    for member, rate in rates.items():
        limited[member] = min(rate, most)
    return limited


def matches(pattern: str, name: str) -> bool:
    """Whether a name is that of a pattern, in which ``*`` stands for any text."""
    return re.fullmatch(regex(pattern), name) is not None


def regex(pattern: str) -> str:
    only_asterisks = re.sub(r"[?[]", r"[\g<0>]", pattern)
    return fnmatch.translate(only_asterisks)  # takes no exponential time for many asterisks


def joined(pair: Pair) -> str:
    """A link in words, as members have it: ``edge-0 <-> cloud``."""
    return f"{pair.lower} <-> {pair.upper}"


def resolve_media(
    shared: Shared,
    routes: Routes,
    pairs: Sequence[Pair],
    targets: Collection[str] = (),
) -> ResolvedMedia:
    """The media of links between these pairs. ``targets``: of handovers; they need no member at first."""
    resolver = _Resolver(shared, pairs)
    for name, spec in shared.items():
        resolver.add(name, spec, is_target=name in targets)
    resolver.cross(routes)
    return resolver.resolved


class _Resolver:
    """Finds the links that use each medium, and the order in which a link crosses them. Mistakes are noted."""

    def __init__(self, shared: Shared, pairs: Sequence[Pair]) -> None:
        nodes: dict[str, None] = {}
        for pair in pairs:
            nodes |= dict.fromkeys(pair.up)
        self.resolved = ResolvedMedia()
        self._shared = shared
        self._pairs = pairs
        self._nodes = list(nodes)
        self._uses: defaultdict[Pair, list[_Use]] = defaultdict(list)

    def add(self, name: str, spec: MediumSpec, *, is_target: bool) -> None:
        """Take a medium with its members and channels."""
        path = ("shared", name)
        why = self._why_no_name(name)
        if why:
            self._note(path, f"'{shortened(name)}' {why}; a medium is named like cell-0")
        members = self._members(name, spec)
        has_members = "members" in spec.model_fields_set
        if not has_members and not is_target:
            why = "no link crosses it: give it members, like members: [device-*], or members: [] for handovers to it"
            self._note(path, why)
        if is_target or not spec.members:
            rates = self._rates(name, spec, None)
        else:
            rates = self._rates(name, spec, members)
        channels = spec.channels(name, rates)
        self.resolved.members[name] = tuple(members)
        self.resolved.channels[name] = channels

    def _why_no_name(self, name: str) -> str:
        """Why a medium cannot have a name; empty if it can."""
        if name in self._nodes:
            return "is a node"
        if not _NAME.fullmatch(name):
            return "cannot be a name: write at most 40 lower-case letters, digits and hyphens"
        return ""

    def cross(self, routes: Routes) -> None:
        """Put the media of each link in order."""
        order = self._order(routes)
        for pair, uses in self._uses.items():
            listed = order.get(pair)
            if listed:
                way = _in_order(uses, listed)
            else:
                way = sorted(uses, key=lambda use: not use.by_node)
            if listed is None and not self._has_mistaken_routes():
                self._check_obvious(pair, way)
            self._assign(pair, way)

    def _assign(self, pair: Pair, way: Sequence[_Use]) -> None:
        """Note which channels both directions of a link cross. ``way``: from its lower end."""
        up = []
        down = []
        for use in way:
            half = self._shared[use.medium].half
            channel_up, channel_down = channel_names(use.medium, half=half)
            up.append(Crossing(channel_up, use.member))
            down.append(Crossing(channel_down, use.member))
        down.reverse()
        self.resolved.crossings[pair.up] = tuple(up)
        self.resolved.crossings[pair.down] = tuple(down)

    def _has_mistaken_routes(self) -> bool:
        for path, _ in self.resolved.mistakes:
            if path[0] == "routes":
                return True
        return False

    def _note(self, path: KeyPath, mistake: object) -> None:
        self.resolved.mistakes.append((path, str(mistake)))

    def _members(self, name: str, spec: MediumSpec) -> Collection[str]:
        """The members of a medium; notes its use by each link."""
        members: dict[str, None] = {}
        for position, written in enumerate(spec.members):
            try:
                for member, pair, by_node in self._named(written):
                    uses = self._uses[pair]
                    if any(use.medium == name for use in uses):
                        raise ValueError(
                            f"the link {joined(pair)} is in it twice: leave {written} or another member out"
                        )
                    uses.append(_Use(name, member, by_node))
                    members[member] = None
            except ValueError as error:
                path = ("shared", name, "members", position)
                self._note(path, error)
        return members.keys()

    def _named(self, written: str) -> list[tuple[str, Pair, bool]]:
        """The links of a member: its name, the link, and whether it is the lower node. ValueError if none."""
        links = []
        if _LINK.fullmatch(written):
            for pair in self._links(written):
                links.append((joined(pair), pair, False))
            return links
        if " " in written or ">" in written:
            raise ValueError(
                f"'{shortened(written)}' is neither a node nor a link: write a node, or a link as 'edge-0 <-> cloud'"
            )
        nodes = self._matching(written)
        for pair in self._pairs:
            if pair.lower in nodes and pair.link_class != "edge-edge":
                links.append((pair.lower, pair, True))
        if not links:
            raise ValueError(f"{written} has no link to a tier above: name its links, like '* <-> {written}'")
        return links

    def _links(self, written: str) -> list[Pair]:
        """The links of a pattern ``a <-> b``, with either end first. ValueError if there are none."""
        match = _LINK.fullmatch(written)
        if match is None:
            raise ValueError(
                f"'{shortened(written)}' is no link: write it as 'edge-0 <-> cloud'; * stands for any text"
            )
        a = self._matching(match[1])
        b = self._matching(match[2])
        links = []
        for pair in self._pairs:
            as_written = pair.lower in a and pair.upper in b
            reverse = pair.lower in b and pair.upper in a
            if as_written or reverse:
                links.append(pair)
        if not links:
            raise ValueError(f"the topology has no link {written}")
        return links

    def _matching(self, written: str) -> set[str]:
        """The nodes of a pattern. ValueError if there are none."""
        nodes = set()
        for node in self._nodes:
            if matches(written, node):
                nodes.add(node)
        if nodes:
            return nodes
        message = unknown_node(written, self._nodes)
        if "*" in written:
            message = message.replace("there is no node", "no node matches")
        raise ValueError(message)

    def _rates(
        self,
        name: str,
        spec: MediumSpec,
        members: Collection[str] | None,
    ) -> dict[str, float]:
        """The rates of single members. ``members``: those that may have one; None: every node and link."""
        rates: dict[str, float] = {}
        by_pattern = sorted(spec.rates.items(), key=_exactness)
        for written, rate in by_pattern:
            try:
                named = {}
                for member, _, _ in self._named(written):
                    if members is None or member in members:
                        named[member] = rate
                if not named:
                    raise ValueError(f"{written} is no member of {name}: add it to members, or leave its rate out")
                rates |= named
            except ValueError as error:
                path = ("shared", name, "rates", written)
                self._note(path, error)
        return rates

    def _order(
        self,
        routes: Routes,
    ) -> dict[Pair, Sequence[str]]:
        """The media of each link that a route names, from the lower end to the upper one."""
        order: dict[Pair, Sequence[str]] = {}
        by_pattern = sorted(routes.items(), key=_exactness)
        for written, media in by_pattern:
            try:
                self._check_route(media)
                for pair in self._links(written):
                    self._check_complete(pair, media)
                    order[pair] = media
            except ValueError as error:
                self._note(("routes", written), error)
        return order

    def _check_route(self, media: Sequence[str]) -> None:
        """ValueError if a route has an unknown medium, or one twice."""
        for medium in media:
            if medium not in self._shared:
                raise ValueError(unknown_medium(medium, self._shared))
            if media.count(medium) > 1:
                raise ValueError(f"{medium} is in it twice: a packet crosses a medium once")

    def _check_complete(self, pair: Pair, media: Sequence[str]) -> None:
        """ValueError if a route has other media than a link crosses."""
        link = joined(pair)
        uses = self._uses.get(pair, ())
        crossed = {use.medium for use in uses}
        for medium in media:
            if medium not in crossed:
                raise ValueError(f"{link} is not in {medium}: add it to shared.{medium}.members")
        missing = sorted(crossed - set(media))
        if missing:
            raise ValueError(f"{link} also crosses {text.some(missing)}: add it to the list")

    def _check_obvious(self, pair: Pair, way: Sequence[_Use]) -> None:
        """Note a mistake, once for two media, if the order of a link's media follows from no rule."""
        link = joined(pair)
        media = [use.medium for use in way]
        route = f"routes: {{{link}: [{', '.join(media)}]}}"
        for first, second in itertools.pairwise(way):
            if first.by_node != second.by_node:
                continue
            path: KeyPath = ("shared", second.medium)
            noted = [mistaken for mistaken, _ in self.resolved.mistakes]
            if path not in noted:
                self._note(path, f"{link} is in {first.medium} too: give the order, like {route}")


def _in_order(uses: Iterable[_Use], media: Sequence[str]) -> list[_Use]:
    """The uses in the order of their media."""
    positions = {}
    for position, medium in enumerate(media):
        positions[medium] = position
    return sorted(uses, key=lambda use: positions[use.medium])


def _exactness(entry: tuple[str, object]) -> int:
    """The order of entries by pattern: one with fewer asterisks replaces one with more."""
    pattern, _ = entry
    return -pattern.count("*")


def unknown_medium(name: str, media: Collection[str]) -> str:
    """The message for a medium that the scenario does not have."""
    if not media:
        return f"there is no medium '{shortened(name)}': define it in `shared`"
    return unknown("shared medium", name, media)
