"""The same scenario and seed under every driver: the same accuracies and the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from node.role import RESERVED_KINDS
from orchestrator.drivers.docker.engine import Engine
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests import tutorial, user_models
from tests.e2e.harness import FEW, ROOT, THREE, up

pytestmark = pytest.mark.e2e

Figures = tuple[list[tuple[str, int | None, str, float]], dict[str, int]]


def figures(tmp_path: Path, driver: str, scenario: str, prefix: Sequence[str] = ()) -> Figures:
    """Every accuracy and training loss by node, round and scope; and what the roles sent, by kind."""
    result = up(tmp_path, f"{scenario}probe: {{before: false}}\n", "--driver", driver, prefix=prefix, timeout=300)
    assert result.summary["ended"] == "rounds", result.errors
    with closing(History.open(Path(result.summary["run"]))) as history:
        scopes = (("accuracy", "global"), ("accuracy", "own"), ("loss", "train"))
        metrics = [each for value, scope in scopes for each in history.metrics(value, scope)]
        accuracies = sorted((each.node, each.round, each.scope, each.value) for each in metrics)
        sent: defaultdict[str, int] = defaultdict(int)
        for row in volumes.traffic(history):
            if row.direction == "sent" and row.kind not in RESERVED_KINDS:
                sent[row.kind] += row.bytes
    return accuracies, dict(sent)


def test_every_driver_gives_the_same_accuracies_and_bytes(tmp_path: Path, engine: Engine) -> None:
    """With a plug-in of the documentation, below edges."""
    scenario = tutorial.lay_out(tmp_path)["topk"].read_text()
    scenario = scenario.replace("rounds: 5", "rounds: 3").replace("devices_per_edge: 2", "devices_per_edge: 1")
    drivers = ("sim", "namespaces", "docker")
    simulated, namespaces, containers = (figures(tmp_path, driver, scenario) for driver in drivers)
    assert len(simulated[0]) == 3  # an accuracy for each round
    assert set(simulated[1]) == {"model", "sparse", "update"}
    assert simulated == namespaces == containers


def test_a_model_that_draws_learns_the_same_in_namespaces(tmp_path: Path) -> None:
    """Dropout, and draws of numpy and Python in a forward pass, are seeded in nodes as in the simulation's workers."""
    scenario = f"plugins: [{user_models.__file__}]\n{FEW.replace('model: mlp', 'model: transformer')}"
    simulated, namespaces = (figures(tmp_path, driver, scenario) for driver in ("sim", "namespaces"))
    assert "transformer" in scenario
    assert {scope for _, _, scope, _ in simulated[0]} >= {"global", "train"}
    assert simulated == namespaces


def test_adapters_of_a_model_of_tokens_learn_the_same_in_namespaces(tmp_path: Path) -> None:
    data = f'data: {{dataset: "text:{ROOT}/scenarios/texts", partition: by-author}}'
    lora = "lora: {rank: 2, alpha: 4, targets: [query, classifier]}"
    model = f"model: {{name: char-transformer, layers: 1, width: 16, {lora}}}"
    scenario = THREE.replace("data: {dataset: digits, partition: iid}", data).replace("model: mlp", model)
    assert data in scenario
    assert model in scenario
    simulated, namespaces = (figures(tmp_path, driver, scenario) for driver in ("sim", "namespaces"))
    assert {scope for _, _, scope, _ in simulated[0]} >= {"global", "train"}
    assert simulated == namespaces


MESH = "topology: {edges: 3, devices_per_edge: 0}\nlinks: {edge-edge: lan, edge-cloud: lan}"
TREE = "topology: {edges: 2, devices_per_edge: 1}\nlinks: {device-edge: lan, edge-cloud: lan}"
STAR = "topology: {edges: 0, devices: 3}\nlinks: {device-cloud: lan}"
SILOS = "topology: {cloud: false, edges: 2, devices_per_edge: 1}\nlinks: {device-edge: lan, edge-edge: lan}"
GENERATOR = "steps: 2, inner_rounds: 2, generator_steps: 2"
OF_PAPERS = {
    "fedfeat": ("retrain_epochs: 2, features: averaged", STAR, "iid"),
    "fededs": ("profile: fast, encryptor_width: 2, encryptor_epochs: 1, model_epochs: 1", MESH, "iid"),
    "phe-fl": ("epochs: 1", TREE, "{labels-per-edge: D2}"),
    "feelpgen-minus": (GENERATOR, SILOS, "iid"),
    "dffke": ("profile: fast, docking_epochs: 2, decoder_epochs: 1, first_epochs: 2, width: 4", MESH, "iid"),
}


@pytest.mark.parametrize("algorithm", OF_PAPERS)
def test_algorithms_of_rounds_learn_the_same_in_namespaces(tmp_path: Path, algorithm: str) -> None:
    """FEELPGen is not among them: its edges take the models that are there."""
    params, topology, partition = OF_PAPERS[algorithm]
    scenario = f"""\
name: parity
seed: 7
algorithm: {{name: {algorithm}, rounds: 2, {params}}}
data: {{dataset: digits, partition: {partition}, samples_per_client: 40, evaluate_samples: 100}}
model: cnn
gathering: {{deadline: 2min}}
{topology}
"""
    simulated, namespaces = (figures(tmp_path, driver, scenario) for driver in ("sim", "namespaces"))
    assert simulated[0]
    assert simulated == namespaces
