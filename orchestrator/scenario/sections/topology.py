"""The topology: the number of nodes, their names, and which pairs of nodes may communicate.

Names count from 0: ``cloud``, ``edge-1``, ``device-1-2`` (the third device of edge-1), or ``device-2`` below the cloud
if there are no edges. A population of clients is one node, ``population``: its clients are nodes while they take part
in a round (`orchestrator.population`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from node.assignment import Tier
from orchestrator.record.rows import POPULATION as POPULATION
from orchestrator.record.rows import Ends as Ends
from orchestrator.scenario.language.strict import Strict, nearest
from orchestrator.scenario.language.words import describe, shortened

LINK_CLASSES = {
    "device-edge": "links between a device and its edge",
    "edge-cloud": "links between an edge and the cloud",
    "edge-edge": "links between two edges",
    "device-cloud": "links between a device and the cloud",
}
GROUPS = {"devices": "device", "edges": "edge"}
MAX_NODES = 65_000  # addresses come from a /16, which has 65,534
MAX_PAIRS = 100_000  # a mesh of 447 edges
MAX_POPULATION = 10_000_000  # clients; a few arrays of this length take 200 MB
MAX_SELECTED = 10_000  # clients of one round


@dataclass(frozen=True)
class Member:
    """A node: its name, its tier and the node above it."""

    name: str
    tier: Tier
    parent: str | None


@dataclass(frozen=True)
class Pair:
    """Two nodes that may communicate. ``lower`` is below ``upper``; of two edges, ``lower`` has the lower number."""

    lower: str
    upper: str
    link_class: str

    @property
    def up(self) -> Ends:
        """The direction from ``lower`` to ``upper``: towards the cloud, unless both are edges."""
        return self.lower, self.upper

    @property
    def down(self) -> Ends:
        return self.upper, self.lower


def unknown_node(name: str, names: Iterable[str]) -> str:
    """The error message for a node that does not exist."""
    names = sorted(names)
    listed = names
    if len(names) > 8:
        listed = [*names[:4], "...", *names[-3:]]
    return f"there is no node '{shortened(name)}'{nearest(name, names)} (nodes: {', '.join(listed)})"


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"write a whole number, not {describe(value)}")
    if value < 0:
        raise ValueError(f"must be at least 0, not {value}")
    if value > MAX_NODES:
        raise ValueError(f"must be at most {MAX_NODES}, not {value}")
    return value


_COUNT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": MAX_NODES}


def _per_edge(value: Any) -> int | list[int] | None:
    """One number for every edge, or a list with one number per edge."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_count(item) for item in value]
    return _count(value)


class Topology(Strict):
    """The number of nodes in each tier. Devices are below edges (``devices_per_edge``) or, without edges, below the
    cloud (``devices``, or ``population`` in the simulation)."""

    cloud: bool = Field(default=True, description="whether there is a cloud")
    edges: int = Field(
        default=2, ge=0, le=MAX_NODES, description="number of edges; default: 0 with devices or population, else 2"
    )
    devices_per_edge: Annotated[
        int | list[int] | None,
        PlainValidator(_per_edge),
        WithJsonSchema({"anyOf": [_COUNT_SCHEMA, {"type": "array", "items": _COUNT_SCHEMA}]}),
    ] = Field(
        default=None, description="number of devices of each edge, or a list with one number per edge; default: 2"
    )
    devices: int | None = Field(
        default=None, ge=1, le=MAX_NODES, description="number of devices below the cloud, without edges"
    )
    mesh: bool | None = Field(
        default=None,
        description="whether every two edges have a link; default: true if the algorithm exchanges messages between "
        "edges, or if `links` has edge-edge",
    )
    population: int | None = Field(
        default=None,
        ge=1,
        le=MAX_POPULATION,
        description="sim only: number of clients below the cloud; only those selected for a round run",
    )
    selected: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SELECTED,
        description="number of clients that answer in a round; goes with population",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if value.get("devices") is not None or value.get("population") is not None:
            return {"edges": 0} | value
        if value.get("edges") == 0:
            return value
        return {"devices_per_edge": 2} | value

    @model_validator(mode="after")
    def _check_sense(self) -> Topology:
        self._check_population()
        per_edge = self.devices_per_edge
        if self.edges == 0:
            if per_edge:
                raise ValueError("devices_per_edge: there are no edges; give devices to attach devices to the cloud")
            if self.devices is None and self.population is None:
                raise ValueError("edges: without edges give devices, the number of devices below the cloud")
            if not self.cloud:
                raise ValueError("cloud: without edges and without a cloud nothing connects the devices")
        elif self.devices is not None:
            raise ValueError("devices: devices attach to the cloud only without edges; give devices_per_edge")
        if isinstance(per_edge, list) and len(per_edge) != self.edges:
            raise ValueError(f"devices_per_edge: the list has {len(per_edge)} numbers for {self.edges} edges")
        if self.mesh and self.edges < 2:
            verb = "is" if self.edges == 1 else "are"
            raise ValueError(f"mesh: takes two edges or more, here {verb} {self.edges}")
        total = int(self.cloud) + self.edges + self.device_count
        if total > MAX_NODES:
            raise ValueError(f"edges: {total} nodes are more than the addresses of a run, {MAX_NODES}")
        return self

    def _check_population(self) -> None:
        if (self.population is None) != (self.selected is None):
            missing = "selected" if self.selected is None else "population"
            raise ValueError(f"{missing}: write both, like {{population: 100000, selected: 100}}")
        if self.population is None or self.selected is None:
            return
        if self.edges or self.devices is not None:
            raise ValueError("population: its clients are below the cloud: leave out edges and devices")
        if self.selected > self.population:
            raise ValueError(f"selected: {self.selected} is more than the population, {self.population}")

    @property
    def per_edge(self) -> list[int]:
        if isinstance(self.devices_per_edge, list):
            return self.devices_per_edge
        return [self.devices_per_edge or 0] * self.edges

    @property
    def device_count(self) -> int:
        if self.population is not None:
            return 1
        return self.devices or sum(self.per_edge)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(member.name for member in self.members())

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """The node above each node."""
        return {member.name: member.parent for member in self.members()}

    @cached_property
    def tiers(self) -> dict[str, Tier]:
        """The tier of each node."""
        return {member.name: member.tier for member in self.members()}

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        members = self.members()
        groups = {}
        for name, tier in GROUPS.items():
            groups[name] = [member.name for member in members if member.tier == tier]
        return groups

    def members(self) -> list[Member]:
        """All nodes from the cloud down, in the order of their addresses."""
        cloud = "cloud" if self.cloud else None
        members = []
        if self.cloud:
            members.append(Member("cloud", "cloud", None))
        for edge in range(self.edges):
            members.append(Member(f"edge-{edge}", "edge", cloud))
        for edge, count in enumerate(self.per_edge):
            for device in range(count):
                members.append(Member(f"device-{edge}-{device}", "device", f"edge-{edge}"))
        for device in range(self.devices or 0):
            members.append(Member(f"device-{device}", "device", cloud))
        if self.population is not None:
            members.append(Member(POPULATION, "device", cloud))
        return members

    def group(self, name: str) -> list[str]:
        """The nodes of a group (``devices``, ``edges``), or the one node of that name; empty for an unknown name."""
        if name in GROUPS:
            return self._groups[name]
        if name in self.names:
            return [name]
        return []

    def expand(self, names: Iterable[str]) -> list[str]:
        """Nodes and groups as nodes, without duplicates."""
        nodes: dict[str, None] = {}
        for name in names:
            nodes |= dict.fromkeys(self.group(name))
        return list(nodes)

    def too_many_pairs(self, mesh: bool) -> str | None:
        """The error message if there are more pairs than a run can hold, computed without making the pairs."""
        pairs = self.device_count
        if self.cloud:
            pairs += self.edges
        if mesh:
            pairs += self.edges * (self.edges - 1) // 2
        if pairs <= MAX_PAIRS:
            return None
        return f"{pairs} pairs of nodes would talk, at most {MAX_PAIRS} may: take fewer edges in the mesh"

    def pairs(self, mesh: bool) -> list[Pair]:
        """All pairs that may communicate: each node with the node above it and, in a mesh, every two edges."""
        members = self.members()
        tiers = {member.name: member.tier for member in members}
        pairs = []
        for member in members:
            if member.parent is not None:
                link_class = f"{member.tier}-{tiers[member.parent]}"
                pairs.append(Pair(member.name, member.parent, link_class))
        if mesh:
            edges = [member.name for member in members if member.tier == "edge"]
            for lower, upper in itertools.combinations(edges, 2):
                pairs.append(Pair(lower, upper, "edge-edge"))
        return pairs
