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

from node.algorithms.registry import ALGORITHMS
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
from node.plugins import activate, find
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


@dataclass
class Journal:
    """What one node reported: its metrics and events, each with their round."""

    metrics: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, int | None, dict[str, Any]]] = field(default_factory=list)

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        self.events.append((name, round, fields))

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        assert round is not None
        self.metrics.append((round, dict(values)))

    def series(self, scope: str, value: str = "accuracy") -> dict[int, float]:
        """A value of a scope ("global", "own", "train") by round."""
        return {round: values[value] for round, values in self.metrics if values["scope"] == scope}

    def rounds(self, event: str) -> list[int | None]:
        return [round for name, round, _ in self.events if name == event]

    def edge_rounds(self, event: str) -> list[int | None]:
        return [fields.get("edge_round") for name, _, fields in self.events if name == event]


@dataclass
class VirtualCompute:
    """Runs a step at once; it lasts by the number of samples on the virtual clock."""

    slowness: float = 1.0

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        result = fn(*args)
        await asyncio.sleep(0.0 if mode == "other" else samples * SECONDS_PER_SAMPLE * self.slowness)
        return result

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        fn(*args)


class FatefulTransport(MemoryTransport):
    """A transport whose messages have the fate that a test gives them."""

    def __init__(self, network: MemoryNetwork, node: str, peers: Iterable[str], fate: Fate) -> None:
        super().__init__(network, node, peers, Timeouts())
        self._fate = fate
        self._delayed: set[asyncio.Task[None]] = set()

    async def send(self, to: Iterable[str], message: Message, *, replace: bool = False) -> None:
        peers = list(to)
        for delay in self._fate(message):
            if delay == 0:
                await super().send(peers, message, replace=replace)
            else:
                task = asyncio.create_task(self._send_later(delay, peers, message))
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
    """A topology and its data. ``tree`` maps each node to its parent, None at the top; names begin with their tier.
    ``model`` may be a group, whose models the nodes of each tier take in turn.

    ``cuts``: from when to when two nodes do not reach each other; ``crash``: when a node ends, and when it begins again
    from its last checkpoint (infinity: never); ``slow``: factors on the time that a node computes. All times are
    seconds of virtual time: a training step takes a millisecond for each sample, and a message one.

    ``fate``: what becomes of each message that a node sends; by default it is delivered once.

    ``meshed``: edges exchange messages with one another; None: if the algorithm is declared to need it.

    ``seed`` is the scenario's. ``device``: what the nodes train on, as torch names it.

    After `run`, the ``journals`` of the nodes and `state` tell what happened.
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
    cuts: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # two nodes -> (from, to) seconds
    slow: Mapping[str, float] = field(default_factory=dict)
    crash: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # node -> (at, back at) seconds
    fate: Fate | None = None
    seed: int = 7
    journals: dict[str, Journal] = field(default_factory=lambda: defaultdict(Journal))
    roles: dict[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parents = set(self.tree.values())
        holders = [node for node in self.tree if node not in parents]
        groups = tuple(Counter(self.tree[node] for node in holders).values())
        parts = divide(self.partition, self.data.train_labels, groups, seed=1)
        counts = dict(zip(holders, parts.label_counts(self.data.train_labels, self.data.classes), strict=True))
        shards: dict[str, Any] = {f"{node}/train": part for node, part in zip(holders, parts.parts, strict=True)}
        for node in self.tree:
            if node.startswith("edge"):
                mine = [counts[holder] for holder in holders if node in (holder, self.tree[holder])]
                tests = own_test(self.data.test_labels, np.sum(mine, axis=0), seed=1, limit=60)
                shards[f"{node}/personal"], shards[f"{node}/own"] = set_apart(tests, self.personal, seed=1)
        self.folder.mkdir(exist_ok=True)
        np.savez(self.folder / "shards.npz", **shards)
        self.keys = set(shards)
        self.samples = {node: len(shards[f"{node}/train"]) for node in holders}

    def run(self) -> Self:
        """Run the algorithm to its end. Raises what a role raises, in an ExceptionGroup."""
        run_virtual(asyncio.wait_for(self._run(), 3600))
        return self

    def state(self, node: str) -> State:
        """The model that a coordinator kept after its last round."""
        checkpoint = load(checkpoint_path(self.folder, node))
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
                group.create_task(self._live(node), name=node)

    async def _live(self, node: str) -> None:
        if node not in self.crash:
            await self._role(node).perform()
            return
        at, back = self.crash[node]
        task = asyncio.create_task(self._role(node).perform())
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
        kind = ALGORITHMS[self.algorithm].roles[assignment.tier]
        self.roles[node] = kind(
            assignment,
            transport,
            VirtualCompute(self.slow.get(node, 1.0)),
            self.journals[node],
            params=self.params,
            learner=Learner.from_assignment(assignment),
            restored=load(checkpoint_path(self.folder, node)),
        )
        return self.roles[node]

    def _transport(self, node: str, peers: Sequence[str]) -> MemoryTransport:
        if self.fate is None:
            return self.network.transport(node, peers)
        return FatefulTransport(self.network, node, peers, self.fate)

    def _assignment(self, node: str) -> Assignment:
        parent = self.tree[node]
        # Who waits for edges must allow each of them all its own gatherings.
        longer = (getattr(self.params, "kappa2", 0) + 1) * self.gathering.deadline
        if node == "cloud":
            gathering = replace(self.gathering, deadline=longer)
        else:
            gathering = self.gathering
        if parent:
            peers = [self._peer(parent, "parent")]
        else:
            peers = []
        peers += [self._peer(child, "child") for child, above in self.tree.items() if above == node]
        if self.meshed is None:
            meshed = ALGORITHMS[self.algorithm].meshed
        else:
            meshed = self.meshed
        if meshed and tier_of(node) == "edge":
            peers += [self._peer(each, "neighbour") for each in self.tree if tier_of(each) == "edge" and each != node]
        keys = (f"{node}/train", f"{node}/own", f"{node}/personal")
        train, own, personal = (key if key in self.keys else None for key in keys)
        data = DataAssignment(
            dataset=self.data.name,
            directory=str(self.data.directory),
            shards=str(self.folder / "shards.npz"),
            train_key=train,
            own_test_key=own,
            personal_key=personal,
            global_test=parent is None or ALGORITHMS[self.algorithm].personal,
        )
        nodes = [each for each in self.tree if tier_of(each) == tier_of(node)]
        model, model_params = model_of(self.model, self.model_params, nodes.index(node))
        return Assignment(
            run="test",
            node=node,
            tier=tier_of(node),
            index=1,
            seed=self.seed,
            host="",
            port=0,
            keys=Keypair(public="", secret=""),
            control_endpoint="",
            control_key="",
            peers=tuple(peers),
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

    @staticmethod
    def _peer(name: str, relation: Relation) -> PeerAddress:
        return PeerAddress(name=name, tier=tier_of(name), relation=relation, host="", port=0, public_key="")


def tier_of(node: str) -> Tier:
    return cast(Tier, node.split("-")[0])


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
    activate([find(file.name, file.parent)])
    return Federation(
        prepare("digits", folder / "data", download=False),
        tree,
        algorithm,
        read_parameters(ALGORITHMS[algorithm].params, params or {}),
        folder / "run",
        **{"partition": IID(samples_per_client=samples)} | more,
    )


def star(clients: int, tier: str = "device") -> dict[str, str | None]:
    """The tree of a cloud and its clients."""
    return {"cloud": None} | {f"{tier}-{k}": "cloud" for k in range(clients)}


def hierarchy(groups: Sequence[int], *, cloud: bool = True) -> dict[str, str | None]:
    """The tree of a cloud, edges, and as many devices below each as ``groups`` says."""
    tree: dict[str, str | None] = {"cloud": None} if cloud else {}
    for edge, devices in enumerate(groups):
        tree[f"edge-{edge}"] = "cloud" if cloud else None
        tree |= {f"device-{edge}-{k}": f"edge-{edge}" for k in range(devices)}
    return tree


def same(first: State, second: State) -> bool:
    """Whether two states are equal to the last bit."""
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
