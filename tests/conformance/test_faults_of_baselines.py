"""What a fault leaves behind in each baseline: a lost, late or repeated message, a crash, a cut link, and a restart of
all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node.catalogue.partitions import Dirichlet
from node.learning.data.datasets import Prepared
from node.testing import hierarchy, star
from tests.conformance.faults import HARMLESS, MESSAGES, CalmRuns, Case, assert_close, first_of_each_run

SKEWED = {"partition": Dirichlet(alpha=0.5, variant="client", samples_per_client=60)}
PERSONAL: dict[str, Any] = SKEWED | {"model": "small", "model_params": {"features": 8}}
OWN = ("device-0", "device-1", "device-2")
TREE, CLUSTERS = hierarchy([2, 2, 2]), hierarchy([2, 2, 2], cloud=False)
EDGES = ("edge-0", "edge-1", "edge-2")


def of_star(module: str, algorithm: str = "", kind: str = "update", more: Any = SKEWED, **fields: Any) -> Case:
    name = algorithm or module
    return Case(name, star(3), "device-1", kind, plugin=f"edgebed.baselines.{module}", more=more, **fields)


def of_tree(module: str, algorithm: str, sender: str, kind: str = "update", **fields: Any) -> Case:
    fields = {"tree": TREE, "plugin": f"edgebed.baselines.{module}", "more": SKEWED} | fields
    return Case(algorithm, sender=sender, kind=kind, **fields)


ASYNCHRONOUS = ("fedasync", "fedbuff")
INEXACT = (*ASYNCHRONOUS, "top-k-hierfavg-edge", "top-k-hierfavg-device")
"""Without the same end after a restart. Edges begin their round again, and their devices' memories have gone on."""
SHARED: dict[str, Any] = {"kind": "shared", "more": PERSONAL, "ends": OWN}
CASES = {
    "scaffold": of_star("scaffold", rounds=8),
    "fedala": Case(
        *("fedala", star(3, "edge"), "edge-1", "update"),
        ends=EDGES,
        scope="own",
        plugin="edgebed.baselines.fedala",
        more=SKEWED,
    ),
    "fedavgm": of_star("fedopt", "fedavgm", params={"server_momentum": 0.5}),
    "fedadam": of_star("fedopt", "fedadam"),
    "fedyogi": of_star("fedopt", "fedyogi"),
    "fedgen": of_star("fedgen", params={"generator_steps": 5, "learning_rate": 0.02}),
    "top-k-fedavg": of_star("compressed", "top-k-fedavg", params={"kept": 0.05}, rounds=8),
    "top-k-hierfavg-edge": of_tree("compressed", "top-k-hierfavg", "edge-1", params={"kept": 0.1}),
    "top-k-hierfavg-device": of_tree("compressed", "top-k-hierfavg", "device-1-0", params={"kept": 0.1}),
    "qsgd-fedavg": of_star("compressed", "qsgd-fedavg", params={"levels": 7}),
    "masked-sum-key": of_star("masked_sum", "masked-sum", "key"),
    "masked-sum": of_star("masked_sum", "masked-sum", "masked"),
    "fedasync": of_star("fedasync", rounds=25),
    "fedbuff": of_star("fedbuff", params={"buffer": 2}, rounds=24),
    "fedproto": of_star("fedproto", **SHARED),
    "lgfedavg": of_star("lgfedavg", **SHARED),
    "fml": of_star("fml", **SHARED),
    "feddistill": of_star("feddistill", **SHARED),
    "fedkd": of_star("fedkd", **SHARED),
    "fedgh": of_star("fedgh", params={"header_epochs": 10}, **SHARED),
    "fedtgp": of_star("fedtgp", params={"server_epochs": 10}, **SHARED),
    "fedprox-h": of_tree("hierarchical", "fedprox-h", "device-1-0"),
    "hpfl": of_tree("hierarchical", "hpfl", "device-1-0"),
    "esperhfl-edge": of_tree("hierarchical", "esperhfl", "edge-1"),
    "esperhfl-device": of_tree("hierarchical", "esperhfl", "device-1-0"),
    "sdfeel-device": of_tree("sdfeel", "sdfeel", "device-1-0", tree=CLUSTERS, ends=EDGES),
    "sdfeel-size": of_tree("sdfeel", "sdfeel", "edge-1", "size", tree=CLUSTERS, ends=EDGES),
    "sdfeel-model": of_tree("sdfeel", "sdfeel", "edge-1", "cluster-0", tree=CLUSTERS, ends=EDGES),
}
TROUBLES = ("crash", "crash above", "cut")
WITH_MEMORY = (
    *("scaffold", "fedala", "top-k-fedavg", "top-k-hierfavg-edge", "top-k-hierfavg-device"),
    *("fedasync", "fedbuff", "esperhfl-edge"),
)
"""Those that keep more than models. For the others a crash and a cut are a lost update."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def calm(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> CalmRuns:
    return CalmRuns(CASES, digits, tmp_path_factory.mktemp("calm"))


def cases_and_faults() -> list[Any]:
    """Each case with each fault. What another test covers takes minutes in all, and is marked `long`."""
    parameters = []
    for name in CASES:
        for fault in (*MESSAGES, *TROUBLES):
            covered = fault in TROUBLES and name not in WITH_MEMORY
            marks = [pytest.mark.long] if covered else []
            parameters.append(pytest.param(name, fault, marks=marks))
    return parameters


def trouble(case: Case, kind: str) -> dict[str, Any]:
    """A fault of the sender, of the node above it or of the first one without a cloud, or of the link between them."""
    above = case.tree[case.sender] or "edge-0"
    match kind:
        case "crash":
            return {"crash": {case.sender: (0.15, 0.5)}}
        case "crash above":
            return {"crash": {above: (0.35, 0.6)}}
        case _:
            return {"cuts": {(above, case.sender): (0.15, 3.0)}}


@pytest.mark.parametrize(("name", "fault"), cases_and_faults())
def test_one_fault(name: str, fault: str, calm: CalmRuns, digits: Prepared, tmp_path: Path) -> None:
    case, undisturbed = CASES[name], calm[name]
    faults = {"fate": case.fate(*MESSAGES[fault])} if fault in MESSAGES else trouble(case, fault)
    run = case.run(digits, tmp_path, **faults)
    if fault in HARMLESS and name not in ASYNCHRONOUS:
        for node in case.ends:
            assert run.journals[node].metrics == undisturbed.journals[node].metrics, node
    assert_close(name, run, calm)


@pytest.mark.parametrize("name", first_of_each_run(CASES))
def test_all_nodes_restart(name: str, calm: CalmRuns, digits: Prepared, tmp_path: Path) -> None:
    """As `resume` does."""
    case, undisturbed = CASES[name], calm[name]
    run = case.run(digits, tmp_path, crash=dict.fromkeys(case.tree, (1.5, 1.9)))
    assert any(run.journals[node].rounds("resumed") for node in case.tree)
    if name not in INEXACT:
        assert case.value(run, "loss") == case.value(undisturbed, "loss")
    assert_close(name, run, calm)
