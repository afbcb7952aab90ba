"""LG-FedAvg: which layers are global, and its reduction to FedAvg."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebed.baselines.lgfedavg import assembled, global_part
from node.learning.aggregation import weighted_mean
from tests.edgebed.baselines.harness import equal, learns_and_reports, run

STATE = {name: np.zeros(size) for name, size in (("a.weight", 4), ("a.bias", 2), ("b.0.weight", 3), ("c.weight", 1))}


def test_the_last_layers_are_global() -> None:
    assert list(global_part(STATE, 1)) == ["c.weight"]
    assert list(global_part(STATE, 2)) == ["b.0.weight", "c.weight"]
    assert list(global_part(STATE, 9)) == list(STATE)


def test_a_model_is_its_own_layers_below_the_global_ones() -> None:
    made = assembled(STATE, {"c.weight": np.ones(1)})
    assert (made["c.weight"].tolist(), made["a.bias"].tolist()) == ([1.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"has another c\.weight than the cloud's: lower global_layers"):
        assembled(STATE, {"c.weight": np.ones(2)})


def test_clients_of_three_models_share_their_classifier(tmp_path: Path) -> None:
    done = run(tmp_path, "lgfedavg")
    learns_and_reports(done)
    own = [global_part(done.state(f"device-{k}"), 1) for k in range(3)]
    assert list(own[0]) == ["classifier.weight", "classifier.bias"]
    assert equal(done.state("cloud"), weighted_mean(own, [60, 60, 60]))


def test_with_all_layers_global_it_is_fedavg(tmp_path: Path) -> None:
    """FedAvg by hand: each client trains from the mean of the last round."""
    done = run(tmp_path, "lgfedavg", model="cnn", global_layers=99)
    learners = [done.roles[f"device-{k}"].learner for k in range(3)]
    w = learners[0].initial()
    for t in (1, 2):
        w = weighted_mean([each.train(w, done.params, t).weights for each in learners], [60, 60, 60])
    assert equal(done.state("cloud"), w)
