"""Whole runs of an algorithm in one process, for tests: every node a coroutine, the links in memory, the clock virtual.
A run of a few rounds takes milliseconds. `edgebed.testing` exports this for the tests of plug-ins."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from node.assignment import (
    Assignment,
    DataAssignment,
    Gathering,
    Keypair,
    PeerAddress,
    Relation,
    Stop,
    Tier,
    Timeouts,
)
from node.catalogue.models import model_of
from node.catalogue.partitions import IID, PartitionParameters
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared, prepare
from node.learning.data.partition import divide, own_test, set_apart
from node.learning.local_training import LocalTraining
from node.learning.training import Learner
from node.messaging.delivery.pair import Delay
from node.messaging.memory import MemoryNetwork, MemoryTransport
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.plugins import EDGEBED, LearningCatalogue, find, with_plugins
from node.role import Role
from node.runtime.checkpoint import checkpoint_path, load
from node.runtime.clock import run_virtual
from node.runtime.compute import Mode

SECONDS_PER_SAMPLE = 0.001  # of virtual time
SMALL = IID(samples_per_client=60)
PATIENT = Gathering(deadline=30)

Fate = Callable[[Message], Sequence[float]]
"""The seconds after which each copy of a message leaves: ``(0,)`` as sent, ``()`` lost, ``(5,)`` late, ``(0, 0)`` sent
twice."""
Span = tuple[float, float]
"""When something starts and ends, in seconds of virtual time."""

_Event = tuple[str, int | None, dict[str, Any]]  # its name, its round and its other fields


@dataclass
class Journal:
    """What one node reported: its metrics and events, each with their round."""

    metrics: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    events: list[_Event] = field(default_factory=list)

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        self.events.append((name, round, fields))

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        assert round is not None
        self.metrics.append((round, dict(values)))

    def series(self, scope: str, value: str = "accuracy") -> dict[int, float]:
        """A value of a scope ("global", "own", "train") by round."""
        values_by_round = {}
        for round, values in self.metrics:
            if values["scope"] == scope:
                values_by_round[round] = values[value]
        return values_by_round

    def rounds(self, event: str) -> list[int | None]:
        return [round for name, round, _ in self.events if name == event]

    def edge_rounds(self, event: str) -> list[int | None]:
        rounds = []
        for name, _, fields in self.events:
            if name == event:
                rounds.append(fields.get("edge_round"))
        return rounds


@dataclass
class VirtualCompute:
    """Runs a step immediately; it lasts by the number of samples on the virtual clock."""

    slowness: float = 1.0

    async def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        samples: int,
        mode: Mode,
    ) -> Any:
        result = fn(*args)
        seconds = 0.0
        if mode != "other":
            seconds = samples * SECONDS_PER_SAMPLE * self.slowness
        await asyncio.sleep(seconds)
        return result

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        fn(*args)


class FatefulTransport(MemoryTransport):
    """A transport that gives messages the fate that a test chooses."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: str,
        peers: Iterable[str],
        fate: Fate,
    ) -> None:
        super().__init__(network, node, peers, Timeouts())
        self._fate = fate
        self._delayed: set[asyncio.Task[None]] = set()

    async def send(
        self,
        to: Iterable[str],
        message: Message,
        *,
        replace: bool = False,
    ) -> None:
        peers = list(to)
        for delay in self._fate(message):
            if delay == 0:
                await super().send(peers, message, replace=replace)
            else:
                sending = self._send_later(delay, peers, message)
                task = asyncio.create_task(sending)
                self._delayed.add(task)
                task.add_done_callback(self._delayed.discard)

    async def close(self, flush: float | None = None) -> None:
        """Delayed messages of a node that has ended are lost."""
        for task in self._delayed:
            task.cancel()
        await super().close(flush)

    async def _send_later(self, delay: float, peers: Sequence[str], message: Message) -> None:
        await asyncio.sleep(delay)
        await super().send(peers, message)


@dataclass
class Federation:
    """A topology and its data. ``tree`` maps each node to its parent, None at the top; names start with their tier.
    ``model`` may be a group; the nodes of each tier take its models in turn.

    ``cuts``: from when to when two nodes do not reach each other; ``crash``: when a node ends, and when it starts again
    from its last checkpoint (infinity: never); ``slow``: factors on the time that a node computes. All times are
    seconds of virtual time: a training step takes a millisecond for each sample, and a message one.

    ``fate``: what becomes of each message that a node sends; by default it is delivered once.

    ``meshed``: edges exchange messages with one another; None: if the algorithm is declared to need it.

    ``seed`` is the scenario's. ``device``: what the nodes train on, as torch names it. ``catalogue``: what its names
    stand for.

    After `run`, the ``journals`` of the nodes and `state` show what happened.
    """

    data: Prepared
    tree: Mapping[str, str | None]
    algorithm: str
    params: LocalTraining
    folder: Path
    rounds: int = 3
    model: str = "mlp"
    model_params: Mapping[str, Any] = field(default_factory=dict)
    partition: PartitionParameters = SMALL
    gathering: Gathering = PATIENT
    accuracy: float | None = None
    meshed: bool | None = None
    device: str = "cpu"
    personal: float = 0.0  # of each edge's test set that is set apart to personalise by
    cuts: Mapping[tuple[str, str], Span] = field(default_factory=dict)  # two nodes -> (from, to) seconds
    slow: Mapping[str, float] = field(default_factory=dict)
    crash: Mapping[str, Span] = field(default_factory=dict)  # node -> (at, back at) seconds
    fate: Fate | None = None
    seed: int = 7
    catalogue: LearningCatalogue = EDGEBED
    journals: dict[str, Journal] = field(default_factory=lambda: defaultdict(Journal))
    roles: dict[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parents = set(self.tree.values())
        holders = [node for node in self.tree if node not in parents]
        parents_of_holders = [self.tree[node] for node in holders]
        groups = tuple(Counter(parents_of_holders).values())
        labels = self.data.train_labels
        parts = divide(self.partition, labels, groups, seed=1, known=self.catalogue.partitions)
        label_counts = parts.label_counts(labels, self.data.classes)
        counts = dict(zip(holders, label_counts, strict=True))
        shards: dict[str, Any] = {}
        for node, part in zip(holders, parts.parts, strict=True):
            shards[f"{node}/train"] = part
        for node in self.tree:
            if not node.startswith("edge"):
                continue
            # The labels of an edge's own test set are those of its devices, or its own.
            mine = []
            for holder in holders:
                if node in (holder, self.tree[holder]):
                    mine.append(counts[holder])
            likely = np.sum(mine, axis=0)
            tests = own_test(self.data.test_labels, likely, seed=1, limit=60)
            personal, own = set_apart(tests, self.personal, seed=1)
            shards[f"{node}/personal"] = personal
            shards[f"{node}/own"] = own
        self.folder.mkdir(exist_ok=True)
        np.savez(self.folder / "shards.npz", **shards)
        self.keys = set(shards)
        self.samples = {node: len(shards[f"{node}/train"]) for node in holders}

    def run(self) -> Self:
        """Run the algorithm to its end. Raises what a role raises, in an ExceptionGroup."""
        whole_run = asyncio.wait_for(self._run(), 3600)
        run_virtual(whole_run)
        return self

    def state(self, node: str) -> State:
        """The model that a coordinator kept after its last round."""
        path = checkpoint_path(self.folder, node)
        checkpoint = load(path)
        assert checkpoint is not None
        return checkpoint.tensors

    async def _run(self) -> None:
        self.network = MemoryNetwork(lambda source, target: Delay(0.001))
        loop = asyncio.get_running_loop()
        for (one, other), (start, end) in self.cuts.items():
            for ends in ((one, other), (other, one)):
                loop.call_at(start, self.network.cut, *ends)
                loop.call_at(end, self.network.restore, *ends)
        async with asyncio.TaskGroup() as group:
            for node in self.tree:
                group.create_task(self._run_node(node), name=node)

    async def _run_node(self, node: str) -> None:
        if node not in self.crash:
            await self._role(node).perform()
            return
        at, back = self.crash[node]
        first = self._role(node)
        task = asyncio.create_task(first.perform())
        await asyncio.sleep(at)
        task.cancel()  # a role that is cancelled ends without a word
        await asyncio.gather(task, return_exceptions=True)
        if back == math.inf:
            return
        await asyncio.sleep(back - at)
        await self._role(node).perform()

    def _role(self, node: str) -> Role:
        assignment = self._assignment(node)
        peers = [peer.name for peer in assignment.peers]
        transport = self._transport(node, peers)
        roles = self.catalogue.algorithms[self.algorithm].roles
        kind = roles[assignment.tier]
        compute = VirtualCompute(self.slow.get(node, 1.0))
        learner = Learner.from_assignment(assignment, known=self.catalogue.models)
        checkpoint = load(checkpoint_path(self.folder, node))
        role = kind(
            assignment,
            transport,
            compute,
            self.journals[node],
            params=self.params,
            learner=learner,
            restored=checkpoint,
        )
        self.roles[node] = role
        return role

    def _transport(self, node: str, peers: Sequence[str]) -> MemoryTransport:
        if self.fate is None:
            return self.network.transport(node, peers)
        return FatefulTransport(self.network, node, peers, self.fate)

    def _assignment(self, node: str) -> Assignment:
        parent = self.tree[node]
        gathering = self.gathering
        if node == "cloud":
            # A node that waits for edges must allow each of them all its own gatherings.
            own_gatherings = getattr(self.params, "kappa2", 0)
            deadline = (own_gatherings + 1) * gathering.deadline
            gathering = replace(gathering, deadline=deadline)
        data = DataAssignment(
            dataset=self.data.name,
            directory=str(self.data.directory),
            shards=str(self.folder / "shards.npz"),
            train_key=self._key(node, "train"),
            own_test_key=self._key(node, "own"),
            personal_key=self._key(node, "personal"),
            global_test=parent is None or self.catalogue.algorithms[self.algorithm].personal,
        )
        tier = tier_of(node)
        same_tier = [other for other in self.tree if tier_of(other) == tier]
        place = same_tier.index(node)
        model, model_params = model_of(self.model, self.model_params, place)
        return Assignment(
            run="test",
            node=node,
            tier=tier,
            index=1,
            seed=self.seed,
            host="",
            port=0,
            keys=Keypair(public="", secret=""),
            control_endpoint="",
            control_key="",
            peers=tuple(self._peers(node)),
            algorithm=self.algorithm,
            model=model,
            model_params=model_params,
            data=data,
            checkpoint_directory=str(self.folder),
            stop=Stop(rounds=self.rounds, accuracy=self.accuracy),
            leads=parent is None,
            gathering=gathering,
            device=self.device,
        )

    def _key(self, node: str, part: str) -> str | None:
        """The key of a node's samples in the file of shards; None if it has none."""
        key = f"{node}/{part}"
        if key not in self.keys:
            return None
        return key

    def _peers(self, node: str) -> list[PeerAddress]:
        peers = []
        parent = self.tree[node]
        if parent:
            peers.append(_peer(parent, "parent"))
        for child, above in self.tree.items():
            if above == node:
                peers.append(_peer(child, "child"))
        meshed = self.meshed
        if meshed is None:
            meshed = self.catalogue.algorithms[self.algorithm].meshed
        if not meshed or tier_of(node) != "edge":
            return peers
        for other in self.tree:
            if other != node and tier_of(other) == "edge":
                peers.append(_peer(other, "neighbour"))
        return peers


def _peer(name: str, relation: Relation) -> PeerAddress:
    return PeerAddress(
        name=name,
        tier=tier_of(name),
        relation=relation,
        host="",
        port=0,
        public_key="",
    )


def tier_of(node: str) -> Tier:
    tier = node.split("-")[0]
    return cast(Tier, tier)


def federation(
    folder: Path,
    plugin: str | Path,
    algorithm: str,
    tree: Mapping[str, str | None],
    *,
    samples: int = 60,
    params: Mapping[str, Any] | None = None,
    **more: Any,
) -> Federation:
    """A `Federation` for an algorithm of a plug-in, with ``samples`` handwritten digits at each client. ``plugin``: a
    file, or the name of a module. ``folder`` takes the files of the run, like pytest's ``tmp_path``. ``params`` are the
    scenario's; ``more`` are fields of `Federation`, such as another ``partition``.

    PluginError or ValueError if the plug-in or a parameter cannot be used.
    """
    file = Path(plugin)
    catalogue = with_plugins([find(file.name, file.parent)])
    data = prepare("digits", folder / "data", download=False)
    kind = catalogue.algorithms[algorithm].params
    chosen = read_parameters(kind, params or {})
    fields: dict[str, Any] = {
        "partition": IID(samples_per_client=samples),
        "catalogue": catalogue,
    }
    fields.update(more)
    return Federation(data, tree, algorithm, chosen, folder / "run", **fields)


def star(clients: int, tier: str = "device") -> dict[str, str | None]:
    """The tree of a cloud and its clients."""
    tree: dict[str, str | None] = {"cloud": None}
    for k in range(clients):
        tree[f"{tier}-{k}"] = "cloud"
    return tree


def hierarchy(
    groups: Sequence[int],
    *,
    cloud: bool = True,
) -> dict[str, str | None]:
    """The tree of a cloud, edges, and as many devices below each as ``groups`` says."""
    tree: dict[str, str | None] = {}
    top = None
    if cloud:
        top = "cloud"
        tree[top] = None
    for edge, devices in enumerate(groups):
        tree[f"edge-{edge}"] = top
        for k in range(devices):
            tree[f"device-{edge}-{k}"] = f"edge-{edge}"
    return tree


def same(first: State, second: State) -> bool:
    """Whether two states are equal to the last bit."""
    if first.keys() != second.keys():
        return False
    return all(np.array_equal(first[name], second[name]) for name in first)
