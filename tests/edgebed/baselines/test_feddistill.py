"""FedDistill: its numbers by hand, who learns from whom, and its reduction to local training."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgebed
from edgebed.baselines.feddistill import Distilled, of_others
from node.learning.models import Model
from tests.edgebed.baselines.harness import equal, learns_and_reports, run, trained_alone


def test_the_mean_of_the_others() -> None:
    """Both others have label 0: the mean of (2, 0) and (4, 2). One has label 1."""
    one = {"logits": np.array([[2.0, 0.0], [8.0, 8.0]], np.float32), "has": np.array([True, False])}
    two = {"logits": np.array([[4.0, 2.0], [1.0, 5.0]], np.float32), "has": np.array([True, True])}
    made = of_others([one, two], 2)
    assert made["logits"].tolist() == [[3.0, 1.0], [1.0, 5.0]]
    assert made["clients"].tolist() == [2, 1]
    assert of_others([], 2)["clients"].tolist() == [0, 0]


def test_the_loss_of_a_mini_batch() -> None:
    """Label 0 has the target (3/4, 1/4), and F(x) = (0, 0) predicts (1/2, 1/2): cross-entropy ln 2. Nobody has label 1.
    The mean over both samples, times γ = 3."""
    logits = torch.zeros(2, 2)
    batch = edgebed.MiniBatch(torch.zeros(2, 1), torch.tensor([0, 1]), logits)
    known = np.array([[log(3), 0.0], [9.0, 0.0]], np.float32), np.array([1, 0])
    term = Distilled(*known, weight=3.0)
    assert term(Model(nn.Identity(), nn.Identity()), batch).item() == pytest.approx(3 * log(2) / 2)


def test_clients_of_three_models_learn_from_one_another(tmp_path: Path) -> None:
    done = run(tmp_path, "feddistill", model_params={})
    learns_and_reports(done)
    kept = done.state("cloud")
    assert sorted(kept) == [f"device-{k}/{name}" for k in range(3) for name in ("has", "logits")]
    assert not equal(done.state("device-0"), trained_alone(done, "device-0"))


def test_distillation_of_weight_0_is_local_training(tmp_path: Path) -> None:
    done = run(tmp_path, "feddistill", distillation_weight=0)
    for node in ("device-0", "device-1", "device-2"):
        assert equal(done.state(node), trained_alone(done, node))
