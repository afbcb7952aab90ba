"""A learning rate that decays: its values by hand, and the training of each round, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.fededs.parameters import FedEDS
from node.algorithms.parameters import FedAvg, FedFeat, HierFAVG
from node.learning.aggregation import weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.local_training import LocalTraining
from node.testing import Federation, Journal, federation, hierarchy, same, star


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        ({}, [0.1, 0.1, 0.1, 0.1]),
        ({"learning_rate_decay": 0.5}, [0.1, 0.05, 0.025, 0.0125]),
        ({"learning_rate_decay": 0.1, "learning_rate_decay_rounds": 2}, [0.1, 0.1, 0.01, 0.01]),
    ],
)
def test_the_rate_of_a_round(given: dict[str, Any], rates: list[float]) -> None:
    params = LocalTraining(learning_rate=0.1, **given)
    assert [params.at(t).learning_rate for t in (1, 2, 3, 4)] == pytest.approx(rates)
    assert params.at(3).at(3).learning_rate == pytest.approx(rates[2])  # it decays once


def reported_rates(journal: Journal) -> dict[int, float]:
    return {round: values["learning_rate"] for round, values in journal.metrics if "learning_rate" in values}


PARAMS = FedAvg(learning_rate=0.2, learning_rate_decay=0.5, batch_size=16)


@pytest.mark.parametrize("crash", [{}, {"cloud": (0.25, 2.0)}, {"device-0": (0.25, 2.0)}])
def test_rounds_train_at_their_own_rate(
    digits: Prepared, tmp_path: Path, crash: dict[str, tuple[float, float]]
) -> None:
    """FedAvg by hand with rates of 0.2, 0.1 and 0.05, whichever node restarts meanwhile."""
    run = Federation(digits, star(2), "fedavg", PARAMS, tmp_path, rounds=3, crash=crash).run()
    learners = [run.roles[f"device-{k}"].learner for k in range(2)]
    w = learners[0].initial()
    for t, rate in ((1, 0.2), (2, 0.1), (3, 0.05)):
        params = FedAvg(learning_rate=rate, batch_size=16)
        w = weighted_mean([each.train(w, params, t).weights for each in learners], [60, 60])
    assert same(run.state("cloud"), w)
    assert reported_rates(run.journals["device-1"]) == pytest.approx({1: 0.2, 2: 0.1, 3: 0.05})


def test_below_edges_a_round_of_the_run_counts(digits: Prepared, tmp_path: Path) -> None:
    """Each round has two edge rounds, which train at one rate."""
    params = HierFAVG(learning_rate=0.2, learning_rate_decay=0.5, kappa1=1, kappa2=2)
    run = Federation(digits, hierarchy([2, 1]), "hierfavg", params, tmp_path, rounds=2).run()
    assert reported_rates(run.journals["device-0-0"]) == pytest.approx({1: 0.2, 2: 0.1})


def test_without_decay_nothing_is_reported(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(2), "fedavg", FedAvg(), tmp_path, rounds=1).run()
    assert not reported_rates(run.journals["device-0"])
    assert np.isfinite(run.journals["device-0"].series("train", "loss")[1])


def is_train(values: dict[str, Any]) -> bool:
    return bool(values["scope"] == "train")


@pytest.mark.parametrize("kind", [FedFeat, FedEDS, DFFKE])
def test_an_algorithm_with_a_loop_of_its_own_refuses_it(kind: type[LocalTraining]) -> None:
    with pytest.raises(ValueError, match="learning_rate_decay: is not for this algorithm"):
        kind(learning_rate_decay=0.9)


@pytest.mark.parametrize(("name", "module"), [("fml", "fml"), ("fedkd", "fedkd"), ("hpfl", "hierarchical")])
def test_loops_of_baselines_train_at_the_rate_of_the_round(tmp_path: Path, name: str, module: str) -> None:
    """In round 1 nothing differs from a run without decay. In round 2 the rate is so low that nothing is learned, so
    that the losses of rounds 2 and 3 are those of one model, and so are the accuracies of rounds 1 to 3."""
    tree = hierarchy([2]) if name == "hpfl" else star(2)
    params = {"learning_rate": 0.05, "learning_rate_decay": 1e-6, "batch_size": 60}
    run = federation(tmp_path, f"edgebed.baselines.{module}", name, tree, params=params, rounds=3).run()
    node = next(node for node in tree if node.startswith("device"))
    assert reported_rates(run.journals[node]) == pytest.approx({1: 0.05, 2: 5e-8, 3: 5e-14})
    losses = {t: values["loss"] for t, values in run.journals[node].metrics if "loss" in values and is_train(values)}
    assert losses[1] - losses[2] > 1e-3
    assert losses[3] == pytest.approx(losses[2], abs=1e-5)
