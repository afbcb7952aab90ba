from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgebed import Learner, Message, State, round_of
from edgebed.baselines.fedala import FedALA, adapt, aggregated, converged, reweighted, upper
from edgebed.testing import Federation, federation, star
from node.catalogue.partitions import Dirichlet
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def run(
    folder: Path, crash: Mapping[str, tuple[float, float]] | None = None, model: str = "mlp", **params: Any
) -> Federation:
    folder.mkdir(exist_ok=True)
    more: dict[str, Any] = {"params": {**LOCAL, **params}, "rounds": 3, "crash": crash or {}, "model": model}
    return federation(folder, "edgebed.baselines.fedala", "fedala", star(2), **more).run()


def test_the_upper_layers() -> None:
    names = ["extractor.1.weight", "extractor.1.bias", "classifier.weight", "classifier.bias"]
    assert [upper(names, layers) for layers in (0, 1, 2, 3)] == [[], names[2:], names, names]


def test_the_mixture_worked_example() -> None:
    """Equation 4: [0, 4] + ([2, 2] - [0, 4]) * [0.5, 1] = [1, 2]; below the upper layers the global model, 9."""
    own = {"upper": np.array([0.0, 4.0]), "lower": np.array([1.0])}
    w = {"upper": np.array([2.0, 2.0]), "lower": np.array([9.0])}
    found = aggregated(own, w, {"upper": np.array([0.5, 1.0])})
    assert (found["upper"].tolist(), found["lower"].tolist()) == ([1.0, 2.0], [9.0])


def test_the_weights_worked_example() -> None:
    """Equation 5: [0.5, 1, 0.5] - 0.5 [1, -1, 3] * [0.5, 2, 2] = [0.25, 2, -2.5], clipped to [0.25, 1, 0]."""
    gradient, difference = np.array([1.0, -1.0, 3.0]), np.array([0.5, 2.0, 2.0])
    assert reweighted(np.array([0.5, 1.0, 0.5]), gradient, difference, 0.5).tolist() == [0.25, 1.0, 0.0]


def test_convergence() -> None:
    assert not converged([1.0] * 10)
    assert converged([1.0] * 11)
    assert not converged([float(k % 2) for k in range(99)])
    assert converged([float(k % 2) for k in range(100)])
    assert converged([*(float(k % 2) for k in range(10)), *[1.0] * 10])
    assert not converged([*[1.0] * 10, *(float(k % 2) for k in range(10))])


OWN: dict[str, Any] = {"layers": 1, "sampled": 0.6, "weight_learning_rate": 0.7}


def one_epoch(learner: Learner, own: State, w: State, weights: State, p: FedALA, t: int) -> State:
    """W_i after one epoch, with the gradient by W_i itself: equations 4 and 5 as a computation of torch."""
    x, y = learner.train_data
    order = learner.random("local aggregation", t).permutation(len(y))[: math.ceil(p.sampled * len(y))]
    found = {name: torch.tensor(each) for name, each in weights.items()}
    for start in range(0, len(order), p.batch_size):
        chosen = torch.tensor(order[start : start + p.batch_size])
        leaves = {name: each.clone().requires_grad_() for name, each in found.items()}
        mixture = {name: torch.tensor(each) for name, each in w.items()}
        for name, each in leaves.items():
            mixture[name] = torch.tensor(own[name]) + (torch.tensor(w[name]) - torch.tensor(own[name])) * each
        logits = torch.func.functional_call(learner.model.eval(), mixture, learner.normalise(x, chosen))
        torch.nn.functional.cross_entropy(logits, y[chosen]).backward()  # type: ignore[no-untyped-call]
        for name, each in leaves.items():
            assert each.grad is not None
            found[name] = (found[name] - p.weight_learning_rate * each.grad).clamp(0, 1)
    return {name: each.numpy() for name, each in found.items()}


def other_than(state: State, seed: int) -> State:
    random = np.random.default_rng(seed)
    return {name: (each + random.normal(0, 0.3, each.shape)).astype(each.dtype) for name, each in state.items()}


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_an_epoch_of_the_weights(tmp_path: Path, model: str) -> None:
    """In mini-batches of 16 of 36 of 60 samples; batch normalisation has its running statistics."""
    learner, p = run(tmp_path, model=model).roles["device-0"].learner, FedALA(**LOCAL, **OWN)
    w: State = learner.initial()
    own = other_than(w, seed=1)
    weights = {name: np.full_like(w[name], 0.5) for name in upper(learner.trained, 1)}
    expected = one_epoch(learner, own, w, weights, p, t=2)
    found = adapt(learner, own, w, weights, p, 2, once=True)
    assert found.keys() == expected.keys() == {"classifier.weight", "classifier.bias"}
    for name, each in expected.items():
        np.testing.assert_allclose(found[name], each, atol=1e-4)
    every = found["classifier.weight"]
    assert (every.min(), every.max()) != (0.5, 0.5)


def test_the_first_time_the_weights_are_learned_until_the_loss_converges(tmp_path: Path) -> None:
    """At a low rate the losses hardly differ, so that eleven epochs are enough."""
    p = FedALA(**LOCAL, **OWN | {"weight_learning_rate": 0.01})
    learner = run(tmp_path).roles["device-0"].learner
    w: State = learner.initial()
    own, weights = other_than(w, seed=1), {"classifier.bias": np.full_like(w["classifier.bias"], 0.5)}
    expected = weights
    for _ in range(11):
        expected = adapt(learner, own, w, expected, p, 2, once=True)
    found = adapt(learner, own, w, weights, p, 2, once=False)
    assert same(found, expected)


def test_a_run_by_its_messages(tmp_path: Path) -> None:
    """Each model of the cloud is FedAvg's mean. Each update is local training from the mixture of the client's last
    model with the cloud's, whose weights were learned until convergence in round 2, and for one epoch in round 3."""
    messages: dict[tuple[str, int], Message] = {}

    def fate(message: Message) -> tuple[float]:
        if message.kind in ("model", "update"):
            messages[message.sender, round_of(message)] = message
        return (0.0,)

    p = FedALA(**LOCAL, **OWN)
    given: dict[str, Any] = {"params": LOCAL | OWN, "rounds": 3, "partition": Dirichlet(alpha=0.5), "fate": fate}
    found = federation(tmp_path, "edgebed.baselines.fedala", "fedala", star(2), **given).run()
    for t in (1, 2):
        updates = [messages[f"device-{k}", t] for k in range(2)]
        samples = [update.fields["samples"] for update in updates]
        assert samples[0] != samples[1]
        for name, each in messages["cloud", t + 1].tensors.items():
            mean = sum(n * update.tensors[name] for n, update in zip(samples, updates, strict=True)) / sum(samples)
            np.testing.assert_allclose(each, mean, atol=1e-6)
    learner = found.roles["device-0"].learner
    weights = {name: np.ones_like(each) for name, each in learner.initial().items() if name.startswith("classifier")}
    for t in (2, 3):
        own, w = messages["device-0", t - 1].tensors, messages["cloud", t].tensors
        weights = adapt(learner, own, w, weights, p, t, once=t == 3)
        mixture = w | {name: own[name] + (w[name] - own[name]) * each for name, each in weights.items()}
        trained = learner.train(mixture, p, t).weights
        for name, each in messages["device-0", t].tensors.items():
            np.testing.assert_allclose(each, trained[name], atol=1e-5)
        assert any(np.abs(mixture[name] - w[name]).max() > 1e-3 for name in weights)


@pytest.mark.parametrize("params", [{"layers": 0}, {"weight_learning_rate": 0.0}])
def test_without_weights_or_with_ones_it_is_fedavg(tmp_path: Path, params: dict[str, Any]) -> None:
    found = run(tmp_path / "ala", **params)
    other, parts = tmp_path / "avg", found.partition
    avg = Federation(found.data, star(2), "fedavg", FedALA(**LOCAL), other, partition=parts).run()
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(found.state("cloud")[name], values, atol=2e-6)


def test_the_weights_leave_one(tmp_path: Path) -> None:
    shares = run(tmp_path).journals["device-0"]
    found = [values["global_weight"] for _, values in shares.metrics if "global_weight" in values]
    assert found[0] == 1.0
    assert 0 < found[2] < 1


def test_a_client_that_restarts_keeps_its_model_and_its_weights(tmp_path: Path) -> None:
    undisturbed = run(tmp_path / "calm")
    crashed = run(tmp_path / "crash", {"device-0": (0.12, 0.2), "device-1": (0.25, 0.3)})
    assert crashed.journals["device-0"].rounds("resumed") == [1]
    for node in star(2):
        assert same(crashed.state(node), undisturbed.state(node))
