"""The plan: every node, address, link, shard of data and fault of a run, decided before anything starts.

`orchestrator.planning.making` makes it from a scenario.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule
from node.algorithms.registry import PROGRAMS, Algorithm
from node.assignment import PluginSource, Stop, Target, Tier, Timeouts
from orchestrator.planning.faults.timeline import Fault, FaultTime
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.hosts.placement import Placement
from orchestrator.planning.learning.shards import Shards
from orchestrator.planning.notes import of_clients_at_once, of_data, of_files, of_images, of_links, of_memory, of_mtus
from orchestrator.planning.programs import ProgramPlan
from orchestrator.population.population import Population
from orchestrator.scenario.catalogue import EDGEBED, Catalogue
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import DriverKind
from orchestrator.scenario.sections.hardware import HardwareClass

_NOT_IN_JSON = (
    "catalogue",
    "params",
    "shards",
    "data_directory",
    "folder",
    "placement",
    "training_bytes",
    "scenario_notes",  # they are in the notes
)
_OPTIONAL = ("programs", "hosts", "population", "clients", "media", "cross_traffic", "precision")


@dataclass(frozen=True)
class NodePlan:
    """A node: its identity, address, relations, hardware, data, model and host.

    ``samples`` and ``label_counts`` (by class): its own training data. ``test_counts`` (by class): the labels of its
    own test set, on which it is scored. ``leads``: its rounds are the rounds of the run. ``joins``: when it starts, if
    not at the start. ``model`` and ``model_params``: the scenario's, or the node's member of the model group.
    ``image``: the image of its container; None: the run's. ``host``: the name of the host that it runs on; empty: this
    host. The hardware of a node on a real board has the name of the board's class, no speed and no limits. ``device``:
    the part of its host that it trains on. ``stack``: its own TCP settings, by their names below /proc/sys/net/ipv4.
    ``visits``: the edges that a device moves to, and of an edge the devices that move to it.
    """

    name: str
    tier: Tier
    index: int
    address: str
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
    host: str = ""
    device: str = PROCESSOR
    stack: Mapping[str, str] = field(default_factory=dict)
    visits: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; without the host if it is this one, the device if it is the processor, and an empty stack."""
        usual = {
            "host": "",
            "device": PROCESSOR,
            "stack": {},
            "visits": (),
        }
        data = {}
        for key, value in asdict(self).items():
            if usual.get(key) != value:
                data[key] = value
        return data


class Accelerated(NamedTuple):
    """Nodes that train on an accelerator, in containers of an image; None: the run's."""

    image: str | None
    device: str
    nodes: list[str]


@dataclass(frozen=True)
class LinkPlan:
    """One direction of a link: its profile, the schedule that changes it, and the channels of shared media that it
    crosses, in order. ``at_target``: on several hosts, the host of its target shapes it. ``nat_timeout``: the time in s
    after which a NAT before the target forgets a flow that was idle. ``waits``: cut until its device moves.
    ``mtu``: the largest IP packet in bytes, if the link has one of its own; the same in both directions."""

    source: str
    target: str
    link_class: str
    profile: LinkProfile
    seed: int
    schedule: Schedule | None = None
    crossings: tuple[Crossing, ...] = ()
    at_target: bool = False
    nat_timeout: float | None = None
    waits: bool = False
    mtu: int | None = None

    @property
    def extremes(self) -> list[LinkProfile]:
        """The profile and the extremes of its schedule, see `netem.schedules.schedule.Schedule.extremes`."""
        if self.schedule is None:
            return [self.profile]
        return self.schedule.extremes(self.profile)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the profile with units, the schedule as it was written, files by name and hash."""
        data = vars(self) | {"profile": self.profile.to_mapping()}
        if self.schedule is not None:
            data["schedule"] = self.schedule.to_mapping()
        for key in ("schedule", "crossings", "at_target", "nat_timeout", "waits", "mtu"):
            if not data[key]:
                del data[key]
        return data


@dataclass(frozen=True)
class MediumPlan:
    """A shared medium: its channels by name. One that is half duplex has the channel ``NAME``, any other the channels
    ``NAME up`` and ``NAME down``. ``members``: as the scenario names them, nodes or links, without patterns.
    ``schedules``: how channels change during training, as a link with their rate and buffer would."""

    name: str
    channels: Mapping[str, ChannelProfile]
    members: tuple[str, ...]
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, schedules as they were written."""
        channels = {}
        for name, profile in self.channels.items():
            channels[name] = profile.to_mapping()
        schedules = {}
        for name, schedule in self.schedules.items():
            schedules[name] = schedule.to_mapping()
        data = {"name": self.name, "channels": channels, "members": self.members}
        if schedules:
            data["schedules"] = schedules
        return data


def channels_of(media: Iterable[MediumPlan]) -> dict[str, ChannelProfile]:
    """All channels of media, by name."""
    channels: dict[str, ChannelProfile] = {}
    for medium in media:
        channels |= medium.channels
    return channels


@dataclass(frozen=True)
class CrossTrafficPlan:
    """Cross traffic on a channel from ``at`` s of training on, for ``duration`` s (None: to the end)."""

    channel: str
    traffic: CrossTraffic
    at: float
    duration: float | None
    seed: int
    file: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the name and the hash of a file instead of its rows."""
        if self.file:
            traffic = {"kind": self.traffic.kind, **self.file}
        else:
            traffic = self.traffic.to_mapping()
        data = vars(self) | {"traffic": traffic}
        del data["file"]
        return data


@dataclass(frozen=True)
class DataPlan:
    """The data set and its partition. Without labels (the data set is not on this host) counts are 0, hashes empty.
    Programs bring data of their own: then everything is empty.

    ``sha256``: hash of the data set. ``shards_sha256``: hash of the index lists. ``moves``: the partition's repairs as
    (from, to, label, number of samples); ``notes``: on samples and people that were left out or moved.
    ``used_samples``: how many of ``train_samples`` were assigned to nodes. ``test_counts``: labels of test samples per
    class; of sequences, of all tokens. ``unheld``: test classes of which no node holds a training sample. ``task``: as
    in `Form`, ``guess``: as in `PreparedLabels`. ``columns``: those of a table, each with what it became.
    ``class_metrics``: those that nodes report next to accuracy.
    """

    dataset: str = ""
    sha256: str = ""
    classes: int = 0
    partition: str = ""
    partition_params: Mapping[str, Any] = field(default_factory=dict)
    test: str = ""
    train_samples: int = 0
    used_samples: int = 0
    test_samples: int = 0
    test_counts: tuple[int, ...] = ()
    shards_sha256: str = ""
    moves: tuple[tuple[str, str, int, int], ...] = ()
    notes: tuple[str, ...] = ()
    unheld: tuple[int, ...] = ()
    task: str = "classification"
    guess: tuple[float, float] | None = None
    columns: tuple[tuple[str, str], ...] = ()
    class_metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class GatheringPlan:
    """How long nodes wait for answers: for a ``quorum`` (a share) or a ``count`` of the peers they asked (the other is
    None), at most until the tier's deadline. ``deadlines``: in seconds, by tier. Programs gather as they like."""

    quorum: float | None = None
    count: int | None = None
    late: str = "discard"
    deadlines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StopPlan:
    """The conditions that end the run; ``after`` in s of training; ``bytes`` that all devices together have sent and
    received. ``rounds``: None if only programs know."""

    rounds: int | None
    accuracy: float | None
    after: float | None
    target: Target | None = None
    bytes: int | None = None

    @property
    def of_nodes(self) -> Stop:
        """The conditions without the time, as nodes have them."""
        return Stop(
            rounds=self.rounds or 0,
            accuracy=self.accuracy,
            target=self.target,
        )

    @property
    def without_goals(self) -> Stop:
        """The rounds alone, for each of several leading nodes: their mean, which none of them knows, is to reach the
        goals."""
        return Stop(rounds=self.rounds or 0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All decisions for a run. plan.json leaves out ``shards``, the index arrays, ``data_directory``, the folder of the
    prepared data set on this host, where the source of ``plugins`` is, and the ``placement``, some of which is
    measured. ``folder``: of the scenario, where programs run. ``hosts``: those that nodes run on, by name; none if all
    nodes run on this host. ``clients_at_once``: how many simulated clients train as one batch. ``precision``: see
    `Assignment`. ``catalogue``: what the names of the scenario stand for. ``placement``: which node runs where and why,
    or None then. ``population``: the clients that one node stands for, if there are such. ``clients``: the files with
    settings of single nodes, and how many rows are used. ``scenario_notes``: on parameters, or on programs.
    ``probe_longest``: s, as `plan_probe` in `netem` has it."""

    name: str
    plugins: tuple[PluginSource, ...]
    catalogue: Catalogue = field(default=EDGEBED, compare=False, repr=False)
    seed: int
    driver: str
    engine: str
    algorithm: str
    params: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    model_params: Mapping[str, Any] = field(default_factory=dict)
    model_bytes: int = 0
    data: DataPlan = field(default_factory=DataPlan)
    nodes: tuple[NodePlan, ...]
    links: tuple[LinkPlan, ...]
    faults: tuple[Fault, ...]
    gathering: GatheringPlan = field(default_factory=GatheringPlan)
    timeouts: Timeouts
    stop: StopPlan
    restart: str
    probe: bool
    probe_longest: float | None = None
    shards: Shards = field(default_factory=Shards, compare=False, repr=False)
    data_directory: str = field(default="", compare=False)
    programs: tuple[ProgramPlan, ...] = ()
    folder: str = field(default="", compare=False)
    hosts: tuple[HostFacts, ...] = ()
    clients_at_once: int = 1
    precision: str = ""
    placement: Placement | None = field(default=None, compare=False, repr=False)
    population: Population | None = field(default=None, compare=False, repr=False)
    clients: Mapping[str, Any] = field(default_factory=dict)
    media: tuple[MediumPlan, ...] = ()
    cross_traffic: tuple[CrossTrafficPlan, ...] = ()
    training_bytes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    scenario_notes: tuple[str, ...] = ()

    @property
    def scheme(self) -> Algorithm:
        """The algorithm, or `PROGRAMS` if nodes run programs."""
        return self.catalogue.algorithms.get(self.algorithm, PROGRAMS)

    @property
    def driver_kind(self) -> DriverKind:
        return self.catalogue.drivers[self.driver]

    @property
    def has_one_leader(self) -> bool:
        """Whether the rounds of a single node are those of the run."""
        return sum(node.leads for node in self.nodes) == 1

    def node(self, name: str) -> NodePlan:
        """The node of this name. Raises KeyError."""
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, NodePlan]:
        """The nodes by name, in their order."""
        return {node.name: node for node in self.nodes}

    @property
    def accelerators(self) -> dict[str, list[str]]:
        """The devices other than the processor that nodes train on, with the nodes of each."""
        nodes: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.nodes:
            if node.device != PROCESSOR:
                nodes[node.device].append(node.name)
        return dict(sorted(nodes.items()))

    def accelerated(self, host: str = "") -> list[Accelerated]:
        """The nodes of a host that train on accelerators, by image and device."""
        groups: dict[tuple[str | None, str], Accelerated] = {}
        for node in self.nodes_on(host):
            if node.device == PROCESSOR:
                continue
            key = (node.image, node.device)
            if key not in groups:
                groups[key] = Accelerated(node.image, node.device, [])
            groups[key].nodes.append(node.name)
        return list(groups.values())

    @property
    def images(self) -> list[str]:
        """The images that are set for single nodes, without the run's image."""
        images = {node.image for node in self.nodes if node.image is not None}
        return sorted(images)

    def nodes_on(self, host: str) -> list[NodePlan]:
        """The nodes that run on a host."""
        return [node for node in self.nodes if node.host == host]

    def images_of(self, nodes: Iterable[NodePlan]) -> set[str]:
        """The images that these nodes, or their programs, are made from, without the run's image."""
        if not self.programs:
            return {node.image for node in nodes if node.image is not None}
        names = {node.name for node in nodes}
        images = set()
        for program in self.programs:
            if program.node in names and program.image is not None:
                images.add(program.image)
        return images

    def notes(self) -> list[str]:
        """Notes for the record: facts about the plan that a reader of the results must know."""
        empty = []
        for node in self.nodes:
            if node.label_counts and not node.samples:
                empty.append(node.name)
        with_mtu = [link for link in self.links if link.mtu is not None]
        notes = list(self.data.notes)
        notes += of_data(self.data.unheld, empty)
        notes += self.scenario_notes
        notes += of_links(len(self.links), self.driver_kind)
        notes += of_images(self.images, self.driver_kind)
        notes += of_files(self.clients)
        notes += of_memory(self.nodes, self.training_bytes, self.driver_kind)
        notes += of_mtus(len(with_mtu), self.driver_kind)
        notes += of_clients_at_once(self.clients_at_once, self.driver_kind)
        if self.placement is not None:
            notes += self.placement.notes
        return notes

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json: plain data, times in seconds, profiles with units."""
        population = None if self.population is None else self.population.to_json()
        data: dict[str, Any] = {}
        for entry in fields(self):
            data[entry.name] = getattr(self, entry.name)
        data |= {
            "algorithm": {"name": self.algorithm, "params": dict(self.params)},
            "nodes": [node.to_json() for node in self.nodes],
            "links": [link.to_json() for link in self.links],
            "faults": [fault.to_json() for fault in self.faults],
            "notes": self.notes(),
            "plugins": [{"name": plugin.name, "sha256": plugin.sha256} for plugin in self.plugins],
            "programs": [asdict(program) for program in self.programs],
            "hosts": [host.to_json() for host in self.hosts],
            "population": population,
            "media": [medium.to_json() for medium in self.media],
            "cross_traffic": [traffic.to_json() for traffic in self.cross_traffic],
        }
        for name in ("data", "gathering", "timeouts", "stop"):
            data[name] = asdict(data[name])
        for name in _NOT_IN_JSON:
            del data[name]
        for name in _OPTIONAL:
            if not data[name]:
                del data[name]
        if self.clients_at_once == 1:
            del data["clients_at_once"]
        return data

    @property
    def recorded(self) -> dict[str, Any]:
        """The content of plan.json as it is after reading the file back."""
        written = json.dumps(self.to_json())
        read: dict[str, Any] = json.loads(written)
        return read
