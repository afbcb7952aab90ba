from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from node.algorithms.fednova import accumulated, normalised_average
from node.algorithms.parameters import FedAvg, FedNova
from node.assignment import derive_seed
from node.catalogue.partitions import Dirichlet
from node.learning.data.datasets import Prepared
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.optimizers import Descent
from node.learning.training import Learner
from node.testing import Federation, star

OPTIONS: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": 16}


def test_accumulated_steps_worked_example() -> None:
    """ρ = 1/2: of three gradients the last counts once, the one before 1 + 1/2 times, the first 1 + 1/2 + 1/4 times."""
    assert accumulated(3, 0.5) == 1 + 1.5 + 1.75
    assert accumulated(1, 0.9) == pytest.approx(1)
    assert accumulated(7, 0.0) == 7


def test_accumulated_steps_are_those_of_the_descent() -> None:
    """On a loss whose gradient is always 1, five steps of rate 0.1 move by 0.1 a."""
    w = torch.tensor([2.0], requires_grad=True)
    step = Descent([w], LocalTraining(learning_rate=0.1, momentum=0.8))
    for _ in range(5):
        step(w.sum())
    assert 2 - w.item() == pytest.approx(0.1 * accumulated(5, 0.8), rel=1e-5)


def test_two_clients_worked_example() -> None:
    """w = 1, ρ = 0. Client 1: n = 1, τ = 1, w_1 = 0. Client 2: n = 3, τ = 4, w_2 = −1.

    p = 1/4, 3/4; a = 1, 4; τ_eff = 1/4 + 3 = 13/4; mean steps (1 − 0)/1 = 1 and (1 + 1)/4 = 1/2;
    w ← 1 − 13/4 (1/4 · 1 + 3/4 · 1/2) = −33/32, where FedAvg has −3/4. Statistics: 1/4 · 4 + 3/4 · 8 = 7.
    """
    learner: Any = SimpleNamespace(model=nn.Linear(1, 1, bias=False))

    def state(weight: float, mean: float, count: int) -> dict[str, np.ndarray[Any, Any]]:
        return {"weight": np.array([[weight]], np.float32), "mean": np.array([mean], np.float32), "n": np.array(count)}

    average = normalised_average(learner, state(1, 0, 0), [state(0, 4, 1), state(-1, 8, 4)], [1, 3], [1, 4])
    assert average["weight"].tolist() == [[-33 / 32]]
    assert average["mean"].tolist() == [7]
    assert average["n"] == 4
    assert average["weight"].dtype == np.float32
    still = normalised_average(learner, state(1, 0, 0), [state(1, 0, 0)], [1], [0])
    assert still["weight"].tolist() == [[1]]  # no step, no division by its number


def test_equal_steps_are_fedavg(digits: Prepared, tmp_path: Path) -> None:
    nova = Federation(digits, star(3), "fednova", FedNova(**OPTIONS), tmp_path / "nova", rounds=3, model="cnn").run()
    avg = Federation(digits, star(3), "fedavg", FedAvg(**OPTIONS), tmp_path / "avg", rounds=3, model="cnn").run()
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(nova.state("cloud")[name], values, rtol=1e-4, atol=1e-5)
    accuracies = [run.journals["cloud"].series("global") for run in (nova, avg)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.01)


def test_the_protocol_counts_optimizer_steps(digits: Prepared, tmp_path: Path) -> None:
    """A round of clients with unequal shards, written out: τ_i batches, not epochs."""
    params = FedNova(**OPTIONS, epochs=2)
    skewed = Dirichlet(alpha=0.3)
    run = Federation(digits, star(3), "fednova", params, tmp_path, rounds=1, partition=skewed).run()
    shards = np.load(tmp_path / "shards.npz")
    model_pool = ModelPool(lambda: build("mlp", digits.shape, 10, derive_seed(7, "model")))
    learners = [Learner(model_pool, digits, 7, f"device-{k}", shards[f"device-{k}/train"]) for k in range(3)]
    taus = [2 * -(-learner.samples // 16) for learner in learners]
    assert len(set(taus)) > 1
    w = learners[0].initial()
    results = [learner.train(w, params, 1) for learner in learners]
    n = sum(learner.samples for learner in learners)
    a = [accumulated(tau, 0.9) for tau in taus]
    tau_eff = sum(k.samples / n * a_k for k, a_k in zip(learners, a, strict=True))
    for name, values in run.state("cloud").items():
        steps = [
            k.samples / n * (w[name] - r.weights[name]) / a_k for k, r, a_k in zip(learners, results, a, strict=True)
        ]
        np.testing.assert_allclose(values, w[name] - tau_eff * sum(steps), rtol=1e-3, atol=1e-5)


def test_adam_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer: adam does not add"):
        FedNova(optimizer="adam")
