from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from node.algorithms.fedprox import ProximalTerm
from node.algorithms.parameters import FedAvg, FedProx
from node.assignment import derive_seed
from node.learning.data.datasets import Prepared
from node.learning.models import Model, build
from node.learning.training import MiniBatch
from node.testing import Federation, same, star


def test_proximal_term_worked_example() -> None:
    """w = [[1, 2], [3, 4]], w^t = [[0, 2], [3, 2]], μ = 0.5: (0.5 / 2) (1² + 2²) = 1.25; gradient μ (w − w^t)."""
    linear = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    model = Model(nn.Identity(), linear)
    anchor = {"classifier.weight": np.array([[0, 2], [3, 2]], dtype=np.float32)}
    term = ProximalTerm(anchor, 0.5)(model, MiniBatch(torch.empty(0), torch.empty(0), torch.empty(0)))
    assert term.item() == 1.25
    (gradient,) = torch.autograd.grad(term, [linear.weight])
    assert gradient.tolist() == [[0.5, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(("mu", "factor"), [(0.0, 1), (2.5, 0.75), (10.0, 0), (20.0, -1), (25.0, -1.5)])
def test_a_step_multiplies_the_distance(mu: float, factor: float) -> None:
    """By 1 − η μ, here with η = 0.1, if nothing else pulls: above η μ = 2 the distance grows."""
    linear = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        linear.weight.fill_(3.0)
    anchor = {"classifier.weight": np.array([[1.0]], dtype=np.float32)}
    batch = MiniBatch(torch.empty(0), torch.empty(0), torch.empty(0))
    (gradient,) = torch.autograd.grad(ProximalTerm(anchor, mu)(Model(nn.Identity(), linear), batch), [linear.weight])
    assert (linear.weight - 0.1 * gradient - 1).item() == pytest.approx(2 * factor, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({"learning_rate": 0.1, "momentum": 0.9, "batch_size": 16}, "mlp"),
        ({"learning_rate": 0.1, "steps": 5, "participation": 0.5, "weight_decay": 0.01}, "cnn"),
        ({"learning_rate": 0.1, "gradient_clipping": 0.1, "gradient_accumulation": 3, "batch_size": 7}, "mlp"),
        ({"optimizer": "adam", "epochs": 2}, "mlp"),
    ],
)
def test_mu_zero_is_fedavg(digits: Prepared, tmp_path: Path, options: dict[str, Any], model: str) -> None:
    more: dict[str, Any] = {"rounds": 2, "model": model}
    prox = Federation(digits, star(3), "fedprox", FedProx(mu=0, **options), tmp_path / "prox", **more).run()
    avg = Federation(digits, star(3), "fedavg", FedAvg(**options), tmp_path / "avg", **more).run()
    assert same(prox.state("cloud"), avg.state("cloud"))
    assert prox.journals["cloud"].metrics == avg.journals["cloud"].metrics


def test_clients_stay_nearer_as_mu_grows(digits: Prepared, tmp_path: Path) -> None:
    def distance(mu: float) -> float:
        params = FedProx(mu=mu, learning_rate=0.1, epochs=5)
        run = Federation(digits, star(2), "fedprox", params, tmp_path / str(mu), rounds=1).run()
        start, end = build(run.model, digits.shape, 10, derive_seed(7, "model")).state_dict(), run.state("cloud")
        return float(sum(np.square(end[name] - start[name].numpy()).sum() for name in end))

    free, held, tight = distance(0.0), distance(0.1), distance(2.0)
    assert tight < 0.6 * free
    assert tight < held < free
