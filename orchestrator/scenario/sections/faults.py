"""Faults in a scenario: time, target and action.

    - {at: 20s, node: device-1-2, action: crash, for: 15s}
    - {at: 20s, node: device-1-2, action: power-off, for: 15s}
    - {at: 20s, node: cloud, program: watcher, action: crash, for: 5s}
    - {round: 3, of: edges, count: 1, action: pause, for: 5s}
    - {every_round: 30%, of: devices, action: disconnect}
    - {event: half way, node: device-1-2, action: crash, for: 15s}
    - {random: {mean: 30s}, of: devices, action: crash, for: 10s}
    - {at: 40s, between: [edge-0, cloud], action: partition, for: 10s}
    - {at: 10s, node: edge-1, action: degrade, loss: 10%, for: 20s}
    - {at: 10s, medium: cell-0, direction: up, action: degrade, rate: 2mbit, for: 20s}
    - {at: 10s, node: edge-1, direction: down, action: disconnect, for: 5s}
    - {at: 30s, node: device-0-1, action: handover, to: cell-1}
    - {at: 30s, node: device-0-1, action: new-address}
    - {round: 5, node: device-0-1, action: move, to: edge-1}

With ``program`` a crash or a pause is that of one program of the node. Without ``for`` a fault lasts to the end of the
run; with ``every_round``, to the end of its round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from orchestrator.record.rows import CUTS as CUTS
from orchestrator.record.rows import POWER_OFF as POWER_OFF
from orchestrator.scenario.actions import Action
from orchestrator.scenario.language.quantities import Duration, Fraction
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.language.words import Name, describe
from orchestrator.scenario.sections.profiles import LinkKeys
from orchestrator.scenario.sections.topology import Ends, Pair, Topology

TierGroup = Literal["devices", "edges"]

ON_LINKS = ("disconnect", "partition", "degrade")
OF_PROGRAMS = ("crash", "pause")
"""The actions that may hit one program of a node."""

NEW_ADDRESS = "new-address"
HANDOVER = "handover"
MOVE = "move"
TO = (HANDOVER, MOVE)  # the actions with a target of their own
"""The actions during which no packet crosses the fault's links."""

WHEN = ("at", "round", "every_round", "random", "event")
_WHOM = ("node", "nodes", "of", "between", "medium")
_OF_MEDIUM = ("rate", "buffer")  # the keys that a degraded medium may have


class RandomTimes(Strict):
    """Random times, drawn with the scenario's seed: a Poisson process."""

    mean: Duration = Field(gt=0, description="mean time between two events of this rule, whatever its number of nodes")
    until: Duration | None = Field(
        default=None, description="last time of an event, after training started; default: stop.after"
    )


def _sides(value: Any) -> list[list[str]]:
    """The two sides as lists of names and groups, from ``[edge-0, cloud]`` or ``[[edge-0, edge-1], cloud]``."""
    message = "write the two sides, each a name, a group or a list of names, like [edge-0, cloud]"
    if not isinstance(value, list):
        raise ValueError(f"{message}, not {describe(value)}")
    if len(value) != 2:
        raise ValueError(f"{message}, not {len(value)} sides")
    sides = []
    for side in value:
        names = side if isinstance(side, list) else [side]
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(message)
        sides.append(names)
    return sides


_NAME = {"type": "string"}
_NAMES = {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}


class FaultSpec(LinkKeys):
    """A fault, or a rule for many. Exactly one key says when (``at``, ``round``, ``every_round``, ``random`` or
    ``event``) and one where (``node``, ``nodes``, ``of``, ``between`` or ``medium``). Settings of a link are for
    ``degrade``."""

    short: ClassVar[str | None] = None

    action: Action = Field(
        description="crash: the processes of a node are killed, and restart when the fault ends; its kernel sends what "
        "it holds and the end of its connections. power-off: the same, but its links are cut before, so that peers "
        "receive nothing more. pause: it is stopped. slow: its steps take longer. disconnect: its links are cut. "
        "join: it starts only then. leave: it ends for good. partition: the links between two sides are cut. degrade: "
        "links of a node or between two sides get other settings, or a medium another rate or buffer. handover: a node "
        "moves to another shared medium. new-address: a node gets other IP addresses, as after a renewal by DHCP. "
        "move: a device goes to another edge"
    )
    at: Duration | None = Field(default=None, description="when: this time after training started")
    round: int | None = Field(default=None, ge=1, description="when: at the start of this round")
    every_round: Fraction | None = Field(
        default=None,
        gt=0,
        description="when: in every round, for this share of the group in `of`, drawn again for each round",
    )
    random: RandomTimes | None = Field(
        default=None,
        description="when: at random times; each event hits the named nodes, or one node of the group in `of` (more "
        "with `count` or `fraction`)",
    )
    event: str | None = Field(
        default=None,
        min_length=1,
        description="when: as soon as a node or a program reports the first event with this name",
    )
    node: str | None = Field(default=None, description="where: this node")
    nodes: list[str] | None = Field(default=None, min_length=1, description="where: all of these nodes")
    of: TierGroup | None = Field(
        default=None,
        description="where: nodes drawn from this group; `fraction` or `count` says how many, or `every_round` does",
    )
    fraction: Fraction | None = Field(
        default=None, gt=0, description="with `of`: the share of the group that is drawn, at least one node"
    )
    count: int | None = Field(default=None, ge=1, description="with `of`: the number of nodes that are drawn")
    program: Name | None = Field(
        default=None,
        description="crash and pause only: this program of each node instead of the whole node: the name of an "
        "additional program, or the tier or the node for its own; after a crash it starts again when the fault ends",
    )
    between: Annotated[
        list[list[str]] | None,
        BeforeValidator(_sides),
        WithJsonSchema({"type": "array", "items": _NAMES, "minItems": 2, "maxItems": 2}),
    ] = Field(
        default=None,
        description="where: the links between two sides, each a node, a group (devices, edges) or a list of nodes",
    )
    medium: str | None = Field(
        default=None,
        description="where: this shared medium; with disconnect all links that cross it, with degrade its "
        "rate and buffer",
    )
    direction: Literal["up", "down"] | None = Field(
        default=None,
        description="disconnect, partition and degrade only: one direction, `up` (towards the cloud) or `down`; of a "
        "`medium` only if it is not half duplex; default: both",
    )
    to: str | None = Field(
        default=None,
        description="handover: the shared medium that takes the place of the node's. move: the edge that the device "
        "goes to",
    )
    for_: Duration | None = Field(
        default=None,
        alias="for",
        gt=0,
        description="duration of the fault; default: until its round ends with every_round, else until the run ends",
    )
    factor: float | None = Field(
        default=None, gt=1, le=1_000_000, description="slow only: every step takes this many times as long"
    )

    @model_validator(mode="after")
    def _check_sense(self) -> FaultSpec:
        when = self._only(WHEN, "when")
        whom = self._only(_WHOM, "whom")
        self._check_count(when, whom)
        self._check_action(when, whom)
        return self

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def _only(self, names: tuple[str, ...], question: str) -> str:
        given = [name for name in names if self._has(name)]
        if len(given) == 1:
            return given[0]
        here = f"here are {' and '.join(given)}" if given else "here is none"
        raise ValueError(f"a fault says {question} with exactly one of {', '.join(names)}; {here}")

    def _check_count(self, when: str, whom: str) -> None:
        counted = [name for name in ("fraction", "count") if self._has(name)]
        if counted and whom != "of":
            raise ValueError(f"{counted[0]}: goes with of: devices or of: edges, not with {whom}")
        if when == "every_round":
            if whom != "of":
                raise ValueError("every_round: is a share of a group: add of: devices or of: edges")
            if counted:
                raise ValueError(f"{counted[0]}: every_round already says how many")
        elif whom == "of":
            one_at_a_time = when == "random" and not counted
            if len(counted) != 1 and not one_at_a_time:
                raise ValueError(f"of: say how many of the {self.of}, with either fraction or count")

    def _check_action(self, when: str, whom: str) -> None:
        if self.action == "partition" and whom != "between":
            raise ValueError("action: partition needs between, e.g. between: [edge-0, cloud]")
        if whom == "between" and self.action not in ("partition", "degrade"):
            raise ValueError(f"between: goes with partition and degrade, not with {self.action}")
        self._check_medium(whom)
        if self._has("program") and self.action not in OF_PROGRAMS:
            raise ValueError(f"program: goes with {' and '.join(OF_PROGRAMS)}, not with {self.action}")
        self._check_once(when, whom)
        self._check_degrade()
        if self.action == "slow" and not self._has("factor"):
            raise ValueError("action: slow needs a factor; factor: 4 makes steps last four times as long")
        for key, actions in (("factor", ("slow",)), ("to", TO)):
            if self.action not in actions and self._has(key):
                raise ValueError(f"{key}: goes with {' and '.join(actions)}, not {self.action}")

    def _check_once(self, when: str, whom: str) -> None:
        """Check the actions that happen once, or that have no end."""
        has_end = self._has("for_")
        joins_or_leaves = self.action in ("join", "leave")
        if (joins_or_leaves or self.action == MOVE) and when not in ("at", "round"):
            raise ValueError(f"action: {self.action} happens once: say when with at or round")
        if joins_or_leaves and has_end:
            raise ValueError(f"for: {self.action} has no end; a node that comes back is a crash or a disconnect")
        if self.action == MOVE and whom not in ("node", "nodes"):
            raise ValueError(f"{whom}: name the devices that move with node or nodes, since each needs a link there")
        if self.action == MOVE and has_end:
            raise ValueError("for: a move has no end; let the device move back with another fault")
        if self.action == NEW_ADDRESS and (has_end or when == "every_round"):
            key = "for" if has_end else "every_round"
            raise ValueError(f"{key}: a new address stays; say when the node gets it with at, round or random")

    def _check_degrade(self) -> None:
        """Check that settings of a link go with degrade, and only with it."""
        changes = list(self.changes())
        if self.action == "degrade":
            if not changes:
                raise ValueError("action: degrade needs a profile or keys of one, e.g. loss: 10%")
        elif changes:
            key = changes[0] if self.profile is None else "profile"
            raise ValueError(f"{key}: goes with degrade, not {self.action}")

    def _check_medium(self, whom: str) -> None:
        if whom == "medium" and self.action not in ("disconnect", "degrade"):
            raise ValueError(f"medium: goes with disconnect and degrade, not with {self.action}")
        if self._has("direction") and self.action not in ON_LINKS:
            raise ValueError(f"direction: goes with {', '.join(ON_LINKS)}, not with {self.action}")
        if self.action == HANDOVER and not self._has("to"):
            raise ValueError("action: handover needs to, the name of the medium, like to: cell-1")
        if self.action == MOVE and not self._has("to"):
            raise ValueError("action: move needs to, the name of an edge, like to: edge-1")
        if whom == "medium" and self.action == "degrade":
            for key in ("profile", *self.changes()):
                if key not in _OF_MEDIUM and self._has(key):
                    allowed = " and ".join(_OF_MEDIUM)
                    raise ValueError(
                        f"{key}: a medium only has {allowed}: degrade the links of its members for the rest"
                    )
            if "rate" in self.model_fields_set and self.rate is None:
                raise ValueError("rate: a medium has one: give a number, or use disconnect")


def links_by_node(links: Iterable[Ends]) -> dict[str, list[Ends]]:
    """The directions from or to each node."""
    directions: defaultdict[str, list[Ends]] = defaultdict(list)
    for link in links:
        for node in link:
            directions[node].append(link)
    return directions


def links_between(
    a: Collection[str],
    b: Collection[str],
    links: Iterable[Ends],
) -> tuple[Ends, ...]:
    """The directions between the two sides, both ways."""
    between = []
    for source, target in links:
        from_a = source in a and target in b
        from_b = source in b and target in a
        if from_a or from_b:
            between.append((source, target))
    return tuple(between)


def upward(links: Iterable[Ends], topology: Topology) -> tuple[Ends, ...]:
    """The directions towards the cloud; a link between two edges has none."""
    directions = []
    for source, target in links:
        if _is_above(source, target, topology):
            directions.append((source, target))
    return tuple(directions)


def _downward(links: Iterable[Ends], topology: Topology) -> tuple[Ends, ...]:
    """The directions away from the cloud; a link between two edges has none."""
    directions = []
    for source, target in links:
        if _is_above(target, source, topology):
            directions.append((source, target))
    return tuple(directions)


def in_direction(spec: FaultSpec, topology: Topology, links: Iterable[Ends]) -> tuple[Ends, ...]:
    """Those of the directions that the rule's ``direction`` names, or all of them."""
    if spec.direction is None:
        return tuple(links)
    if spec.direction == "up":
        return upward(links, topology)
    return _downward(links, topology)


def _is_above(lower: str, upper: str, topology: Topology) -> bool:
    """Whether a link goes from a node to its parent, or from a device to an edge that it moves to."""
    if topology.parents[lower] == upper:
        return True
    return topology.tiers[lower] == "device" and topology.tiers[upper] == "edge"


def visits(faults: Iterable[FaultSpec], topology: Topology) -> Iterator[Pair]:
    """The pairs of a device and an edge that it moves to. Those that the topology does not have are left out."""
    tiers = topology.tiers
    for fault in faults:
        to = fault.to or ""
        if fault.action != MOVE or tiers.get(to) != "edge":
            continue
        for node in candidates(fault, topology):
            if tiers.get(node) != "device":
                continue
            parent = topology.parents[node]
            has_edge = tiers.get(parent or "") == "edge"
            if has_edge and parent != to:
                yield Pair(node, to, "device-edge")


def candidates(spec: FaultSpec, topology: Topology) -> list[str]:
    """The nodes that a rule may hit."""
    if spec.node is not None:
        return [spec.node]
    return spec.nodes or topology.group(spec.of or "")


def program_label(node: str, program: str) -> str:
    """The label of the program of a node that a fault names: its own by the tier or the name of the node, an additional
    one by its name."""
    tier, _, _ = node.partition("-")
    if program in (node, tier):
        return node
    return f"{node}.{program}"


def affected(spec: FaultSpec, topology: Topology, links: Sequence[Ends]) -> tuple[Ends, ...]:
    """The directions that a rule may affect, whichever nodes are drawn."""
    if spec.between is not None:
        a, b = (set(topology.expand(side)) for side in spec.between)
        between = links_between(a, b, links)
        return in_direction(spec, topology, between)
    nodes = set(candidates(spec, topology))
    touching = [link for link in links if not nodes.isdisjoint(link)]
    return in_direction(spec, topology, touching)
