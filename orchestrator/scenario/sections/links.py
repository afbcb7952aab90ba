"""Links in a scenario: profiles by name or by value, and their order of precedence.

    device-edge: wifi                                        a named profile, both ways
    device-edge: lte                                         lte towards the device, lte-up from it
    edge-cloud: {latency: 40ms, loss: 0.5%, rate: 50mbit}    a profile by value
    edge-cloud: {profile: wan-eu, rate: 50mbit}              a named one, changed
    device-edge: {rate: 50mbit, up: {rate: 5mbit}}           otherwise upwards
    device-edge: {profile: lte, schedule: {...}}             changing over time, see `ScheduleSpec`
    device-1-2 -> edge-1: {loss: 3%}                         one direction of one link, over its class
    edge-0 <-> cloud: {latency: 200ms}                       both directions of one link
    device-edge: {profile: lte, nat_timeout: 60s}            a NAT before the device forgets idle flows
    device-edge: {profile: lte, mtu: 1400}                   the largest packet of both directions, in bytes
    device-edge: real                                        the network between the hosts is the link, not shaped

A class of links starts from an unimpaired link. An entry for two nodes starts from their class, unless it names a
profile. It inherits the schedule of the class; its own schedule, or ``schedule: null``, replaces that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from netem.errors import ProfileError
from netem.library import PROFILES
from netem.profile import LARGEST_MTU, SMALLEST_MTU, LinkProfile
from netem.schedules.schedule import Schedule
from orchestrator.scenario.catalogue import CATALOGUE, REAL, Catalogue
from orchestrator.scenario.language.quantities import Duration
from orchestrator.scenario.language.strict import nearest
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.sections.profiles import UNIMPAIRED, LinkKeys
from orchestrator.scenario.sections.schedules import ScheduleSpec
from orchestrator.scenario.sections.topology import LINK_CLASSES, Ends, Pair, unknown_node

DEFAULT_PROFILE = "lan"
_PROFILE_SCHEMA = {"type": "string", "enum": [*sorted(PROFILES), REAL]}


class DirectionSpec(LinkKeys):
    """One direction of a link: its settings and how they change over time, or the real network between hosts."""

    can_be_real: ClassVar[bool] = True

    profile: Annotated[str | None, WithJsonSchema(_PROFILE_SCHEMA)] = Field(
        default=None,
        description="the named profile to start from; the keys next to it change it. real: the network between the "
        "hosts is the link, and edgebed does not shape it",
    )
    schedule: ScheduleSpec | None = Field(
        default=None, description="how the link changes during the run; null: not at all, whatever its class does"
    )

    def changes(self, *, upward: bool = False) -> dict[str, Any]:
        if self.profile == REAL:
            return UNIMPAIRED | {"real": True} | self.given()
        changes = super().changes(upward=upward)
        if self.profile is None:
            return changes
        return {"real": False} | changes

    @property
    def has_schedule(self) -> bool:
        return "schedule" in self.model_fields_set


class LinkSpec(DirectionSpec):
    """The settings of both directions of a link; ``up`` (towards the cloud) and ``down`` change one of them. A class of
    links starts from an unimpaired link: no latency, no loss, unlimited rate. An entry for two nodes starts from the
    settings of their class."""

    up: DirectionSpec | None = Field(default=None, description="changes to the direction towards the cloud")
    down: DirectionSpec | None = Field(default=None, description="changes to the direction away from the cloud")
    nat_timeout: Duration | None = Field(
        default=None,
        gt=0,
        description="a NAT before the node that is further from the cloud: without a packet for this time, in either "
        "direction, it forgets a flow that the node has started, and drops what comes for it until the node sends "
        "again; null: no NAT, whatever its class has",
    )
    mtu: int | None = Field(
        default=None,
        ge=SMALLEST_MTU,
        le=LARGEST_MTU,
        description="the largest IP packet of both directions, in bytes; below 1280 the link has IPv4 only; null: that "
        "of the nodes' interfaces, 1500, whatever its class has",
    )

    def directions(self, *, level: bool) -> tuple[LinkProfile, LinkProfile]:
        """The profiles up and down of a class; ``level``: both ends are in one tier. ProfileError for
        contradictions."""
        up = self.changes(upward=not level)
        down = self.changes()
        if self.up is not None:
            up |= self.up.changes()
        if self.down is not None:
            down |= self.down.changes()
        return LinkProfile.from_mapping(up), LinkProfile.from_mapping(down)

    def schedules(self, *, level: bool) -> tuple[Schedule | None, Schedule | None]:
        """The schedules up and down of a class of links; ``level`` as in `directions`."""
        up = self._schedule(self.up, upward=not level)
        down = self._schedule(self.down, upward=False)
        return up, down

    def _schedule(self, side: DirectionSpec | None, *, upward: bool) -> Schedule | None:
        if side is not None and side.has_schedule:
            spec = side.schedule
        else:
            spec = self.schedule
        if spec is None:
            return None
        return spec.of_direction(upward=upward)


def link_of(profile: str, catalogue: Catalogue) -> LinkSpec:
    """The link with a named profile of a catalogue."""
    return LinkSpec.model_validate({"profile": profile}, context={CATALOGUE: catalogue})


Mistake = tuple[KeyPath, str]
_BETWEEN_EDGES = "neither of two edges is behind the other"
_PAIR = re.compile(r"(\S+) (<?->) (\S+)")


@dataclass
class Resolved:
    """The links of a scenario, by direction: ``profiles`` at the start and before training, ``schedules`` if any,
    ``extremes`` (the profiles to assume), the entries that made links ``real``, the time-outs of ``nats``, the
    ``mtus`` of links that have one, and the ``mistakes`` that were found."""

    profiles: dict[Ends, LinkProfile] = field(default_factory=dict)
    schedules: dict[Ends, Schedule] = field(default_factory=dict)
    extremes: dict[Ends, list[LinkProfile]] = field(default_factory=dict)
    real: dict[Ends, KeyPath] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    nats: dict[Ends, float] = field(default_factory=dict)  # time-outs in s, by the direction that a NAT closes
    mtus: dict[Ends, int] = field(default_factory=dict)  # in bytes; a link has the same in both directions
    places: dict[Ends, KeyPath] = field(default_factory=dict)  # the path of each direction's schedule

    def assign(self, direction: Ends, profile: LinkProfile, entry: KeyPath) -> None:
        self.profiles[direction] = profile
        if profile.real:
            self.real[direction] = entry
        else:
            self.real.pop(direction, None)

    def schedule(self, direction: Ends, schedule: Schedule | None, place: KeyPath) -> None:
        self.schedules.pop(direction, None)
        if schedule is not None:
            self.schedules[direction] = schedule
            self.places[direction] = place

    def translate(self, inwards: Ends, timeout: float | None) -> None:
        """Put a NAT at the end of a direction, or none."""
        self.nats.pop(inwards, None)
        if timeout is not None:
            self.nats[inwards] = timeout

    def limit(self, direction: Ends, mtu: int | None) -> None:
        """Set the largest packet of a direction; None: that of the nodes' interfaces."""
        self.mtus.pop(direction, None)
        if mtu is not None:
            self.mtus[direction] = mtu


def resolve(links: Mapping[str, LinkSpec], pairs: Sequence[Pair]) -> Resolved:
    """Resolve every direction between these pairs: first the classes, then the entries for two nodes."""
    resolved = Resolved()
    used = {pair.link_class: None for pair in pairs}
    for link_class in used:
        spec = links.get(link_class) or LinkSpec(profile=DEFAULT_PROFILE)
        try:
            _for_class(link_class, spec, pairs, resolved)
        except ValueError as error:
            resolved.mistakes.append((("links", link_class), str(error)))
            _for_class(link_class, LinkSpec(), pairs, resolved)  # the links exist, so other entries can be checked
    upward = {(pair.lower, pair.upper) for pair in pairs if pair.link_class != "edge-edge"}
    for key, spec in links.items():
        has_sides_between_edges = key == "edge-edge" and (spec.up or spec.down)
        if key in used and not has_sides_between_edges:
            continue
        try:
            _for_two_nodes(key, spec, resolved, used.keys(), upward)
        except ValueError as error:
            resolved.mistakes.append((("links", key), str(error)))
    _lay_over(resolved)
    return resolved


def _for_class(
    link_class: str,
    spec: LinkSpec,
    pairs: Sequence[Pair],
    resolved: Resolved,
) -> None:
    level = link_class == "edge-edge"
    profile_up, profile_down = spec.directions(level=level)
    if level:
        _refuse_sides(spec.schedule, "between edges; name one file")
        _refuse_nat(spec, _BETWEEN_EDGES)
    schedule_up, schedule_down = spec.schedules(level=level)
    path_up = _schedule_path(link_class, "up", spec.up)
    path_down = _schedule_path(link_class, "down", spec.down)
    entry = ("links", link_class)
    for pair in pairs:
        if pair.link_class == link_class:
            resolved.assign(pair.up, profile_up, entry)
            resolved.assign(pair.down, profile_down, entry)
            resolved.schedule(pair.up, schedule_up, path_up)
            resolved.schedule(pair.down, schedule_down, path_down)
            resolved.limit(pair.up, spec.mtu)
            resolved.limit(pair.down, spec.mtu)
            resolved.translate(pair.down, spec.nat_timeout)


def _schedule_path(link_class: str, side: str, spec: DirectionSpec | None) -> KeyPath:
    """The path of the schedule of one side of a class."""
    if spec is not None and spec.has_schedule:
        return ("links", link_class, side, "schedule")
    return ("links", link_class, "schedule")


def _for_two_nodes(
    key: str,
    spec: LinkSpec,
    resolved: Resolved,
    used: Set[str],
    upward: Set[Ends],
) -> None:
    """Apply the entry ``a -> b`` or ``a <-> b``. Raises ValueError for any other key."""
    first, arrow, second = _pair(key, spec, used).groups()
    both = arrow == "<->"  # for one direction, the profile's name is taken literally, without its -up partner
    directions = [(first, second)]
    if both:
        directions.append((second, first))
    profiles = resolved.profiles
    if (first, second) not in profiles:
        raise ValueError(_no_link(first, second, profiles))
    if not both or upward.isdisjoint(directions):
        _refuse_sides(spec.schedule, "here; name one file")
        why = _BETWEEN_EDGES if both else f"write '{first} <-> {second}', it needs both directions"
        _refuse_nat(spec, why)
    if not both and spec.mtu is not None:
        raise ValueError(f"mtu: write '{first} <-> {second}', both directions have the same")
    for direction in directions:
        up = both and direction in upward
        changes = spec.changes(upward=up)
        resolved.assign(direction, profiles[direction].merged(changes), ("links", key))
        if spec.has_schedule or spec.profile is not None:
            if spec.schedule is None:
                schedule = None
            else:
                schedule = spec.schedule.of_direction(upward=up)
            resolved.schedule(direction, schedule, ("links", key, "schedule"))
        if both and not up and "nat_timeout" in spec.model_fields_set:
            resolved.translate(direction, spec.nat_timeout)
        if both and "mtu" in spec.model_fields_set:
            resolved.limit(direction, spec.mtu)


def _no_link(first: str, second: str, directions: Iterable[Ends]) -> str:
    """The message that two nodes have no link, or that there is no such node."""
    names: set[str] = set()
    for direction in directions:
        names.update(direction)
    for name in (first, second):
        if name not in names:
            return unknown_node(name, names)
    return f"{first} and {second} have no link"


def _pair(key: str, spec: LinkSpec, used: Set[str]) -> re.Match[str]:
    if key == "edge-edge" and key in used:
        raise ValueError("up and down have no meaning between edges; write 'edge-0 -> edge-1' for one direction")
    if key in LINK_CLASSES:
        raise ValueError(f"the topology has no such links; it has {', '.join(sorted(used))}")
    match = _PAIR.fullmatch(key)
    if match is None:
        allowed = ", ".join(LINK_CLASSES)
        raise ValueError(f"unknown key{nearest(key, LINK_CLASSES)} (allowed here: {allowed}, 'a -> b', 'a <-> b')")
    if spec.up or spec.down:
        raise ValueError(f"up and down go with a class of links; write '{match[1]} -> {match[3]}' for one direction")
    return match


def _refuse_sides(schedule: ScheduleSpec | None, where: str) -> None:
    if schedule is not None and schedule.has_sides:
        raise ValueError(f"schedule: up and down have no meaning {where}")


def _refuse_nat(spec: LinkSpec, why: str) -> None:
    if spec.nat_timeout is not None:
        raise ValueError(f"nat_timeout: {why}")


def _lay_over(resolved: Resolved) -> None:
    """Apply every schedule to its profile: record the extreme profiles, or a mistake if they do not fit together."""
    known: dict[tuple[int, LinkProfile], list[LinkProfile]] = {}
    for direction, profile in resolved.profiles.items():
        schedule = resolved.schedules.get(direction)
        extremes = [profile]
        if schedule is not None and profile.real:
            _mistake(resolved, direction, "a real link is as it is and follows no schedule")
        elif schedule is not None:
            key = id(schedule), profile
            try:
                if key in known:
                    extremes = known[key]
                else:
                    extremes = schedule.extremes(profile)
            except ProfileError as error:
                _mistake(resolved, direction, str(error))
            known[key] = extremes
        resolved.extremes[direction] = extremes


def _mistake(resolved: Resolved, direction: Ends, message: str) -> None:
    """Note a mistake once for each entry."""
    path = resolved.places[direction]
    noted = [mistaken for mistaken, _ in resolved.mistakes]
    if path not in noted:
        source, target = direction
        resolved.mistakes.append((path, f"on the link {source} -> {target}: {message}"))
