"""What one lost, late or repeated message of a paper's algorithm leaves behind, and a restart of all nodes.

Every fault strikes in one of the first rounds. Afterwards the rounds are undisturbed, so that the end is that of the
run without the fault: exactly if nothing was missed, else within the spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from node.algorithms.common import parted
from node.algorithms.feelpgen.roles import Edge as Silo
from node.algorithms.feelpgen.roles import published
from node.algorithms.phefl import cloud_model
from node.algorithms.registry import ALGORITHMS
from node.assignment import Gathering
from node.catalogue.partitions import Dirichlet, LabelShards
from node.learning.data.datasets import Prepared, prepare
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.testing import Fate, Federation, hierarchy, same, star

SEEDS = (7, 8, 9)
DEADLINE = 5.0  # s; no round takes as long without a fault
RULE = Gathering(quorum=0.5, deadline=DEADLINE)
SKEWED = Dirichlet(alpha=0.3, variant="client", samples_per_client=60)
SGD: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}
SILO: dict[str, Any] = {
    "steps": 8,
    "inner_rounds": 2,
    "generator_steps": 3,
    "generated_batch": 8,
    "generator_hidden": 16,
}
ENCRYPTOR = {"encryptor_width": 2, "encryptor_epochs": 1, "model_epochs": 1, "weight_decay": 0.0, "m": 0.0}
SMALL_DFFKE = {
    "profile": "fast",
    "learning_rate": 0.003,
    "dimension": 16,
    "width": 4,
    "docking_epochs": 4,
    "decoder_epochs": 4,
    "embeddings": 40,
}
FEATURES = {"partition": LabelShards(shard_size="auto", samples_per_client=60)}


@dataclass(frozen=True)
class Case:
    """The message of ``sender`` that a fault meets: of its ``kind``, the one with the number ``place``, from 1.
    ``ends``: the nodes with the result. ``scope``: the accuracy that is compared, on so many test ``samples``."""

    algorithm: str
    tree: Mapping[str, str | None]
    sender: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ("cloud",)
    rounds: int = 8
    place: int = 2
    scope: str = "global"
    more: Mapping[str, Any] = field(default_factory=dict)

    def run(self, digits: Prepared, folder: Path, **faults: Any) -> Federation:
        params = read_parameters(ALGORITHMS[self.algorithm].params, SGD | dict(self.params))
        fields = {"gathering": RULE} | dict(self.more) | faults
        return Federation(digits, self.tree, self.algorithm, params, folder, self.rounds, **fields).run()

    def fate(self, *delays: float) -> Fate:
        """A fate that meets the message."""
        sent = 0

        def fate(message: Message) -> Sequence[float]:
            nonlocal sent
            if (message.sender, message.kind) != (self.sender, self.kind):
                return (0.0,)
            sent += 1
            return delays if sent == self.place else (0.0,)

        return fate

    def accuracy(self, run: Federation) -> float:
        """The mean over the nodes with the result, in the last round that has one."""
        values = []
        for node in self.ends:
            series = run.journals[node].series(self.scope)
            values.append(series[max(series)])
        return sum(values) / len(values)


TREE = hierarchy([2, 2, 2])
SILOS = hierarchy([2, 2, 2], cloud=False)
EDGES = ("edge-0", "edge-1", "edge-2")
CASES = {
    **{name: Case(name, star(3), "device-1", "update") for name in ("fedavg", "fedprox", "fednova")},
    "hierfavg-edge": Case("hierfavg", TREE, "edge-1", "update", {"kappa2": 2}),
    "hierfavg-device": Case("hierfavg", TREE, "device-1-0", "update", {"kappa2": 2}),
    "onlyedge": Case("onlyedge", TREE, "device-1-0", "update", ends=EDGES, scope="own"),
    "edgecloud": Case("edgecloud", TREE, "edge-1", "update", {"epochs": 1}),
    "phe-fl-edge": Case("phe-fl", TREE, "edge-1", "update", {"epochs": 1}, more={"personal": 0.2}),
    "phe-fl-device": Case("phe-fl", TREE, "device-1-0", "update", {"epochs": 1}, more={"personal": 0.2}),
    "fedfeat": Case("fedfeat", star(4), "device-1", "update", {"epochs": 2}, more=FEATURES),
    "fedfeat-averaged": Case(
        *("fedfeat", star(4), "device-1", "features", {"epochs": 2, "features": "averaged"}), more=FEATURES
    ),
    "fededs": Case("fededs", star(3, "edge"), "edge-1", "update", ENCRYPTOR, more={"partition": SKEWED}),
    "fededs-set": Case(
        *("fededs", star(3, "edge"), "edge-1", "encrypted", ENCRYPTOR), place=1, more={"partition": SKEWED}
    ),
    "feelpgen-minus": Case("feelpgen-minus", SILOS, "edge-1", "silo", SILO, ends=EDGES, rounds=16),
    "feelpgen": Case("feelpgen", SILOS, "edge-1", "features", SILO | {"features": 20}, ends=EDGES, rounds=16),
    "feelpgen-plus": Case("feelpgen-plus", SILOS, "edge-1", "silo", SILO | {"features": 20}, ends=EDGES, rounds=16),
    "feelpgen-device": Case("feelpgen", SILOS, "device-1-0", "update", SILO | {"features": 20}, ends=EDGES, rounds=16),
    "dffke": Case("dffke", star(3, "edge"), "edge-1", "knowledge", SMALL_DFFKE, ends=EDGES, rounds=4),
    "dffke-logits": Case("dffke", star(3, "edge"), "edge-1", "logits", SMALL_DFFKE, ends=EDGES, rounds=4),
}
FAULTS = {"lost": (), "late": (DEADLINE + 0.05,), "repeated": (0.0, 0.0), "repeated later": (0.0, 0.4)}
HARMLESS = ("repeated", "repeated later")
ASYNCHRONOUS = ("feelpgen", "feelpgen-plus", "feelpgen-device")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare("digits", tmp_path_factory.getbasetemp() / "data")


@pytest.fixture(scope="module")
def calm(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Federation]]:
    """Each case without a fault, with three seeds."""
    folder = tmp_path_factory.mktemp("calm")
    return {
        name: [case.run(digits, folder / f"{name}-{seed}", seed=seed) for seed in SEEDS] for name, case in CASES.items()
    }


def bound(case: Case, runs: Sequence[Federation]) -> float:
    """The spread over the seeds, and two standard errors of an accuracy on the test samples of a node."""
    accuracies = [case.accuracy(run) for run in runs]
    samples = runs[0].roles[case.ends[0]].learner.test_samples(case.scope)
    return max(accuracies) - min(accuracies) + 2 * math.sqrt(0.25 / samples)


def assert_agreement(run: Federation) -> None:
    """What nodes know of each other's state is that state."""
    if run.algorithm == "phe-fl":
        models = [Message("update", edge, 1, {"samples": 120}, run.state(edge)) for edge in EDGES]
        for edge in EDGES:
            assert same(parted(run.state("cloud"), edge), cloud_model(edge, models))
    if run.algorithm == "feelpgen":
        for edge in EDGES:
            silo = run.roles[edge]
            assert isinstance(silo, Silo)
            for peer, entry in silo.queue.items():
                made_by = run.roles[peer]
                assert isinstance(made_by, Silo)
                if entry.version == made_by.t:
                    z = published(made_by.g, made_by.params, made_by.shared_seed("labels"), 0)
                    assert same({"z": entry.z}, {"z": z})
    if run.algorithm == "fededs":
        for edge in EDGES:
            knows: Any = run.roles[edge]
            for peer, incoming in knows.sets.items():
                owner: Any = run.roles[peer]
                assert incoming.complete
                for place, part in enumerate(owner.own):
                    assert same(incoming.here[place], part)
    if run.algorithm == "dffke":
        memories: list[Any] = [run.roles[edge] for edge in EDGES]
        first = memories[0].memory
        for other in memories[1:]:
            for round in first.keys() & other.memory.keys():
                assert same(first[round].to_tensors(), other.memory[round].to_tensors())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_a_message_that_meets_a_fault(
    name: str, fault: str, calm: dict[str, list[Federation]], digits: Prepared, tmp_path: Path
) -> None:
    case, undisturbed = CASES[name], calm[name][0]
    run = case.run(digits, tmp_path, fate=case.fate(*FAULTS[fault]))
    assert_agreement(run)
    if fault in HARMLESS:
        for node in case.ends:
            assert same(run.state(node), undisturbed.state(node)), node
    difference = abs(case.accuracy(run) - case.accuracy(undisturbed))
    assert difference <= bound(case, calm[name])


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].algorithm != "dffke"])
def test_all_nodes_restart(name: str, calm: dict[str, list[Federation]], digits: Prepared, tmp_path: Path) -> None:
    """As `resume` does. DFFKE's clients lose their memory (test_roles of dffke)."""
    case, undisturbed = CASES[name], calm[name][0]
    run = case.run(digits, tmp_path, crash=dict.fromkeys(case.tree, (1.5, 1.9)))
    assert_agreement(run)
    assert any(run.journals[node].rounds("resumed") for node in case.tree)
    if name not in ASYNCHRONOUS:
        for node in case.ends:
            assert same(run.state(node), undisturbed.state(node)), node
    assert abs(case.accuracy(run) - case.accuracy(undisturbed)) <= bound(case, calm[name])
