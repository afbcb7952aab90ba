"""The plan: every node, address, link, shard of data and fault of a run, decided before anything starts.

`make_plan` is a pure function of the scenario and the labels of its data: equal input gives an equal plan and equal
bytes of plan.json. Node number n (the cloud first, then edges, then devices) has the address 10.77.0.0 + n.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from netem.profile import LinkProfile
from netem.schedule import Schedule
from node.algorithms.registry import ALGORITHMS
from node.assignment import PluginSource, Tier, Timeouts, derive_seed
from node.catalogue.datasets import DATASETS
from node.catalogue.models import MODEL_GROUPS, MODELS, Size, model_of
from node.catalogue.partitions import PARTITIONS
from node.learning.local_training import LocalTraining
from node.parameters import read_parameters
from orchestrator.errors import PlanError
from orchestrator.planning.deadlines import RoundWork, deadlines
from orchestrator.planning.model_size import MODEL, model_size
from orchestrator.planning.notes import of_data, of_images
from orchestrator.planning.shards import PreparedLabels, Shards, by_class, make_shards
from orchestrator.planning.timeline import Fault, FaultTime, expand, joins
from orchestrator.scenario.hardware import HardwareClass
from orchestrator.scenario.links import resolve
from orchestrator.scenario.schema import HardwareSpec, Scenario
from orchestrator.scenario.topology import Member, Pair
from orchestrator.scenario.validation import algorithm_params, leading_nodes, partition_params

__all__ = [
    "DataPlan",
    "Fault",
    "FaultTime",
    "GatheringPlan",
    "HardwareClass",
    "LinkPlan",
    "NodePlan",
    "Plan",
    "PreparedLabels",
    "StopPlan",
    "make_plan",
]

NETWORK = ipaddress.IPv4Network("10.77.0.0/16")
PORT = 7000  # of every node, since each has a network namespace of its own


@dataclass(frozen=True)
class NodePlan:
    """A node: its identity, address, relations, hardware, data and model.

    ``samples`` and ``label_counts`` (by class): its own training data. ``test_counts`` (by class): its own test set, on
    which it is scored. ``leads``: its rounds are the rounds of the run. ``joins``: when it starts, if not at the
    beginning. ``model`` and ``model_params``: the scenario's, or the node's member of the model group. ``image``: the
    image of its container; None: the run's.
    """

    name: str
    tier: Tier
    index: int
    host: str
    mac: str
    port: int
    parent: str | None
    children: tuple[str, ...]
    neighbours: tuple[str, ...]
    hardware: HardwareClass
    samples: int
    label_counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    leads: bool
    joins: FaultTime | None
    model: str
    model_params: Mapping[str, Any]
    image: str | None


@dataclass(frozen=True)
class LinkPlan:
    """One direction of a link: its profile, and the schedule that changes the profile during training."""

    source: str
    target: str
    link_class: str
    profile: LinkProfile
    seed: int
    schedule: Schedule | None = None

    @property
    def extremes(self) -> list[LinkProfile]:
        """The profiles to reckon with, see `netem.schedule.Schedule.extremes`."""
        return [self.profile] if self.schedule is None else self.schedule.extremes(self.profile)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the profile with units, the schedule as it was written, files by name and hash."""
        data = vars(self) | {"profile": self.profile.to_mapping()}
        if self.schedule is None:
            return {key: value for key, value in data.items() if key != "schedule"}
        return data | {"schedule": self.schedule.to_mapping()}


@dataclass(frozen=True)
class DataPlan:
    """The data set and its division. Without labels (the data set is not on this host) counts are 0, hashes empty.

    ``sha256``: hash of the data set. ``shards_sha256``: hash of the index lists. ``moves``: the partition's repairs as
    (from, to, label, number of samples). ``used_samples``: how many of ``train_samples`` were assigned to nodes.
    ``test_counts``: test samples per class. ``unheld``: test classes of which no node holds a training sample.
    """

    dataset: str
    sha256: str
    classes: int
    partition: str
    partition_params: Mapping[str, Any]
    test: str
    train_samples: int
    used_samples: int
    test_samples: int
    test_counts: tuple[int, ...]
    shards_sha256: str
    moves: tuple[tuple[str, str, int, int], ...]
    unheld: tuple[int, ...]


@dataclass(frozen=True)
class GatheringPlan:
    """How long nodes wait for answers: for a ``quorum`` (a share) or a ``count`` of the peers they asked (the other is
    None), at most until the tier's deadline. ``deadlines``: in seconds, by tier."""

    quorum: float | None
    count: int | None
    late: str
    deadlines: Mapping[str, float]


@dataclass(frozen=True)
class StopPlan:
    """The conditions that end the run, whichever is met first; ``after`` in seconds of training."""

    rounds: int
    accuracy: float | None
    after: float | None


@dataclass(frozen=True)
class Plan:
    """All decisions for a run. plan.json leaves out ``shards``, the index arrays, ``data_directory``, the folder of
    the prepared data set on this host, and where the source of ``plugins`` is."""

    name: str
    plugins: tuple[PluginSource, ...]
    seed: int
    driver: str
    engine: str
    algorithm: str
    params: Mapping[str, Any]
    model: str
    model_params: Mapping[str, Any]
    model_bytes: int
    data: DataPlan
    nodes: tuple[NodePlan, ...]
    links: tuple[LinkPlan, ...]
    faults: tuple[Fault, ...]
    gathering: GatheringPlan
    timeouts: Timeouts
    stop: StopPlan
    restart: str
    probe: bool
    shards: Shards = field(default_factory=Shards, compare=False, repr=False)
    data_directory: str = field(default="", compare=False)

    def node(self, name: str) -> NodePlan:
        """The node of this name. Raises KeyError."""
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, NodePlan]:
        """The nodes by name, in their order."""
        return {node.name: node for node in self.nodes}

    @property
    def images(self) -> list[str]:
        """The images that are set for single nodes, without the run's image."""
        return sorted({node.image for node in self.nodes if node.image is not None})

    def notes(self) -> list[str]:
        """Notes for the record: facts about the plan that a reader of the results must know."""
        empty = [node.name for node in self.nodes if node.label_counts and not node.samples]
        return [*of_data(self.data.unheld, empty), *of_images(self.images, self.driver)]

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json: plain data, times in seconds, profiles with units."""
        data = {entry.name: getattr(self, entry.name) for entry in fields(self)} | {
            "algorithm": {"name": self.algorithm, "params": dict(self.params)},
            "nodes": [asdict(node) for node in self.nodes],
            "links": [link.to_json() for link in self.links],
            "faults": [asdict(fault) for fault in self.faults],
            "notes": self.notes(),
            "plugins": [{"name": each.name, "sha256": each.sha256} for each in self.plugins],
        }
        data |= {name: asdict(data[name]) for name in ("data", "gathering", "timeouts", "stop")}
        return {key: value for key, value in data.items() if key not in ("params", "shards", "data_directory")}

    @property
    def recorded(self) -> dict[str, Any]:
        """The content of plan.json as it is after reading the file back."""
        read: dict[str, Any] = json.loads(json.dumps(self.to_json()))
        return read

    def write_shards(self, path: Path) -> None:
        """Write the file of index arrays that the nodes read."""
        self.shards.write(path)


def make_plan(scenario: Scenario, data: PreparedLabels | None) -> Plan:
    """Make the plan. Without ``data`` the plan has no shards and is for display only.

    Raises PlanError if the data does not suffice, the model does not accept it, or faults contradict one another.
    """
    shards = make_shards(scenario, data) if data is not None else Shards()
    links = _links(scenario)
    faults = expand(
        scenario.faults,
        scenario.topology,
        [(link.source, link.target) for link in links],
        seed=scenario.seed,
        rounds=scenario.rounds,
        after=scenario.stop.after,
    )
    nodes = _nodes(scenario, shards, joins(faults))
    params = algorithm_params(scenario)
    model = (MODELS | MODEL_GROUPS)[scenario.model.name]
    size = _model_size(scenario, data)
    return Plan(
        name=scenario.name,
        plugins=scenario.plugins,
        seed=scenario.seed,
        driver=scenario.driver,
        engine=scenario.engine,
        algorithm=scenario.algorithm.name,
        params=asdict(params),
        model=model.name,
        model_params=asdict(read_parameters(model.params, scenario.model.params)),
        model_bytes=size.bytes,
        data=_data(scenario, data, shards),
        nodes=nodes,
        links=links,
        faults=faults,
        gathering=_gathering(scenario, params, size, nodes, links),
        timeouts=Timeouts(**dict(scenario.timeouts)),
        stop=StopPlan(scenario.rounds, scenario.stop.accuracy, scenario.stop.after),
        restart=scenario.restart,
        probe=scenario.probe.before,
        shards=shards,
        data_directory=data.directory if data is not None else "",
    )


def _model_size(scenario: Scenario, data: PreparedLabels | None) -> Size:
    """The parameters and bytes of the model; a size of 0 if the data set, and so the shape of a sample, is unknown."""
    known = DATASETS.get(scenario.data.dataset[0])
    if data is not None:
        shape, classes = data.shape, data.classes
    elif known is not None and known.classes:
        shape, classes = known.shape, known.classes
    else:
        return Size(0)
    size = model_size(scenario, shape, classes)
    algorithm = ALGORITHMS[scenario.algorithm.name]
    if algorithm.featured and not size.features:
        raise PlanError(
            MODEL,
            f"{scenario.model.name} is one module, and {algorithm.name} works on features: let its build return an"
            " extractor and a classifier",
        )
    return size


def _nodes(scenario: Scenario, shards: Shards, late: Mapping[str, FaultTime]) -> tuple[NodePlan, ...]:
    members = scenario.topology.members()
    children, neighbours = _relations(members, scenario.topology.pairs(scenario.mesh))
    leading = set(leading_nodes(scenario))
    nodes = []
    of_tier: Counter[Tier] = Counter()
    for index, member in enumerate(members, start=1):
        model, model_params = model_of(scenario.model.name, scenario.model.params, of_tier[member.tier])
        of_tier[member.tier] += 1
        counts = shards.counts[member.name] if member.name in shards.train else ()
        spec = scenario.hardware.get(member.name) or scenario.hardware.get(member.tier) or HardwareSpec()
        node = NodePlan(
            name=member.name,
            tier=member.tier,
            index=index,
            host=str(NETWORK[index]),
            mac=f"02:ed:00:00:{index >> 8:02x}:{index & 0xFF:02x}",
            port=PORT,
            parent=member.parent,
            children=tuple(children[member.name]),
            neighbours=tuple(neighbours[member.name]),
            hardware=spec.resolve(),
            samples=sum(counts),
            label_counts=counts,
            test_counts=shards.test_counts.get(member.name, ()),
            leads=member.name in leading,
            joins=late.get(member.name),
            model=model,
            model_params=model_params,
            image=spec.image,
        )
        nodes.append(node)
    return tuple(nodes)


def _relations(
    members: list[Member], pairs: list[Pair]
) -> tuple[defaultdict[str, list[str]], defaultdict[str, list[str]]]:
    """Children and neighbours of each node, in the order of nodes."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.parent is not None:
            children[member.parent].append(member.name)
    for pair in pairs:
        if pair.link_class == "edge-edge":
            neighbours[pair.lower].append(pair.upper)
            neighbours[pair.upper].append(pair.lower)
    order = {member.name: position for position, member in enumerate(members)}
    for names in neighbours.values():
        names.sort(key=order.__getitem__)
    return children, neighbours


def _links(scenario: Scenario) -> tuple[LinkPlan, ...]:
    """All directions between nodes that may communicate; for each pair, up before down."""
    pairs = scenario.topology.pairs(scenario.mesh)
    asked = resolve(scenario.links, pairs)
    assert not asked.mistakes, "load() has checked the links"
    links = []
    for pair in pairs:
        for source, target in ((pair.lower, pair.upper), (pair.upper, pair.lower)):
            seed = derive_seed(scenario.seed, "link", source, target)
            profile, schedule = asked.profiles[source, target], asked.schedules.get((source, target))
            links.append(LinkPlan(source, target, pair.link_class, profile, seed, schedule))
    return tuple(links)


def _data(scenario: Scenario, data: PreparedLabels | None, shards: Shards) -> DataPlan:
    scheme = PARTITIONS[scenario.data.partition.name]
    return DataPlan(
        dataset=data.name if data is not None else scenario.data.dataset[0],
        sha256=data.sha256 if data is not None else "",
        classes=data.classes if data is not None else 0,
        partition=scheme.name,
        partition_params=asdict(read_parameters(scheme.params, partition_params(scenario))),
        test=scenario.data.test,
        train_samples=len(data.train) if data is not None else 0,
        used_samples=sum(len(part) for part in shards.train.values()),
        test_samples=len(data.test) if data is not None else 0,
        test_counts=by_class(data.test, data.classes) if data is not None else (),
        shards_sha256=shards.sha256,
        moves=shards.moves,
        unheld=_unheld(data, shards) if data is not None else (),
    )


def _unheld(data: PreparedLabels, shards: Shards) -> tuple[int, ...]:
    """The test classes of which no node holds a training sample."""
    held = [sum(column) for column in zip(*(shards.counts[node] for node in shards.train), strict=True)]
    return tuple(sorted(label for label in set(data.test.tolist()) if not held[label]))


def _gathering(
    scenario: Scenario, params: LocalTraining, size: Size, nodes: tuple[NodePlan, ...], links: tuple[LinkPlan, ...]
) -> GatheringPlan:
    devices = [node for node in nodes if node.tier == "device"]
    clients = devices or [node for node in nodes if node.tier == "edge"]
    work = RoundWork(
        parameters=size.parameters,
        model_bytes=size.bytes,
        features=size.features,
        classes=len(clients[0].label_counts),
        clients=len(clients),
        samples=max(node.samples for node in clients),
        speed=min(min(node.hardware.speed or 1.0, 1.0) for node in clients),
    )
    tiers = []
    for tier in ("edge", "cloud"):
        below = {child: node.name for node in nodes if node.tier == tier for child in node.children}
        if below:
            down = [each for link in links if below.get(link.target) == link.source for each in link.extremes]
            up = [each for link in links if below.get(link.source) == link.target for each in link.extremes]
            tiers.append((tier, down, up))
    if not tiers:  # edges without cloud and devices
        level = [each for link in links for each in link.extremes]
        tiers.append(("edge", level, level))
    names = {node.name for node in clients}
    across = [each for link in links if {link.source, link.target} <= names for each in link.extremes]
    asked = (scenario.gathering.deadline, scenario.gathering.cloud_deadline)
    given, above = (None if each == "auto" else float(each) for each in asked)
    waits = deadlines(work, params, tiers, given, above, across)
    quorum = scenario.gathering.quorum
    return GatheringPlan(quorum.share, quorum.count, scenario.gathering.late, waits)
