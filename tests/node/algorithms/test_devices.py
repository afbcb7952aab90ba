"""Every algorithm trains on the device that its nodes are given, and there to the bit as on the processor.

The device is `tests.toy_device`: it computes as the processor does, and refuses what was left behind on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from node.algorithms.registry import ALGORITHMS
from node.learning.data.datasets import Prepared
from node.learning.models import Model
from node.learning.training import Learner, MiniBatch
from node.parameters import read_parameters
from node.testing import Federation, hierarchy, same, star
from tests.toy_device import TOY, models_in_steps_only

FLAT, EDGES, SILOS, TREE = star(2), star(2, "edge"), hierarchy([1, 1], cloud=False), hierarchy([1, 1])
ENCRYPTOR = {"encryptor_epochs": 1, "encryptor_width": 2, "model_epochs": 1, "epochs_max": 2}
GENERATOR = {"generator_steps": 2, "inner_rounds": 1}
DECODER = {
    **{"width": 4, "dimension": 8, "embeddings": 16, "docking_epochs": 1, "decoder_epochs": 1, "exchange_epochs": 1},
    **{"first_epochs": 1, "private_steps": 1, "inversion": 1, "inversion_epochs": 1},
}
CASES: dict[str, tuple[str, dict[str, str | None], str, dict[str, Any]]] = {
    "fedavg": ("fedavg", FLAT, "cnn", {"momentum": 0.9, "weight_decay": 0.001}),
    "fedavg by adam": ("fedavg", FLAT, "lenet", {"optimizer": "adam"}),
    "fedprox": ("fedprox", FLAT, "tiny-resnet", {"mu": 0.1}),
    "fednova": ("fednova", FLAT, "mlp", {}),
    "flexlora": ("flexlora", FLAT, "mlp", {}),
    "hierfavg": ("hierfavg", TREE, "separable-cnn", {}),
    "onlyedge": ("onlyedge", SILOS, "mlp", {}),
    "edgecloud": ("edgecloud", TREE, "mlp", {}),
    "phe-fl": ("phe-fl", TREE, "phefl-cnn", {}),
    "fedfeat": ("fedfeat", FLAT, "cnn", {"noise": "gaussian", "clip_norm": 1.0}),
    "fedfeat of averaged features": ("fedfeat", FLAT, "cnn", {"features": "averaged"}),
    "fededs": ("fededs", EDGES, "cnn", {**ENCRYPTOR, "base": "fedprox"}),
    "fededs with noise": ("fededs", EDGES, "cnn", {**ENCRYPTOR, "layer": "noise", "images": "float32"}),
    "feelpgen-minus": ("feelpgen-minus", SILOS, "cnn", GENERATOR),
    "feelpgen": ("feelpgen", SILOS, "cnn", {**GENERATOR, "diversity": 1.0, "generator_teacher": "probabilities"}),
    "feelpgen-plus": ("feelpgen-plus", SILOS, "cnn", GENERATOR),
    "dffke": ("dffke", EDGES, "cnn", {**DECODER, "privacy": "clip"}),
    "dffke with empirical noise": ("dffke", EDGES, "lenet", {**DECODER, "privacy": "empirical"}),
}


def adapters(tree: Mapping[str, str | None]) -> dict[str, Any]:
    ranks = {node: 2 for node, parent in tree.items() if parent}
    return {"lora": {"rank": 2, "alpha": 4, "targets": ["classifier"], "ranks": ranks}}


def test_no_algorithm_is_left_out() -> None:
    assert {name for name, *_ in CASES.values()} == set(ALGORITHMS)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_algorithm_follows_its_device(
    case: str, digits: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models_in_steps_only(monkeypatch)
    name, tree, model, params = CASES[case]
    read = read_parameters(ALGORITHMS[name].params, params)

    def run(device: str) -> Federation:
        personal = 0.3 if ALGORITHMS[name].personalises else 0.0
        folder = tmp_path / device
        return Federation(
            digits,
            tree,
            name,
            read,
            folder,
            rounds=2,
            model=model,
            device=device,
            personal=personal,
            model_params=adapters(tree) if ALGORITHMS[name].ranked else {},
        ).run()

    on_processor, on_toy = run("cpu"), run(TOY)
    for node in tree:
        assert on_toy.roles[node].learner.device.type == TOY
        assert on_toy.journals[node].metrics == on_processor.journals[node].metrics
        assert on_toy.journals[node].metrics or node.startswith("device") or name in ("fededs", "dffke")
    leading = [node for node, above in tree.items() if above is None]
    assert all(same(on_toy.state(node), on_processor.state(node)) for node in leading)


def _behind(model: Model, batch: MiniBatch) -> Tensor:
    """A term of the loss that lies on the processor."""
    return (batch.logits * torch.ones(len(batch.y), 1)).sum()


def test_what_stays_on_the_processor_is_found(digits: Prepared, tmp_path: Path) -> None:
    params = read_parameters(ALGORITHMS["fedavg"].params, {})
    made = Federation(digits, FLAT, "fedavg", params, tmp_path / "run", rounds=1, device=TOY).run()
    learner: Learner = made.roles["device-0"].learner
    with pytest.raises(RuntimeError, match="of the processor meets one of toy"):
        learner.train(learner.initial(), params, 1, _behind)
