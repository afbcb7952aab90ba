"""The fault timeline: a scenario's rules become single faults with a time or round, a target and an end.

All random draws happen here, before the run starts: the same scenario and seed give the same list. The random stream of
a rule depends on its content, not on its position. So other rules can be added, removed or reordered without effect,
and a different number of rounds does not change the rounds that both have. Repeated equal rules draw differently.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netem.media.profile import Crossing
from netem.profile import KEYS
from node.assignment import derive_seed
from orchestrator.errors import PlanError
from orchestrator.scenario.media.routes import ResolvedMedia
from orchestrator.scenario.sections.faults import (
    HANDOVER,
    NEW_ADDRESS,
    ON_LINKS,
    POWER_OFF,
    FaultSpec,
    candidates,
    in_direction,
    links_between,
    links_by_node,
    program_label,
    upward,
)
from orchestrator.scenario.sections.topology import Ends, Topology

_IF_USED = (
    "medium",
    "channels",
    "to",
    "crossings",
    "event",
    "direction",
    "upward",
    "profile_up",
    "program",
)


@dataclass(frozen=True)
class FaultTime:
    """A time: seconds after training starts, or the start of a round of the leading node."""

    at: float | None
    round: int | None


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    It starts ``at`` seconds after training starts, with ``round`` of the leading node, or at the first ``event`` of
    that name. It ends after ``duration`` seconds, or with its round (``lasts_a_round``), or, with neither, with the
    run. Its target is one ``node``, or the links ``between`` two sides, each the names of its nodes, or a ``medium``
    (one direction of it: ``cell-0 up``).
    ``links``: the directions that are cut or changed (disconnect, partition, degrade); ``direction``: only those up or
    down. ``profile`` (degrade): the keys to merge into the profile of each of these links. Those in ``upward``, towards
    the cloud, get ``profile_up`` instead; both are only set if the directions differ. ``factor`` (slow): how many times
    longer steps take.
    ``program``: the label of the only program of the node that a crash or a pause hits.

    Shared media: ``channels`` (degrade and disconnect of a medium): the values to replace in each channel's profile,
    none for disconnect, which cuts the links that cross the channel at that time (``links``: those of the plan).
    ``crossings`` (handover): the source, the target and the crossings of each direction of the node's links from then
    on. ``to``: the medium that the node is handed over to. When a handover ends, the node is back in the medium of the
    plan, or in that of another handover that continues. ``to`` of a move: the edge that the device goes to.
    """

    id: int
    action: str
    node: str | None
    between: tuple[tuple[str, ...], tuple[str, ...]] | None
    at: float | None
    round: int | None
    duration: float | None
    lasts_a_round: bool = False
    links: tuple[Ends, ...] = ()
    profile: dict[str, Any] | None = None
    direction: str | None = None
    upward: tuple[Ends, ...] = ()
    profile_up: dict[str, Any] | None = None
    factor: float | None = None
    medium: str | None = None
    channels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    to: str | None = None
    program: str | None = None
    event: str | None = None
    crossings: tuple[tuple[str, str, tuple[Crossing, ...]], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data: the fault's entry in plan.json. What few faults have is left out if it is empty."""
        data = {}
        for key, value in vars(self).items():
            if value or key not in _IF_USED:
                data[key] = value
        return data

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Fault:
        read = dict(written)
        sides = written["between"]
        if sides is not None:
            read["between"] = (tuple(sides[0]), tuple(sides[1]))
        read["links"] = _read_links(written["links"])
        read["upward"] = _read_links(written.get("upward", ()))
        ways = written.get("crossings", ())
        read["crossings"] = tuple(_read_way(way) for way in ways)
        return cls(**read)

    def changes_by_link(self) -> dict[Ends, Mapping[str, Any]]:
        """By direction of a link: the keys that a degrade merges into its profile."""
        changes: dict[Ends, Mapping[str, Any]] = {}
        for link in self.links:
            changes[link] = self.profile or {}
        for link in self.upward:
            changes[link] = self.profile_up or {}
        return changes

    @property
    def target(self) -> str:
        """The node, the medium, or a short form of both sides: ``edge-0 | cloud``."""
        if self.medium is not None:
            return self.medium
        if self.program is not None:
            return f"program {self.program}"
        if self.node is not None:
            return self.node
        return " | ".join(_side(side) for side in self.between or ())


def _read_links(written: Iterable[Any]) -> tuple[Ends, ...]:
    return tuple((source, target) for source, target in written)


def _read_way(written: Any) -> tuple[str, str, tuple[Crossing, ...]]:
    source, target, crossings = written
    return source, target, tuple(Crossing(*crossing) for crossing in crossings)


def expand(
    specs: Sequence[FaultSpec],
    topology: Topology,
    links: Sequence[Ends],
    *,
    seed: int,
    rounds: int,
    after: float | None,
    media: ResolvedMedia | None = None,
) -> tuple[Fault, ...]:
    """All faults of a run: first those with a time, in order of time, then those with a round, in order of rounds,
    and then those with an event.

    ``links``: all directions of the topology. ``media``: the shared ones. ``after``: the scenario's stop.after. A
    fault that is drawn for a node before the node joins is left out. Raises PlanError if the faults
    contradict one another.
    """
    named: list[Fault] = []
    drawn: list[Fault] = []
    shared = media or ResolvedMedia()
    touching = links_by_node(links)
    repetitions: Counter[str] = Counter()
    for spec in specs:
        content = _content(spec)
        repetitions[content] += 1
        repetition = str(repetitions[content])
        rule_seed = derive_seed(seed, "fault", content, repetition)
        random = np.random.default_rng(rule_seed)
        targets = _targets(spec, topology, links, touching, shared)
        planned = _expand_one(spec, targets, random, rounds, after)
        if spec.of is None or spec.action == "join":
            named.extend(planned)
        else:
            drawn.extend(planned)
    join_times = joins(named)
    named_too_early = [fault for fault in named if _is_absent(fault, join_times)]
    _check_members([*named, *drawn], named_too_early)
    faults = list(named)
    for fault in drawn:
        if not _is_absent(fault, join_times):
            faults.append(fault)
    faults.sort(key=_order)
    numbered = []
    for number, fault in enumerate(faults, start=1):
        numbered.append(replace(fault, id=number))
    return tuple(numbered)


def _order(fault: Fault) -> tuple[bool, bool, float]:
    """Faults with a time come first, and those with an event last."""
    with_event = fault.event is not None
    with_round = fault.round is not None
    return with_event, with_round, fault.at or fault.round or 0


def joins(faults: Iterable[Fault]) -> dict[str, FaultTime]:
    """The join time of each node that joins late."""
    times = {}
    for fault in faults:
        if fault.action == "join" and fault.node:
            times[fault.node] = FaultTime(fault.at, fault.round)
    return times


def _side(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)})"


def _content(spec: FaultSpec) -> str:
    """The canonical text of a rule, equal for all ways to write it: sorted keys, quantities in the usual units."""
    written = spec.model_dump(mode="json")
    canonical = {}
    for key, value in written.items():
        if value is not None or key in KEYS:
            canonical[key] = value
    return json.dumps(canonical, sort_keys=True)


@dataclass(frozen=True)
class _Targets:
    """The possible targets of a rule: by position, the fault on that target, without its final id."""

    like: Fault
    nodes: Sequence[str]  # empty: the target is a medium, or the links between two sides
    spec: FaultSpec
    topology: Topology
    touching: Mapping[str, Sequence[Ends]]
    media: ResolvedMedia

    def __len__(self) -> int:
        return len(self.nodes) or 1

    def __getitem__(self, position: int) -> Fault:
        if not self.nodes:
            return self.like
        node = self.nodes[position]
        fault = replace(self.like, node=node)
        if fault.action == HANDOVER:
            assert fault.to is not None
            crossings = self.media.handed_over(node, fault.to)
            return replace(fault, crossings=crossings)
        if self.spec.program is not None:
            label = program_label(node, self.spec.program)
            return replace(fault, program=label)
        if fault.action not in (*ON_LINKS, POWER_OFF):
            return fault
        links_of_node = self.touching.get(node, ())
        return _on_links(fault, self.spec, self.topology, links_of_node)


def _targets(
    spec: FaultSpec,
    topology: Topology,
    links: Sequence[Ends],
    touching: Mapping[str, Sequence[Ends]],
    media: ResolvedMedia,
) -> _Targets:
    nodes: Sequence[str] = ()
    fault = Fault(
        id=0,
        action=spec.action,
        node=None,
        between=None,
        at=spec.at,
        round=spec.round,
        duration=spec.for_,
        factor=spec.factor,
        to=spec.to,
        event=spec.event,
    )
    if spec.medium is not None:
        fault = _on_medium(spec, spec.medium, fault, media)
    elif spec.between is None:
        nodes = candidates(spec, topology)
    else:
        a, b = (tuple(topology.expand(side)) for side in spec.between)
        between = links_between(set(a), set(b), links)
        fault = replace(fault, between=(a, b))
        fault = _on_links(fault, spec, topology, between)
    return _Targets(fault, nodes, spec, topology, touching, media)


def _on_links(
    fault: Fault,
    spec: FaultSpec,
    topology: Topology,
    links: Sequence[Ends],
) -> Fault:
    """The fault on these of the links' directions that its rule names."""
    links = in_direction(spec, topology, links)
    fault = replace(fault, links=links, direction=spec.direction)
    if spec.action != "degrade":
        return fault
    profile = spec.changes()
    profile_up = spec.changes(upward=True)
    fault = replace(fault, profile=profile)
    if profile_up == profile:
        return fault
    links_up = upward(links, topology)
    return replace(fault, upward=links_up, profile_up=profile_up)


def _on_medium(
    spec: FaultSpec,
    medium: str,
    fault: Fault,
    media: ResolvedMedia,
) -> Fault:
    channels = media.on(medium, spec.direction)
    place = medium if spec.direction is None else channels[0]
    links: tuple[Ends, ...] = ()
    changes: dict[str, Mapping[str, Any]] = {}
    for channel in channels:
        if spec.action == "disconnect":
            changes[channel] = {}
        else:
            changes[channel] = media.changed(channel, medium, spec.changes())
    if spec.action == "disconnect":
        links = media.crossing(channels)
    return replace(fault, medium=place, channels=changes, links=links)


def _expand_one(
    spec: FaultSpec,
    targets: _Targets,
    random: np.random.Generator,
    rounds: int,
    after: float | None,
) -> Iterator[Fault]:
    """The faults of one rule."""
    if spec.random is not None:
        mean = spec.random.mean
        until = after if spec.random.until is None else spec.random.until
        assert until is not None
        yield from _poisson(spec, targets, mean, until, random)
    elif spec.every_round is not None:
        lasts_a_round = spec.for_ is None
        expected = round(spec.every_round * len(targets), 9)
        for number in range(1, rounds + 1):
            amount = math.floor(expected + random.random())
            for target in _draw(targets, amount, random):
                yield replace(target, round=number, lasts_a_round=lasts_a_round)
    else:
        amount = _amount(spec, len(targets))
        yield from _draw(targets, amount, random)


def _amount(spec: FaultSpec, size: int) -> int:
    if spec.fraction is None:
        return spec.count or size
    rounded = math.floor(spec.fraction * size + 0.5)
    return max(1, rounded)


def _draw(
    targets: _Targets,
    amount: int,
    random: np.random.Generator,
) -> list[Fault]:
    """Draw ``amount`` of the targets without replacement; returns them in their order."""
    size = len(targets)
    positions: Sequence[int] = range(size)
    if amount < size:
        positions = sorted(random.choice(size, amount, replace=False))
    return [targets[position] for position in positions]


def _poisson(
    spec: FaultSpec,
    targets: _Targets,
    mean: float,
    until: float,
    random: np.random.Generator,
) -> Iterator[Fault]:
    """Draw events at exponential intervals. An event hits only targets that have no other fault of this rule then."""
    busy_until = [0.0] * len(targets)
    to_the_end = spec.for_ is None and spec.action != NEW_ADDRESS  # a new address takes no time
    duration = spec.for_ or 0.0
    if spec.of is not None and spec.fraction is None:
        amount = spec.count or 1
    else:
        amount = _amount(spec, len(targets))
    time = random.exponential(mean)
    while time < until:
        hit = [position for position, end in enumerate(busy_until) if end <= time]
        if amount < len(hit):
            hit = sorted(random.choice(hit, amount, replace=False))
        for position in hit:
            if to_the_end:
                busy_until[position] = math.inf
            else:
                busy_until[position] = time + duration
            at = round(time, 3)
            yield replace(targets[position], at=at)
        time += random.exponential(mean)


def _is_absent(fault: Fault, joined: Mapping[str, FaultTime]) -> bool:
    """Whether the fault's node joins only after the fault. False if one has a time and the other a round."""
    start = joined.get(fault.node or "")
    if start is None:
        return False
    if fault.at is not None and start.at is not None:
        return fault.at < start.at
    if fault.round is not None and start.round is not None:
        return fault.round < start.round
    return False


def _check_members(faults: Sequence[Fault], absent: Sequence[Fault]) -> None:
    """Check that a node joins at most once, leaves at most once, and has no named fault before it joins."""
    for action in ("join", "leave"):
        nodes = [fault.node for fault in faults if fault.action == action]
        for node, times in Counter(nodes).items():
            if times > 1:
                raise PlanError(("faults",), f"{node} would {action} twice")
    if absent:
        first = absent[0]
        raise PlanError(("faults",), f"{first.action} of {first.node} comes before it joins")
