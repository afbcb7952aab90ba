"""LG-FedAvg: which layers are global, and its reduction to FedAvg."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgebed.baselines.lgfedavg import assembled, global_part
from edgebed.testing import federation, star
from node.algorithms.common import report_mean
from node.assignment import Gathering
from node.learning.aggregation import weighted_mean
from node.messaging.wire import Message
from tests.edgebed.baselines.harness import GIVEN, equal, learns_and_reports, run

STATE = {name: np.zeros(size) for name, size in (("a.weight", 4), ("a.bias", 2), ("b.0.weight", 3), ("c.weight", 1))}


def test_the_last_layers_are_global() -> None:
    assert list(global_part(STATE, 1)) == ["c.weight"]
    assert list(global_part(STATE, 2)) == ["b.0.weight", "c.weight"]
    assert list(global_part(STATE, 9)) == list(STATE)


def test_a_model_is_its_own_layers_below_the_global_ones() -> None:
    made = assembled(STATE, {"c.weight": np.ones(1)})
    assert (made["c.weight"].tolist(), made["a.bias"].tolist()) == ([1.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"another.*the cloud's: lower global_layers"):
        assembled(STATE, {"c.weight": np.ones(2)})


def test_clients_of_three_models_share_their_classifier(tmp_path: Path) -> None:
    done = run(tmp_path, "lgfedavg")
    learns_and_reports(done)
    own = [global_part(done.state(f"device-{k}"), 1) for k in range(3)]
    assert list(own[0]) == ["classifier.weight", "classifier.bias"]
    assert equal(done.state("cloud"), weighted_mean(own, [60, 60, 60]))


def test_a_client_that_is_cut_off_counts_with_its_last_report(tmp_path: Path) -> None:
    """The cloud misses device-2 in rounds 2 and 3, and restarts from its checkpoint in round 4."""
    rounds = 6
    done = federation(
        tmp_path,
        "edgebed.baselines.lgfedavg",
        "lgfedavg",
        star(3),
        params=GIVEN,
        rounds=rounds,
        cuts={("cloud", "device-2"): (0.15, 9.0)},
        gathering=Gathering(quorum=0.5, deadline=2.0),
        crash={"cloud": (5.0, 6.0)},
    ).run()
    accuracy = [done.journals[f"device-{k}"].series("global") for k in range(3)]
    journal = done.journals["cloud"]
    assert journal.rounds("unanswered") == [2, 3]
    assert journal.rounds("resumed") == [3]
    for t in range(1, rounds + 1):
        latest = 1 if t in (2, 3) else t
        mean = (accuracy[0][t] + accuracy[1][t] + accuracy[2][latest]) / 3
        assert journal.series("global")[t] == pytest.approx(mean)
        assert [values["clients"] for round, values in journal.metrics if round == t] == [3]


def test_a_client_without_samples_does_not_count() -> None:
    """The mean is that of 0.75 and 0.25; the third client has no samples."""
    reports: list[dict[str, Any]] = []
    role: Any = SimpleNamespace(client_reports={}, learner=SimpleNamespace(data=SimpleNamespace(task="classification")))
    role.report = lambda **values: reports.append(values)
    fields = [{"samples": 10, "global": 0.75}, {"samples": 30, "global": 0.25}, {"samples": 0, "global": 1.0}]
    messages = [Message("shared", f"device-{k}", 1, each) for k, each in enumerate(fields)]
    report_mean(role, messages, 1)
    report_mean(role, [], 2)  # no client has answered
    assert reports == [{"round": 1, "scope": "global", "accuracy": 0.5, "clients": 2}]


def test_with_all_layers_global_it_is_fedavg(tmp_path: Path) -> None:
    """FedAvg by hand: each client trains from the mean of the last round."""
    done = run(tmp_path, "lgfedavg", model="cnn", global_layers=99)
    learners = [done.roles[f"device-{k}"].learner for k in range(3)]
    w = learners[0].initial()
    for t in (1, 2):
        w = weighted_mean([each.train(w, done.params, t).weights for each in learners], [60, 60, 60])
    assert equal(done.state("cloud"), w)
