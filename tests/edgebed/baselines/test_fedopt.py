"""The server optimizers, compared with a computation of their own in this file, whole runs included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed import Message, State, round_of
from edgebed.baselines.fedopt import FedAdam, FedAvgM, FedYogi, Moments, first_moments, stepped
from edgebed.testing import Federation, federation, star
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}
PARAMS: dict[str, dict[str, Any]] = {
    "fedavgm": {"server_learning_rate": 0.7, "server_momentum": 0.5},
    "fedadam": {"server_learning_rate": 0.02, "beta1": 0.8, "beta2": 0.9, "adaptivity": 0.01},
    "fedyogi": {"server_learning_rate": 0.02, "beta1": 0.8, "beta2": 0.9, "adaptivity": 0.01},
}
ALL = pytest.mark.parametrize("name", PARAMS)


def run(folder: Path, name: str, clients: int = 3, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = {**LOCAL, **more.pop("params", PARAMS[name])}
    return federation(folder, "edgebed.baselines.fedopt", name, star(clients), params=params, **more)


class Recorder:
    """The models that the cloud sent, by round, and the updates and samples of each round, by client."""

    def __init__(self) -> None:
        self.models: dict[int, State] = {}
        self.updates: dict[int, dict[str, tuple[State, int]]] = {}

    def __call__(self, message: Message) -> tuple[float]:
        if message.kind == "model":
            self.models[round_of(message)] = message.tensors
        if message.kind == "update":
            answers = self.updates.setdefault(round_of(message), {})
            answers[message.sender] = (message.tensors, message.fields["samples"])
        return (0.0,)


def in_one_vector(state: Mapping[str, Any], names: list[str]) -> Any:
    return np.concatenate([np.asarray(state[name], np.float64).ravel() for name in names])


@ALL
def test_a_run_follows_the_equations(tmp_path: Path, name: str) -> None:
    """Every model that the cloud sent, from the updates that it got: the paper's Algorithm 2, written down again."""
    seen, p = Recorder(), PARAMS[name]
    run(tmp_path, name, rounds=5, fate=seen).run()
    names = sorted(seen.models[1])
    x = in_one_vector(seen.models[1], names)
    m, v = np.zeros(x.size), np.full(x.size, p.get("adaptivity", 0) ** 2)
    for t in (1, 2, 3, 4):
        total = sum(samples for _, samples in seen.updates[t].values())
        delta = sum(samples / total * (in_one_vector(y, names) - x) for y, samples in seen.updates[t].values())
        if name == "fedavgm":
            m = 0.5 * m + delta
            x = x + 0.7 * m
        else:
            m = 0.8 * m + 0.2 * delta
            squares = delta * delta
            if name == "fedadam":
                v = 0.9 * v + 0.1 * squares
            else:
                v = np.where(v > squares, v - 0.1 * squares, np.where(v < squares, v + 0.1 * squares, v))
            x = x + 0.02 * m / (np.sqrt(v) + 0.01)
        np.testing.assert_allclose(in_one_vector(seen.models[t + 1], names), x, atol=2e-6)


def w(*values: float) -> State:
    return {"w": np.array(values, np.float32)}


def test_momentum_worked_example() -> None:
    """Δ = 3 − 1 = 2, m = ½ 4 + 2 = 4, x = 1 + ¼ 4 = 2. The statistics are the mean's."""
    p = FedAvgM(server_learning_rate=0.25, server_momentum=0.5)
    x, moments = stepped(
        w(1) | {"variance": np.array([9.0])}, w(3) | {"variance": np.array([5.0])}, {"m": w(4)}, p, "w"
    )
    assert (x["w"].tolist(), x["variance"].tolist(), moments["m"]["w"].tolist()) == ([2.0], [5.0], [4.0])


@pytest.mark.parametrize(
    ("params", "v", "expected"),
    [
        (FedAdam, [16, 1], [13, 1.75]),  # ¾ 16 + ¼ 4;  ¾ 1 + ¼ 4
        (FedYogi, [16, 1], [15, 2]),  # 16 > 4: 16 − ¼ 4;  1 < 4: 1 + ¼ 4
    ],
)
def test_second_moments_worked_example(params: type[FedAdam], v: list[float], expected: list[float]) -> None:
    """Δ² = 4 and m = ½ 2 + ½ 2 = 2 in both entries."""
    p = params(server_learning_rate=1.0, beta1=0.5, beta2=0.75, adaptivity=1.0)
    x, moments = stepped(w(0, 0), w(2, 2), {"m": w(2, 2), "v": w(*v)}, p, "w")
    assert moments["v"]["w"].tolist() == expected
    np.testing.assert_allclose(x["w"], [2 / (np.sqrt(each) + 1) for each in expected], rtol=1e-6)


def test_first_moments() -> None:
    found: Moments = first_moments(w(3, 4), "w", FedYogi(adaptivity=0.5))
    assert (found["m"]["w"].tolist(), found["v"]["w"].tolist()) == ([0, 0], [0.25, 0.25])
    assert first_moments(w(3), "w", FedAvgM()).keys() == {"m"}


@pytest.mark.parametrize(("clients", "model"), [(1, "mlp"), (3, "mlp"), (3, "cnn")])
def test_without_momentum_it_is_fedavg(tmp_path: Path, clients: int, model: str) -> None:
    plain = {"server_momentum": 0.0, "server_learning_rate": 1.0}
    found = run(tmp_path / "opt", "fedavgm", clients, params=plain, model=model).run()
    other = tmp_path / "avg"
    avg = Federation(
        found.data, star(clients), "fedavg", FedAvgM(**LOCAL), other, model=model, partition=found.partition
    )
    for name, values in avg.run().state("cloud").items():
        np.testing.assert_allclose(found.state("cloud")[f"model/{name}"], values, atol=2e-6)


@ALL
def test_it_learns_with_its_defaults(tmp_path: Path, name: str) -> None:
    found = run(tmp_path, name, rounds=10, params={}).run()
    assert found.journals["cloud"].series("global")[10] > 0.6


@ALL
def test_a_server_that_restarts_keeps_its_moments(tmp_path: Path, name: str) -> None:
    calm = run(tmp_path / "calm", name, rounds=5).run()
    crashed = run(tmp_path / "crash", name, rounds=5, crash={"cloud": (1.1, 1.3)}).run()
    assert crashed.journals["cloud"].rounds("resumed")
    assert same(crashed.state("cloud"), calm.state("cloud"))
