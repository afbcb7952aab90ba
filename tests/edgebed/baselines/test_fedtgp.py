"""FedTGP: margin and losses by hand, its protocol, and its reduction to local training."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgebed
from edgebed.baselines.fedtgp import MeanDistance, contrastive_loss, margin
from node.learning.models import Model
from tests.edgebed.baselines.harness import equal, learns_and_reports, run, trained_alone

PROTOTYPES, CLASSES = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 4.0]]), torch.tensor([0, 0, 1])


def test_the_margin() -> None:
    """Q of class 0 is (1, 0), that of class 1 is (1, 4): 4 apart."""
    assert margin(PROTOTYPES, CLASSES, most=100) == 4
    assert margin(PROTOTYPES, CLASSES, most=3) == 3
    assert margin(PROTOTYPES[:2], CLASSES[:2], most=3) == 0


def test_the_contrastive_loss() -> None:
    """(0, 0) of class 0 is at 1 from P̂ of its class and at 3 from the other's. With δ = 1/2 the loss is
    −log(e^−1.5 / (e^−1.5 + e^−3))."""
    made = contrastive_loss(PROTOTYPES[:1], CLASSES[:1], torch.tensor([[1.0, 0.0], [0.0, 3.0]]), delta=0.5)
    assert made.item() == pytest.approx(-log(exp(-1.5) / (exp(-1.5) + exp(-3))))


def test_the_distance_of_a_mini_batch() -> None:
    """Classes 0 and 1 have the means (0, 0) and (3, 4), at 0 and 5 from (0, 0): the mean 2.5, with λ = 2 it is 5."""
    term = MeanDistance(np.zeros((2, 2), np.float32), np.array([1, 1]), 2.0)
    features = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    batch = edgebed.MiniBatch(features, torch.tensor([0, 1]), features, features=features)
    assert term(Model(nn.Identity(), nn.Identity()), batch).item() == pytest.approx(5)
    unknown = MeanDistance(np.zeros((2, 2), np.float32), np.array([0, 0]), 2.0)
    assert unknown(Model(nn.Identity(), nn.Identity()), batch).item() == 0


def test_clients_of_three_models_get_trained_prototypes(tmp_path: Path) -> None:
    done = run(tmp_path, "fedtgp", server_epochs=5)
    learns_and_reports(done)
    common = done.state("cloud")
    assert common["prototypes"].shape == (10, 8)
    generator = {name.removeprefix("generator/"): values for name, values in common.items() if "/" in name}
    hidden = generator["vectors"] @ generator["layers.0.weight"].T + generator["layers.0.bias"]
    made = np.maximum(hidden, 0) @ generator["layers.2.weight"].T + generator["layers.2.bias"]
    assert np.allclose(made, common["prototypes"], atol=1e-5)


def test_prototypes_of_weight_0_are_local_training(tmp_path: Path) -> None:
    done = run(tmp_path, "fedtgp", prototype_weight=0, inference="classifier", server_epochs=1)
    for node in ("device-0", "device-1", "device-2"):
        assert equal(done.state(node), trained_alone(done, node))
