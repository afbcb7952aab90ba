"""FedGH: what the header learns from, one step by hand, and its protocol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebed.baselines.fedgh import FedGH, representations, train_header
from tests.edgebed.baselines.harness import equal, learns_and_reports, run


def test_the_representations_of_all_clients() -> None:
    one = {"prototypes": np.array([[1, 1], [0, 0], [3, 3]], np.float32), "counts": np.array([5, 0, 1])}
    two = {"prototypes": np.array([[0, 0], [0, 0], [4, 4]], np.float32), "counts": np.array([0, 0, 2])}
    features, classes = representations([one, two])
    assert features.tolist() == [[1, 1], [3, 3], [4, 4]]
    assert classes.tolist() == [0, 2, 2]


def test_one_step_of_the_header(tmp_path: Path) -> None:
    """A header of zeros predicts each of 10 classes with 1/10. For the representation x = (2, 0, …) of class 3 the
    gradient of the weights of a class is (1/10 − 1) x for class 3, x / 10 for another, and for biases without x. η_h is
    1/2: the weights of class 3 become 0.45 · 2, those of another −0.05 · 2."""
    done = run(tmp_path, "fedgh", rounds=1)
    cloud, params = done.roles["cloud"].learner, FedGH(header_epochs=1, header_learning_rate=0.5)
    zeros = {name: np.zeros_like(values) for name, values in done.state("cloud").items()}
    x = np.zeros((1, 8), np.float32)
    x[0, 0] = 2
    made = train_header(cloud, zeros, x, np.array([3]), params, 1)
    assert made["classifier.weight"][:, 0].tolist() == pytest.approx([-0.1] * 3 + [0.9] + [-0.1] * 6)
    assert not made["classifier.weight"][:, 1:].any()
    assert made["classifier.bias"].tolist() == pytest.approx([-0.05] * 3 + [0.45] + [-0.05] * 6)


def test_clients_of_three_models_get_one_header(tmp_path: Path) -> None:
    done = run(tmp_path, "fedgh", header_epochs=5)
    learns_and_reports(done)
    header = done.state("cloud")
    assert sorted(header) == ["classifier.bias", "classifier.weight"]
    initial = done.roles["cloud"].learner.initial()
    assert not equal(header, {name: initial[name] for name in header})


def test_a_header_that_is_not_trained_stays(tmp_path: Path) -> None:
    done = run(tmp_path, "fedgh", header_epochs=0)
    initial = done.roles["cloud"].learner.initial()
    assert equal(done.state("cloud"), {name: initial[name] for name in done.state("cloud")})
