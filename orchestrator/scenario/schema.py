"""The scenario: one YAML file that describes nodes, hardware, links, faults, data and algorithm.

The schema is strict: it refuses unknown keys, wrong types and numbers without a unit. One error lists all problems,
each with file, line and YAML path. Everything but the algorithm has a default, so a short file is a complete scenario:

    algorithm: {name: hierfavg, rounds: 5}

A scenario has ``programs`` instead if its nodes run programs of their own.

`validation` checks that the parts fit together (names that exist, an algorithm that fits the topology).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, PrivateAttr, ValidationInfo, WithJsonSchema, model_validator

from netem.units import format_fraction
from node.algorithms.registry import PROGRAMS, Algorithm
from node.assignment import Tier
from node.learning.local_training import LocalTraining
from node.parameters import read_parameters
from orchestrator.scenario.catalogue import EDGEBED, Catalogue, PluginSources, catalogue_in
from orchestrator.scenario.choices import (
    MAX_ROUNDS,
    AlgorithmSpec,
    ModelSpec,
)
from orchestrator.scenario.language.quantities import AutoDuration, Duration, Fraction, Quorum, QuorumField, Size
from orchestrator.scenario.language.strict import Strict, not_one_of
from orchestrator.scenario.language.words import ImageName, Name
from orchestrator.scenario.media.clients import resolve_for_clients
from orchestrator.scenario.media.routes import ResolvedMedia, resolve_media
from orchestrator.scenario.media.section import CrossTrafficSpec, MediumSpec
from orchestrator.scenario.population.clients import ClientsSpec
from orchestrator.scenario.sections.compute import ComputeSpec, Device
from orchestrator.scenario.sections.data import DataSpec
from orchestrator.scenario.sections.drivers import DRIVERS, DriverKind
from orchestrator.scenario.sections.engines import EngineName
from orchestrator.scenario.sections.expectations import ExpectSpec, TargetSpec
from orchestrator.scenario.sections.faults import HANDOVER, FaultSpec, visits
from orchestrator.scenario.sections.hardware import CUSTOM, HARDWARE, HardwareClass
from orchestrator.scenario.sections.hosts import HostField
from orchestrator.scenario.sections.links import DEFAULT_PROFILE, LinkSpec, Resolved, resolve
from orchestrator.scenario.sections.programs import ProgramSpec
from orchestrator.scenario.sections.stack import StackSpec
from orchestrator.scenario.sections.topology import LINK_CLASSES, Member, Pair, Topology

DEFAULT_ROUNDS = 10
OF_POPULATIONS = ("population", "selected")  # keys of `topology`
RARE = ("shared", "routes", "cross_traffic", "stack")  # left out of the effective scenario if empty
DEFAULT_PERSONALISATION = 0.15  # PHE-FL, section IV-B3

HardwareName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(HARDWARE)})]


def _known_driver(value: Any, info: ValidationInfo) -> str:
    drivers = catalogue_in(info).drivers
    if isinstance(value, str) and value in drivers:
        return value
    raise ValueError(not_one_of(value, drivers))


DriverName = Annotated[
    str,
    PlainValidator(_known_driver),
    WithJsonSchema({"type": "string", "enum": list(DRIVERS)}),
]


class HardwareSpec(Strict):
    """The hardware that a node emulates: a class. ``speed``, ``cores`` and ``memory`` replace its values."""

    short: ClassVar[str | None] = "class"

    class_: HardwareName = Field(
        default="host", alias="class", description="the hardware class; host: this host as it is, without limits"
    )
    speed: float | None = Field(
        default=None, ge=0.0001, description="speed of one core, relative to a core of this host; default: the class's"
    )
    cores: float | None = Field(default=None, ge=0.01, description="number of cores; default: the class's")
    memory: Size | None = Field(
        default=None, gt=0, description="memory limit of the node's processes; default: the class's"
    )
    image: ImageName | None = Field(
        default=None, description="image of its container, for instance for another processor; default: the run's image"
    )
    accelerator: Device | None = Field(
        default=None, description="what it trains on: cpu, or a GPU of its host (cuda, cuda:1); default: compute.device"
    )

    def resolve(self) -> HardwareClass:
        """The hardware class; with overrides, its name is ``custom``. Raises KeyError for an unknown class."""
        base = HARDWARE[self.class_]
        own = {}
        for key in ("speed", "cores", "memory"):
            value = getattr(self, key)
            if value is not None:
                own[key] = value
        if own:
            return replace(base, name=CUSTOM, **own)
        return base


class GatheringSpec(Strict):
    """How long a node that collects answers waits in each round. It waits for all peers that are online. Peers that are
    lost need not answer if the answers make the quorum."""

    quorum: QuorumField = Field(
        default=Quorum(share=0.5),
        description="the answers that a round needs, as a share of the selected peers (50%) or a number of them (2); "
        "with fewer at the deadline the round is abandoned",
    )
    deadline: AutoDuration = Field(
        default="auto",
        description="longest wait for answers, per round; auto: computed from the links, the model and the hardware, "
        "long enough for every healthy peer",
    )
    cloud_deadline: AutoDuration = Field(
        default="auto",
        description="longest wait of a cloud for the edges below it, which first complete their own rounds; auto: "
        "computed from the deadline of the edges and their number of rounds",
    )
    late: Literal["discard", "keep"] = Field(
        default="discard",
        description="what happens to an answer that arrives after its round: discard it, or keep it and use it in the "
        "next round if its sender has no newer answer",
    )


class TimeoutsSpec(Strict):
    """Heartbeats between nodes, and between nodes and the orchestrator."""

    beat: Duration = Field(default=1.0, gt=0, description="time between two heartbeats of a node, at least 10ms")
    lost_after: AutoDuration = Field(
        default="auto",
        description="a peer that is silent for this time counts as lost, and no node waits for it; more than four "
        "round trips of the slowest link; auto: 8s, or longer if full buffers delay a link for seconds",
    )
    lease: Duration = Field(
        default=10.0,
        gt=0,
        description="a node that receives no heartbeat of the orchestrator for this time ends, so that no process "
        "outlives a run; at least two beats",
    )


class StopSpec(Strict):
    """The conditions that end the run. The first one that is met ends it."""

    rounds: int | None = Field(
        default=None, ge=1, le=MAX_ROUNDS, description="number of rounds; default: algorithm.rounds"
    )
    accuracy: Fraction | None = Field(default=None, gt=0, description="accuracy on the global test set")
    target: TargetSpec | None = Field(
        default=None, description="bounds of another metric on the global test set, such as {name: mae, at_most: 0.3}"
    )
    after: Duration | None = Field(default=None, gt=0, description="duration of the training")
    bytes: Size | None = Field(
        default=None,
        gt=0,
        description="bytes that all devices together have sent and received during the training, read once a second",
    )


MAX_PROBE = 3600.0  # s


class ProbeSpec(Strict):
    """Measurement of the links."""

    before: bool = Field(
        default=True, description="whether links are measured before training and compared with their settings"
    )
    longest: Duration | None = Field(
        default=None,
        gt=0,
        le=MAX_PROBE,
        description="longest train of probes, and longest measurement of a rate with jitter, of one link; default: 2s "
        "for a small loss, 60s for a slow link, 20s for a rate with jitter",
    )


_DRIVERS = ", ".join(f"{kind.name} ({kind.summary})" for kind in DRIVERS.values())


class Scenario(Strict):
    """The whole description of a run."""

    name: Name = Field(
        default="scenario",
        description="name of the scenario; the names of its runs start with it; default: the name of the file",
    )
    plugins: PluginSources = Field(
        default=(), description="plug-ins: Python files, relative to the scenario's file, or installed modules"
    )
    seed: int = Field(default=1, ge=0, lt=2**63, description="seed of all random draws")
    algorithm: AlgorithmSpec | None = Field(
        default=None, description="the algorithm, its number of rounds and its parameters; required without programs"
    )
    programs: dict[str, ProgramSpec] = Field(
        default={},
        description="programs that nodes run instead of an algorithm; the key is a tier, a node, or any name with `on`",
    )
    data: DataSpec = Field(default=DataSpec(), description="the data set and its partition over the clients")
    model: ModelSpec = Field(
        default=ModelSpec(name="cnn"),
        description="the model that is trained, or a group of models for clients that differ",
    )
    topology: Topology = Field(
        default=Topology(),
        description="nodes per tier; devices are below edges or, without edges, below the cloud",
    )
    clients: ClientsSpec | None = Field(
        default=None,
        description="settings of clients: read from files (file, availability) or, in a population, drawn for each "
        "client (all keys but file)",
    )
    hardware: dict[str, HardwareSpec] = Field(
        default={},
        description="the hardware that nodes emulate; the key is a tier (device, edge, cloud) or a node, and a node's "
        "entry replaces that of its tier",
    )
    stack: dict[str, StackSpec] = Field(
        default={},
        description="TCP settings of nodes; the key is a tier or a node, and a node's entry replaces that of its tier",
    )
    hosts: dict[str, HostField] = Field(
        default={},
        description="where nodes run, on several hosts; the key is a tier or a node, the value the name of a host or "
        "one of its labels (rack=2)",
    )
    compute: ComputeSpec = Field(
        default=ComputeSpec(),
        description="how this host computes the training of nodes; the hardware they emulate is the same",
    )
    links: dict[str, LinkSpec] = Field(
        default={},
        description="settings of links; the key is a class of links (device-edge, edge-cloud, edge-edge, device-cloud) "
        "or two nodes: 'a -> b' (one direction) or 'a <-> b' (both); default: profile lan",
    )
    shared: dict[str, MediumSpec] = Field(
        default={},
        description="media that several links share: a cell, an access point, an uplink; the key is a name",
    )
    routes: dict[str, list[str]] = Field(
        default={},
        description="the order in which links cross several media, where it is not obvious; the key is a link or "
        "a pattern (`device-0-* <-> edge-0`), the value the names of media from the lower end to the upper one",
    )
    cross_traffic: list[CrossTrafficSpec] = Field(default=[], description="traffic of others on shared media")
    faults: list[FaultSpec] = Field(
        default=[], description="the faults of the run, each with an action, a time and a place"
    )
    gathering: GatheringSpec = Field(
        default=GatheringSpec(),
        description="how long a node that collects answers waits in each round: for all peers that are online, and for "
        "a quorum of all peers; those that are lost need not answer",
    )
    timeouts: TimeoutsSpec = Field(
        default=TimeoutsSpec(), description="heartbeats between nodes, and between nodes and the orchestrator"
    )
    restart: Literal["on-failure", "never"] = Field(
        default="on-failure",
        description="whether a node is restarted if its process ends unplanned, at most three times without a finished "
        "round",
    )
    stop: StopSpec = Field(
        default=StopSpec(), description="when the run ends: at the first of these conditions that is met"
    )
    expect: ExpectSpec = Field(
        default=ExpectSpec(), description="expected results; if one is missed, the exit code is 3"
    )
    driver: DriverName = Field(
        default="namespaces",
        description=f"how nodes run: {_DRIVERS}",
    )
    engine: EngineName = Field(
        default="auto",
        description="what shapes the links: kernel (netem of Linux), userspace (a relay process) or auto (the first of "
        "both that works)",
    )
    probe: ProbeSpec = Field(default=ProbeSpec(), description="measurement of the links")

    _catalogue: Catalogue = PrivateAttr(default_factory=lambda: EDGEBED)

    @model_validator(mode="after")
    def _look_up(self, info: ValidationInfo) -> Scenario:
        self._catalogue = catalogue_in(info)
        return self

    @property
    def catalogue(self) -> Catalogue:
        """All that the scenario can name."""
        return self._catalogue

    @property
    def driver_kind(self) -> DriverKind:
        return self.catalogue.drivers[self.driver]

    @property
    def scheme(self) -> Algorithm:
        """The algorithm, or `PROGRAMS` if nodes run programs."""
        if self.algorithm is None:
            return PROGRAMS
        return self.catalogue.algorithms[self.algorithm.name]

    @property
    def rounds(self) -> int | None:
        """The maximum number of rounds of the run. None: only the programs know."""
        if self.algorithm is None:
            return self.stop.rounds
        limits = (self.algorithm.rounds, self.stop.rounds)
        configured = [rounds for rounds in limits if rounds is not None]
        return min(configured, default=DEFAULT_ROUNDS)

    @property
    def population(self) -> ClientsSpec | None:
        """The settings of the population's clients; None without a population."""
        if self.topology.population is None:
            return None
        return self.clients or ClientsSpec()

    @property
    def personalisation(self) -> float:
        """The share of each edge's own test set that is set apart for personalisation."""
        if self.data.personalisation is not None:
            return self.data.personalisation
        if self.scheme.personalises:
            return DEFAULT_PERSONALISATION
        return 0.0

    @property
    def mesh(self) -> bool:
        """Whether edges communicate with each other."""
        if self.topology.mesh is not None:
            return self.topology.mesh
        meshed = self.scheme.meshed and self.topology.edges > 1
        return meshed or "edge-edge" in self.links

    @cached_property
    def members(self) -> list[Member]:
        return self.topology.members()

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs that may communicate, those of devices and the edges that they move to last."""
        return [*self.topology.pairs(self.mesh), *self.visits]

    @cached_property
    def visits(self) -> list[Pair]:
        """The pairs of devices and the edges that they move to."""
        return list(dict.fromkeys(visits(self.faults, self.topology)))

    @cached_property
    def resolved_links(self) -> Resolved:
        """The links by direction, and the mistakes in their settings."""
        return resolve(self.links, self.pairs)

    @cached_property
    def resolved_media(self) -> ResolvedMedia:
        """The shared media and the links that cross them, and the mistakes in their settings."""
        if self.topology.population is not None:
            return resolve_for_clients(self.shared, self.routes, self.topology.population)
        targets = set()
        for fault in self.faults:
            if fault.to is not None and fault.action == HANDOVER:
                targets.add(fault.to)
        return resolve_media(self.shared, self.routes, self.pairs, targets)

    @cached_property
    def parameters(self) -> LocalTraining:
        """The algorithm's parameters, including those that ``data`` sets."""
        params: dict[str, Any] = {}
        if self.algorithm is not None:
            params |= self.algorithm.params
        if self.data.evaluate_samples is not None:
            params["evaluate_samples"] = self.data.evaluate_samples
        return read_parameters(self.scheme.params, params)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each client's adapters, for an algorithm that takes different ones."""
        lora = self.model.lora
        if lora is None or not self.scheme.ranked:
            return {}
        ranks = {}
        for member in self.members:
            if member.parent is not None:
                hardware = self.hardware_of(member.name, member.tier)
                ranks[member.name] = lora.ranks.get(hardware.class_, lora.rank)
        return ranks

    def adapters(self, node: str) -> dict[str, Any]:
        """The further parameter of a node's model if it has adapters. The leader of clients with different ranks has
        the largest, and their ``ranks``."""
        ranks = self.ranks
        if node in ranks:
            return self.model.adapters(ranks[node])
        largest = max(ranks.values(), default=None)
        return self.model.adapters(largest, ranks)

    @property
    def leaders(self) -> list[str]:
        """All nodes of the algorithm's leading tier: their rounds are the rounds of the run."""
        leader = self.scheme.leader
        if self.algorithm is None and not self.topology.cloud:
            leader = "edge"
        return [member.name for member in self.members if member.tier == leader]

    def hardware_of(self, node: str, tier: Tier) -> HardwareSpec:
        """The hardware of a node: its own, its tier's or the host's."""
        return self.hardware.get(node) or self.hardware.get(tier) or HardwareSpec()

    def stack_of(self, node: str, tier: Tier) -> StackSpec:
        """The TCP settings of a node: its own, or its tier's."""
        return self.stack.get(node) or self.stack.get(tier) or StackSpec()

    def device_of(self, node: str, tier: Tier) -> str:
        return self.hardware_of(node, tier).accelerator or self.compute.device


def effective(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data with every default written out; reading it again gives the same scenario."""
    data: dict[str, Any] = scenario.model_dump(mode="json")
    data["stop"]["rounds"] = scenario.rounds
    if scenario.algorithm is not None:
        data["algorithm"]["rounds"] = scenario.rounds
        data["data"]["personalisation"] = format_fraction(scenario.personalisation)
    if scenario.population is None:
        data.pop("clients")
        for key in OF_POPULATIONS:
            data["topology"].pop(key, None)
    else:
        data["clients"] = scenario.population.model_dump(mode="json")
    for key in RARE:
        if not data[key]:
            del data[key]
    for link_class in _unset_links(scenario):
        data["links"][link_class] = {"profile": DEFAULT_PROFILE}
    return data


def _unset_links(scenario: Scenario) -> list[str]:
    """The classes of links that the scenario has and does not set."""
    if scenario.population is not None and scenario.population.links:  # then clients have no link in common
        return []
    used = {pair.link_class for pair in scenario.pairs}
    unset = used - scenario.links.keys()
    return [link_class for link_class in LINK_CLASSES if link_class in unset]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario, for editors that complete and check YAML."""
    schema = Scenario.model_json_schema(by_alias=True)
    links = schema["properties"]["links"]
    link = links.pop("additionalProperties")
    classes = {name: link | {"description": text} for name, text in LINK_CLASSES.items()}
    links |= {
        "properties": classes,
        "patternProperties": {r"^\S+ <?-> \S+$": link},
        "additionalProperties": False,
    }
    routes = schema["properties"]["routes"]
    routes |= {
        "patternProperties": {r"^\S+ <-> \S+$": routes["additionalProperties"]},
        "additionalProperties": False,
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "edgebed-scenario"}
    return head | schema
