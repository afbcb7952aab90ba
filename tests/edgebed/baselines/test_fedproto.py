"""FedProto by numbers worked by hand, and its protocol with clients of five models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgebed
from edgebed.baselines.fedproto import Distances, Nearest, class_means, global_prototypes
from node.learning.models import Model
from tests.edgebed.baselines.harness import equal, learns_and_reports, run, trained_alone


def test_the_means_of_the_classes() -> None:
    values, labels = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), torch.tensor([0, 0, 2])
    means, counts = class_means(values, labels, 3)
    assert means.tolist() == [[2.0, 1.0], [0.0, 0.0], [5.0, 5.0]]
    assert counts.tolist() == [2, 0, 1]


def prototypes(values: list[list[float]], counts: list[int]) -> edgebed.State:
    return {"prototypes": np.array(values, np.float32), "counts": np.array(counts)}


@pytest.mark.parametrize(("even", "first"), [(False, [1.0, 6.0]), (True, [2.0, 4.0])])
def test_the_global_prototypes(even: bool, first: list[float]) -> None:
    """Class 0: three samples at (0, 8) and one at (4, 0); weighted (3·(0, 8) + (4, 0)) / 4, evenly (2, 4). Class 1 has
    one client. Class 2 has none and keeps what it had."""
    clients = [prototypes([[0, 8], [0, 0], [0, 0]], [3, 0, 0]), prototypes([[4, 0], [1, 1], [0, 0]], [1, 5, 0])]
    made = global_prototypes(clients, prototypes([[9, 9], [9, 9], [7, 7]], [1, 1, 2]), even)
    assert made["prototypes"].tolist() == [first, [1.0, 1.0], [7.0, 7.0]]
    assert made["counts"].tolist() == [4, 5, 2]
    assert [str(made[name].dtype) for name in ("prototypes", "counts")] == ["float32", "int64"]


def test_the_distance_of_a_mini_batch() -> None:
    """Class 0 has the mean (3, 4), at 5 from (0, 0). Class 1 is at 13 from (5, 12), which is not known yet. Class 2 is
    not in the mini-batch. λ = 0.5 makes 2.5 of 5."""
    model = Model(nn.Identity(), nn.Identity())
    known = prototypes([[0, 0], [5, 12], [1, 1]], [2, 0, 1])
    term = Distances(known["prototypes"], known["counts"], 0.5)
    features = torch.tensor([[2.0, 4.0], [4.0, 4.0], [0.0, 0.0]])
    batch = edgebed.MiniBatch(features, torch.tensor([0, 0, 1]), features, features=features)
    assert term(model, batch).item() == pytest.approx(2.5)


def test_the_nearest_prototype() -> None:
    """(0, 1) is at 1 from class 0 and at 3 from class 2. Class 1 is unknown, so further: at 4."""
    known = prototypes([[0, 0], [0, 1], [0, 4]], [1, 0, 1])
    logits = Nearest(known["prototypes"], known["counts"])(
        Model(nn.Identity(), nn.Identity()), torch.tensor([[0.0, 1]])
    )
    assert logits.tolist() == [[-1.0, -4.0, -3.0]]


def test_clients_of_three_models_share_prototypes(tmp_path: Path) -> None:
    done = run(tmp_path, "fedproto")
    learns_and_reports(done)
    common = done.state("cloud")
    assert common["prototypes"].shape == (10, 8)
    assert common["counts"].sum() == 3 * 60


def test_prototypes_of_weight_0_are_local_training(tmp_path: Path) -> None:
    done = run(tmp_path, "fedproto", prototype_weight=0, inference="classifier")
    for node in ("device-0", "device-1", "device-2"):
        assert equal(done.state(node), trained_alone(done, node))


def test_a_client_continues_after_a_crash(tmp_path: Path) -> None:
    done = run(tmp_path, "fedproto", rounds=4, crash={"device-0": (0.13, 1.0)})
    assert done.journals["device-0"].rounds("resumed")
    assert set(done.journals["cloud"].series("global")) == {1, 2, 3, 4}
