"""The scenario: one YAML file that describes nodes, hardware, links, faults, data and algorithm.

The schema is strict: it refuses unknown keys, wrong types and numbers without a unit. One error lists all problems,
each with file, line and YAML path. Everything but the algorithm has a default, so a short file is a complete scenario:

    algorithm: {name: hierfavg, rounds: 5}

A scenario has ``programs`` instead if its nodes run programs of their own.

`validation` checks that the parts fit together (names that exist, an algorithm that fits the topology).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, WithJsonSchema, model_validator

from netem.units import format_fraction
from node.algorithms.registry import ALGORITHMS, PROGRAMS, Algorithm
from node.assignment import Tier
from orchestrator.scenario.catalogue import (
    MAX_ROUNDS,
    AlgorithmSpec,
    DatasetNames,
    ModelSpec,
    PartitionField,
    PartitionSpec,
)
from orchestrator.scenario.client_lists import ClientLists
from orchestrator.scenario.clients import ClientsSpec
from orchestrator.scenario.compute import ComputeSpec, Device
from orchestrator.scenario.drivers import DriverName
from orchestrator.scenario.engines import EngineName
from orchestrator.scenario.expectations import ExpectSpec
from orchestrator.scenario.faults import FaultSpec
from orchestrator.scenario.files import named_text
from orchestrator.scenario.hardware import CUSTOM, HARDWARE, HardwareClass
from orchestrator.scenario.hosts import HostField
from orchestrator.scenario.links import DEFAULT_PROFILE, LinkSpec
from orchestrator.scenario.names import Name
from orchestrator.scenario.plugins import PluginSources
from orchestrator.scenario.programs import ProgramSpec
from orchestrator.scenario.quantities import AutoDuration, Duration, Fraction, Quorum, QuorumField, Size
from orchestrator.scenario.strict import Strict
from orchestrator.scenario.topology import LINK_CLASSES, Topology
from orchestrator.scenario.words import shortened

DEFAULT_ROUNDS = 10
OF_POPULATIONS = ("population", "selected")  # keys of `topology`
DEFAULT_PERSONALISATION = 0.15  # PHE-FL, section IV-B3


class DataSpec(Strict):
    """The data set, and how it is divided over the nodes that hold data: the devices or, without devices, the edges."""

    dataset: DatasetNames = Field(default=["digits"], description="one, or several: the first that this host has")
    path: str | None = Field(default=None, description="file or folder to look in first, relative to the scenario's")
    partition: PartitionField = PartitionSpec("iid", {})
    samples_per_client: int | None = Field(default=None, ge=1, description="training samples to keep of each client")
    evaluate_samples: int | None = Field(default=None, ge=1, description="test samples to evaluate on, not all")
    test: Literal["proportional", "balanced"] = Field(
        default="proportional", description="labels of own test sets: as in the training data, or in equal shares"
    )
    personalisation: Fraction | None = Field(
        default=None,
        lt=1,
        description="share of each edge's own test set that is set apart to personalise by; "
        "default: 15% for an algorithm that does, else none",
    )

    _lists: ClientLists | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> DataSpec:
        if self.partition.name != "file":
            return self
        name = self.partition.params.get("path")
        if not name:
            raise ValueError("partition: file: name a file: {file: clients.json}")
        try:
            self._lists = ClientLists.read(named_text(name, info.context), name)
        except ValueError as error:
            raise ValueError(f"partition: file: {error}") from None
        return self

    @property
    def lists(self) -> ClientLists | None:
        """The samples of each client, if the partition is a file's."""
        return self._lists


def _check_image(name: str) -> str:
    if name.split() != [name]:
        raise ValueError(
            f"'{shortened(name)}' cannot be an image: write its name without blanks, like edgebed-node:arm64"
        )
    return name


ImageName = Annotated[str, AfterValidator(_check_image), WithJsonSchema({"type": "string", "pattern": r"^\S+$"})]
HardwareName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(HARDWARE)})]


class HardwareSpec(Strict):
    """A hardware class. ``speed``, ``cores`` and ``memory`` override its values; ``image`` and ``accelerator`` keep the
    class."""

    short: ClassVar[str | None] = "class"

    class_: HardwareName = Field(default="host", alias="class")
    speed: float | None = Field(default=None, ge=0.0001, description="relative to a core of this host")
    cores: float | None = Field(default=None, ge=0.01)
    memory: Size | None = Field(default=None, gt=0)
    image: ImageName | None = Field(
        default=None, description="of the containers, also for another processor; default: the run's"
    )
    accelerator: Device | None = Field(
        default=None, description="of the host, to train on: cuda, cuda:1; cpu: none; default: compute.device"
    )

    def resolve(self) -> HardwareClass:
        """The hardware class; with overrides, its name is ``custom``. Raises KeyError for an unknown class."""
        base = HARDWARE[self.class_]
        given = {key: value for key in ("speed", "cores", "memory") if (value := getattr(self, key)) is not None}
        kept = {"speed": base.speed, "cores": base.cores, "memory": base.memory}
        return HardwareClass(CUSTOM, **(kept | given)) if given else base


class GatheringSpec(Strict):
    """How long a node waits for answers: at least for a ``quorum`` of the peers it asked, at most to ``deadline``."""

    quorum: QuorumField = Field(default=Quorum(share=0.5), description="a share (50%), or a number of peers (2)")
    deadline: AutoDuration = "auto"
    cloud_deadline: AutoDuration = Field("auto", description="of a cloud above edges, which waits for their rounds")
    late: Literal["discard", "keep"] = "discard"


class TimeoutsSpec(Strict):
    """Nodes send a heartbeat every ``beat``. A node that is silent for ``lost_after`` counts as lost. A node that has
    not heard from the orchestrator for ``lease`` stops itself."""

    beat: Duration = Field(default=1.0, gt=0)
    lost_after: AutoDuration = Field(default="auto", description="auto: 8s, or longer over a very slow link")
    lease: Duration = Field(default=10.0, gt=0)


class StopSpec(Strict):
    """The conditions that end the run: the first one that is met ends it."""

    rounds: int | None = Field(default=None, ge=1, le=MAX_ROUNDS, description="default: algorithm.rounds")
    accuracy: Fraction | None = Field(default=None, gt=0, description="reached on the global test set")
    after: Duration | None = Field(default=None, gt=0, description="time after training started")


class ProbeSpec(Strict):
    """Whether each class of links is measured against its profile before training."""

    before: bool = True


class Scenario(Strict):
    """The whole description of a run."""

    name: Name = Field(default="scenario", description="default: the file's name")
    plugins: PluginSources = Field(default=(), description="Python files beside the scenario, or installed modules")
    seed: int = Field(default=1, ge=0, lt=2**63)
    algorithm: AlgorithmSpec | None = None
    programs: dict[str, ProgramSpec] = Field(
        default={}, description="what nodes run instead of an algorithm: by tier, by node, or with `on` by name"
    )
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec(name="cnn")
    topology: Topology = Topology()
    clients: ClientsSpec | None = Field(default=None, description="of a population: who they are, and who takes part")
    hardware: dict[str, HardwareSpec] = Field(default={}, description="by tier (device, edge, cloud) or name of a node")
    hosts: dict[str, HostField] = Field(
        default={}, description="by tier or name of a node: the name of a host, or a label of hosts, like rack=2"
    )
    compute: ComputeSpec = ComputeSpec()
    links: dict[str, LinkSpec] = Field(default={}, description="by class, or for two nodes: 'a -> b', 'a <-> b'")
    faults: list[FaultSpec] = Field(default=[], description="what goes wrong, and when")
    gathering: GatheringSpec = GatheringSpec()
    timeouts: TimeoutsSpec = TimeoutsSpec()
    restart: Literal["on-failure", "never"] = Field(default="on-failure", description="of nodes that end unplanned")
    stop: StopSpec = StopSpec()
    expect: ExpectSpec = ExpectSpec()
    driver: DriverName = "namespaces"
    engine: EngineName = Field(default="auto", description="what shapes the links")
    probe: ProbeSpec = ProbeSpec()

    @property
    def scheme(self) -> Algorithm:
        """The algorithm, or `PROGRAMS` if nodes run programs."""
        return PROGRAMS if self.algorithm is None else ALGORITHMS[self.algorithm.name]

    @property
    def rounds(self) -> int | None:
        """The maximum number of rounds of the run. None: only the programs know."""
        if self.algorithm is None:
            return self.stop.rounds
        given = [rounds for rounds in (self.algorithm.rounds, self.stop.rounds) if rounds is not None]
        return min(given, default=DEFAULT_ROUNDS)

    @property
    def population(self) -> ClientsSpec | None:
        """The settings of the population's clients; None without a population."""
        return None if self.topology.population is None else self.clients or ClientsSpec()

    @property
    def personalisation(self) -> float:
        """The share of each edge's own test set that is set apart for personalisation."""
        if self.data.personalisation is not None:
            return self.data.personalisation
        return DEFAULT_PERSONALISATION if self.scheme.personalises else 0.0

    @property
    def mesh(self) -> bool:
        """Whether edges communicate with each other."""
        if self.topology.mesh is not None:
            return self.topology.mesh
        meshed = self.scheme.meshed and self.topology.edges > 1
        return meshed or "edge-edge" in self.links

    def hardware_of(self, node: str, tier: Tier) -> HardwareSpec:
        """The hardware of a node: its own, its tier's or the host's."""
        return self.hardware.get(node) or self.hardware.get(tier) or HardwareSpec()

    def device_of(self, node: str, tier: Tier) -> str:
        """What a node trains on."""
        return self.hardware_of(node, tier).accelerator or self.compute.device

    def link(self, link_class: str) -> LinkSpec:
        """The settings of a class of links; the default profile if the scenario has none."""
        return self.links.get(link_class) or LinkSpec(profile=DEFAULT_PROFILE)


def effective(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data with every default written out; reading it again gives the same scenario."""
    data: dict[str, Any] = scenario.model_dump(mode="json")
    data["stop"]["rounds"] = scenario.rounds
    if scenario.algorithm is not None:
        data["algorithm"]["rounds"] = scenario.rounds
    data["data"]["personalisation"] = format_fraction(scenario.personalisation)
    if scenario.population is None:
        data.pop("clients")
        data["topology"] = {key: data["topology"][key] for key in data["topology"] if key not in OF_POPULATIONS}
    else:
        data["clients"] = scenario.population.model_dump(mode="json")
    drawn = scenario.population is not None and scenario.population.links  # then clients have no link in common
    used = set() if drawn else {pair.link_class for pair in scenario.topology.pairs(scenario.mesh)}
    missing = [link_class for link_class in LINK_CLASSES if link_class in used - scenario.links.keys()]
    data["links"] |= {link_class: scenario.link(link_class).model_dump(mode="json") for link_class in missing}
    return data


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario, for editors that complete and check YAML."""
    schema = Scenario.model_json_schema(by_alias=True)
    links = schema["properties"]["links"]
    link = links.pop("additionalProperties")
    links |= {
        "properties": dict.fromkeys(LINK_CLASSES, link),
        "patternProperties": {r"^\S+ <?-> \S+$": link},
        "additionalProperties": False,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "edgebed-scenario"} | schema
