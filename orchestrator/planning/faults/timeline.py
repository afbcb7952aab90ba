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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netem.profile import KEYS
from node.assignment import derive_seed
from orchestrator.errors import PlanError
from orchestrator.scenario.sections.faults import FaultSpec
from orchestrator.scenario.sections.targets import candidates, links_between, links_by_node
from orchestrator.scenario.sections.topology import Ends, Topology

_ON_LINKS = ("disconnect", "partition", "degrade")


@dataclass(frozen=True)
class FaultTime:
    """A time: seconds after training starts, or the start of a round of the leading node."""

    at: float | None
    round: int | None


@dataclass(frozen=True)
class Fault:
    """One planned fault.

    It starts ``at`` seconds after training starts, or with ``round`` of the leading node. It ends after ``duration``
    seconds, or with its round (``lasts_a_round``), or, with neither, with the run. Its target is one ``node``, or the
    links ``between`` two sides, each the names of its nodes. ``links``: the directions that are cut or changed
    (disconnect, partition, degrade). ``profile`` (degrade): the keys to merge into the profile of each of these links.
    ``factor`` (slow): how many times longer steps take.
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
    factor: float | None = None

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Fault:
        """A fault from its entry in plan.json."""
        sides, links = written["between"], written["links"]
        between = None if sides is None else (tuple(sides[0]), tuple(sides[1]))
        return cls(**{**written, "between": between, "links": tuple((a, b) for a, b in links)})

    @property
    def target(self) -> str:
        """The node, or a short form of both sides: ``edge-0 | cloud``."""
        return self.node if self.node is not None else " | ".join(_side(side) for side in self.between or ())


def expand(
    specs: Sequence[FaultSpec],
    topology: Topology,
    links: Sequence[Ends],
    *,
    seed: int,
    rounds: int,
    after: float | None,
) -> tuple[Fault, ...]:
    """All faults of a run: first those with a time, in order of time, then those with a round, in order of rounds.

    ``links``: all directions of the topology. ``after``: the scenario's stop.after. A fault that is drawn for a node
    before the node joins is left out. Raises PlanError if the faults contradict one another.
    """
    named: list[Fault] = []
    drawn: list[Fault] = []
    touching = links_by_node(links)
    said: Counter[str] = Counter()
    for spec in specs:
        content = _content(spec)
        said[content] += 1
        random = np.random.default_rng(derive_seed(seed, "fault", content, str(said[content])))
        found = _expand_one(spec, _targets(spec, topology, links, touching), random, rounds, after)
        (named if spec.of is None or spec.action == "join" else drawn).extend(found)
    joined = joins(named)
    _check_members([*named, *drawn], [fault for fault in named if _is_absent(fault, joined)])
    faults = named + [fault for fault in drawn if not _is_absent(fault, joined)]
    faults.sort(key=lambda fault: (fault.round is not None, fault.at or fault.round or 0))
    return tuple(replace(fault, id=number) for number, fault in enumerate(faults, start=1))


def joins(faults: Iterable[Fault]) -> dict[str, FaultTime]:
    """The join time of each node that joins late."""
    return {fault.node: FaultTime(fault.at, fault.round) for fault in faults if fault.action == "join" and fault.node}


def _side(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]} ({len(names)})"


def _content(spec: FaultSpec) -> str:
    """The canonical text of a rule, equal for all ways to write it: sorted keys, quantities in the usual units."""
    written = spec.model_dump(mode="json")
    said = {key: value for key, value in written.items() if value is not None or key in KEYS}
    return json.dumps(said, sort_keys=True)


@dataclass(frozen=True)
class _Targets:
    """The possible targets of a rule, by position. An item is the fault on that target, created on access, without its
    final id."""

    like: Fault
    nodes: Sequence[str]  # empty: the target is the links between two sides
    touching: Mapping[str, Sequence[Ends]]

    def __len__(self) -> int:
        return len(self.nodes) or 1

    def __getitem__(self, position: int) -> Fault:
        if not self.nodes:
            return self.like
        node = self.nodes[position]
        links = tuple(self.touching.get(node, ())) if self.like.action in _ON_LINKS else ()
        return replace(self.like, node=node, links=links)


def _targets(
    spec: FaultSpec, topology: Topology, links: Sequence[Ends], touching: Mapping[str, Sequence[Ends]]
) -> _Targets:
    profile = spec.changes() if spec.action == "degrade" else None
    fault = Fault(0, spec.action, None, None, spec.at, spec.round, spec.for_, factor=spec.factor, profile=profile)
    if spec.between is None:
        return _Targets(fault, candidates(spec, topology), touching)
    a, b = (tuple(topology.expand(side)) for side in spec.between)
    return _Targets(replace(fault, between=(a, b), links=links_between(set(a), set(b), links)), (), touching)


def _expand_one(
    spec: FaultSpec, targets: _Targets, random: np.random.Generator, rounds: int, after: float | None
) -> Iterator[Fault]:
    """The faults of one rule."""
    if spec.random is not None:
        until = spec.random.until if spec.random.until is not None else after
        assert until is not None
        yield from _poisson(spec, targets, spec.random.mean, until, random)
    elif spec.every_round is not None:
        for number in range(1, rounds + 1):
            amount = math.floor(round(spec.every_round * len(targets), 9) + random.random())
            for target in _draw(targets, amount, random):
                yield replace(target, round=number, lasts_a_round=spec.for_ is None)
    else:
        yield from _draw(targets, _amount(spec, len(targets)), random)


def _amount(spec: FaultSpec, size: int) -> int:
    if spec.fraction is not None:
        return max(1, math.floor(spec.fraction * size + 0.5))
    return spec.count or size


def _draw(targets: _Targets, amount: int, random: np.random.Generator) -> list[Fault]:
    """Draw ``amount`` of the targets without replacement; returns them in their order."""
    if amount >= len(targets):
        return [targets[position] for position in range(len(targets))]
    return [targets[position] for position in sorted(random.choice(len(targets), amount, replace=False))]


def _poisson(
    spec: FaultSpec, targets: _Targets, mean: float, until: float, random: np.random.Generator
) -> Iterator[Fault]:
    """Draw events at exponential intervals. An event hits only targets whose earlier faults of this rule are over."""
    busy = [0.0] * len(targets)
    time = random.exponential(mean)
    while time < until:
        free = [position for position in range(len(targets)) if busy[position] <= time]
        amount = (spec.count or 1) if spec.of is not None and spec.fraction is None else _amount(spec, len(targets))
        for position in free if amount >= len(free) else sorted(random.choice(free, amount, replace=False)):
            busy[position] = math.inf if spec.for_ is None else time + spec.for_
            yield replace(targets[position], at=round(time, 3))
        time += random.exponential(mean)


def _is_absent(fault: Fault, joined: Mapping[str, FaultTime]) -> bool:
    """Whether the fault's node joins only after the fault. False if one has a time and the other a round."""
    start = joined.get(fault.node or "", FaultTime(None, None))
    if fault.at is not None and start.at is not None:
        return fault.at < start.at
    return fault.round is not None and start.round is not None and fault.round < start.round


def _check_members(faults: Sequence[Fault], absent: Sequence[Fault]) -> None:
    """Check that a node joins at most once, leaves at most once, and has no named fault before it joins."""
    for action in ("join", "leave"):
        for node, times in Counter(fault.node for fault in faults if fault.action == action).items():
            if times > 1:
                raise PlanError(("faults",), f"{node} would {action} twice")
    if absent:
        raise PlanError(("faults",), f"{absent[0].action} of {absent[0].node} comes before it joins")
