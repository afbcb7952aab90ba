"""Every algorithm with every kind of model: the plan refuses the pair in one sentence, or two clients finish two
rounds. The second round is that in which clients use what they learned from one another in the first."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.registry import ALGORITHMS, Algorithm
from node.catalogue.models import MODELS, Size
from node.learning.errors import ModelError
from node.learning.models import measured
from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning import model_size
from tests import user_models
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

BASELINES = [
    f"edgebed.baselines.{each.stem}"
    for each in sorted(Path(import_module("edgebed.baselines").__path__[0]).glob("*.py"))
    if "PLUGIN" in each.read_text()
]
OF_BASELINES: dict[str, Algorithm] = {
    each.name: each for module in BASELINES for each in import_module(module).PLUGIN.algorithms
}
EVERY = ALGORITHMS | OF_BASELINES
MODELS_TRIED = ["cnn", "mlp", "fedfeat-cnn", "torchvision", *user_models.NAMES]
REFUSED = {"featured": {"maps", "whole"}, "linear": {"maps", "whole", "two-layers", "no-bias", "fedfeat-cnn"}}
TOPOLOGIES = {  # of two clients each
    ("required", "required"): "edges: 2, devices_per_edge: 1",
    ("required", "none"): "edges: 2, devices_per_edge: 0",
    ("optional", "optional"): "edges: 0, devices: 2",
}
SMALL = {  # less work, of the same kinds
    "fededs": "encryptor_width: 2, encryptor_epochs: 1, model_epochs: 1, epochs_max: 2",
    **dict.fromkeys(["feelpgen-minus", "feelpgen", "feelpgen-plus"], "inner_rounds: 1, generator_steps: 2"),
    "dffke": "first_epochs: 1, epochs: 1, docking_epochs: 1, decoder_epochs: 1, width: 4",
    "fedgen": "generator_steps: 2",
}
QUICK = {"fedavg": ["frozen", "unused"], "scaffold": ["frozen-head"], "fedala": ["unused"]} | {
    "fededs": ["two-layers", "whole"],
    "feelpgen": ["two-layers", "frozen-head"],
    "fedgen": ["transformer", "maps"],
}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Pictures of 16x16, which every model takes, of three classes."""
    random, path = np.random.default_rng(1), tmp_path / "pictures.npz"
    arrays: dict[str, Any] = {
        f"x_{part}": random.integers(0, 256, (45, 16, 16), np.uint8) for part in ("train", "test")
    }
    np.savez(path, **arrays, y_train=np.arange(45) % 3, y_test=np.arange(45) % 3)
    return path


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure plug-ins' models here. A process for each would import torch."""

    def here(plugins: Any, model: str, params: str, shape: tuple[int, ...], classes: int) -> Size:
        try:
            return measured(MODELS[model], shape, classes, json.loads(params))
        except ModelError as error:
            raise PlanError(model_size.MODEL, str(error).removeprefix("model ")) from None

    monkeypatch.setattr(model_size, "measured", here)


def run(tmp_path: Path, pictures: Path, algorithm: Algorithm, model: str, *arguments: str) -> Simulated:
    topology = TOPOLOGIES[algorithm.edges, algorithm.devices]
    plugins = [module for module in BASELINES if algorithm.name in OF_BASELINES]
    params = "{name: torchvision, architecture: squeezenet-1.1, image_size: 32}" if model == "torchvision" else model
    small = SMALL.get(algorithm.name, "")
    text = f"""\
plugins: [{", ".join([*plugins, user_models.__file__])}]
algorithm: {{name: {algorithm.name}, rounds: 2{small and f", {small}"}}}
data: {{dataset: "npz:{pictures}", partition: iid, samples_per_client: 18, evaluate_samples: 9}}
model: {params}
topology: {{{topology}, cloud: {str(algorithm.cloud != "none").lower()}}}
"""
    return simulate(tmp_path, text, "--workers", "1", *arguments)


def check(tmp_path: Path, pictures: Path, algorithm: Algorithm, model: str) -> None:
    refused = any(getattr(algorithm, need) and model in models for need, models in REFUSED.items())
    try:
        done = run(tmp_path, pictures, algorithm, model)
        found = "finished" if (done.code, done.summary["rounds"]) == (0, 2) else done.errors
    except ScenarioError as error:
        sentence = str(error).partition("model: ")[2]
        one = sentence.startswith(f"{algorithm.name} needs ") and f"which {model} lacks: take cnn, " in sentence
        found = "refused" if one and "\n" not in sentence else str(error)
    assert found == ("refused" if refused else "finished"), f"{algorithm.name} with {model}"


@pytest.mark.parametrize("name", QUICK)
def test_pairs_that_differ_most(tmp_path: Path, pictures: Path, name: str) -> None:
    for model in QUICK[name]:
        check(tmp_path, pictures, EVERY[name], model)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_matrix_of_algorithms_and_models(tmp_path: Path, pictures: Path, name: str) -> None:
    for model in MODELS_TRIED:
        check(tmp_path, pictures, EVERY[name], model)


def test_a_model_with_nothing_to_train_is_refused(tmp_path: Path, pictures: Path) -> None:
    with pytest.raises(ScenarioError, match="model: untrainable has no parameter to train: requires_grad is False for"):
        run(tmp_path, pictures, ALGORITHMS["fedavg"], "untrainable")
