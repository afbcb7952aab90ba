"""What one lost, late or repeated message of a paper's algorithm leaves behind, and a restart of all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node.algorithms.common import parted
from node.algorithms.feelpgen.roles import Edge as Silo
from node.algorithms.feelpgen.roles import published
from node.algorithms.phefl import cloud_model
from node.catalogue.partitions import Dirichlet, LabelShards
from node.learning.data.datasets import Prepared
from node.messaging.wire import Message
from node.testing import Federation, hierarchy, same, star
from tests.conformance.faults import HARMLESS, MESSAGES, CalmRuns, Case, assert_close, first_of_each_run

SKEWED = Dirichlet(alpha=0.3, variant="client", samples_per_client=60)
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
    "feelpgen-minus": Case("feelpgen-minus", SILOS, "edge-1", "silo", SILO, ends=EDGES, rounds=10),
    "feelpgen": Case("feelpgen", SILOS, "edge-1", "features", SILO | {"features": 20}, ends=EDGES, rounds=10),
    "feelpgen-plus": Case("feelpgen-plus", SILOS, "edge-1", "silo", SILO | {"features": 20}, ends=EDGES, rounds=10),
    "feelpgen-device": Case("feelpgen", SILOS, "device-1-0", "update", SILO | {"features": 20}, ends=EDGES, rounds=10),
    "dffke": Case("dffke", star(3, "edge"), "edge-1", "knowledge", SMALL_DFFKE, ends=EDGES, rounds=3),
    "dffke-logits": Case("dffke", star(3, "edge"), "edge-1", "logits", SMALL_DFFKE, ends=EDGES, rounds=3),
}
ASYNCHRONOUS = ("feelpgen", "feelpgen-plus", "feelpgen-device")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calm(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> CalmRuns:
    return CalmRuns(CASES, digits, tmp_path_factory.mktemp("calm"))


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
                    assert same(incoming.received[place], part)
    if run.algorithm == "dffke":
        memories: list[Any] = [run.roles[edge] for edge in EDGES]
        first = memories[0].memory
        for other in memories[1:]:
            for round in first.keys() & other.memory.keys():
                assert same(first[round].to_tensors(), other.memory[round].to_tensors())


@pytest.mark.parametrize("fault", MESSAGES)
@pytest.mark.parametrize("name", CASES)
def test_a_message_that_meets_a_fault(name: str, fault: str, calm: CalmRuns, digits: Prepared, tmp_path: Path) -> None:
    case, undisturbed = CASES[name], calm[name]
    run = case.run(digits, tmp_path, fate=case.fate(*MESSAGES[fault]))
    assert_agreement(run)
    if fault in HARMLESS:
        for node in case.ends:
            assert same(run.state(node), undisturbed.state(node)), node
    assert_close(name, run, calm)


@pytest.mark.parametrize("name", [name for name in first_of_each_run(CASES) if CASES[name].algorithm != "dffke"])
def test_all_nodes_restart(name: str, calm: CalmRuns, digits: Prepared, tmp_path: Path) -> None:
    """As `resume` does. DFFKE's clients lose their memory (test_roles of dffke)."""
    case, undisturbed = CASES[name], calm[name]
    run = case.run(digits, tmp_path, crash=dict.fromkeys(case.tree, (1.5, 1.9)))
    assert_agreement(run)
    assert any(run.journals[node].rounds("resumed") for node in case.tree)
    if name not in ASYNCHRONOUS:
        for node in case.ends:
            assert same(run.state(node), undisturbed.state(node)), node
    assert_close(name, run, calm)
