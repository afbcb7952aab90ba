"""FML: its loss by hand, and its reductions to local training and to FedAvg."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
import torch

import edgebed
from edgebed.baselines.fml import mutual_loss
from node.learning.aggregation import weighted_mean
from tests.edgebed.baselines.harness import equal, learns_and_reports, run, trained_alone


def test_the_loss() -> None:
    """p = (1/2, 1/2), q = (3/4, 1/4): CE(p, y) = ln 2, KL(q ‖ p) = 3/4 ln(3/2) + 1/4 ln(1/2)."""
    p, q = torch.tensor([[0.0, 0.0]], requires_grad=True), torch.tensor([[log(3), 0.0]], requires_grad=True)
    divergence = 0.75 * log(1.5) + 0.25 * log(0.5)
    for weight in (1.0, 0.4, 0.0):
        loss = mutual_loss(p, q, torch.tensor([1]), weight)
        assert loss.item() == pytest.approx(weight * log(2) + (1 - weight) * divergence, abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert q.grad is None


def test_clients_of_three_models_share_a_meme(tmp_path: Path) -> None:
    done = run(tmp_path, "fml", model_params={})
    learns_and_reports(done)
    memes = [edgebed.parted(done.state(f"device-{k}"), "meme") for k in range(3)]
    assert equal(done.state("cloud"), weighted_mean(memes, [60, 60, 60]))


def test_by_labels_alone_it_is_local_training_and_fedavg(tmp_path: Path) -> None:
    """FedAvg by hand, from the meme's initial weights."""
    done = run(tmp_path, "fml", model="cnn", own_weight=1, meme_weight=1)
    learners = [done.roles[f"device-{k}"].learner for k in range(3)]
    w = {name: values.copy() for name, values in learners[0].build("cnn").views.items()}
    for t in (1, 2):
        w = weighted_mean([each.train(w, done.params, t).weights for each in learners], [60, 60, 60])
    assert equal(done.state("cloud"), w)
    for node in ("device-0", "device-1", "device-2"):
        assert equal(edgebed.parted(done.state(node), "own"), trained_alone(done, node))
