"""Many clients as one batch, held against `Learner.train` of each client.

Tolerances: sums have another order, so SGD's weights differ by a few units of the last place of a float32 (1.2e-7)
after a dozen steps. Adam divides a gradient by its own size. Where a gradient is nothing but rounding, as that of a
bias before batch normalisation, Adam makes a step of it as long as of any other: there only the loss can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from node.algorithms.fedprox import ProximalTerm
from node.catalogue.datasets import Dataset
from node.learning.data.datasets import Prepared, prepare
from node.learning.devices import seeded
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import Model, ModelPool, build
from node.learning.together import Crew, Training, form, hindrance
from node.learning.training import ExtraLoss, Learner, MiniBatch, TrainResult
from tests.toy_device import TOY

SGD = LocalTraining(learning_rate=0.05, momentum=0.9, weight_decay=0.001, epochs=2, batch_size=16)
ADAM = LocalTraining(optimizer="adam", learning_rate=0.01, epochs=2, batch_size=16)
STEPS = LocalTraining(learning_rate=0.05, steps=4, batch_size=16)
PARTS = LocalTraining(learning_rate=0.05, epochs=2, batch_size=8, gradient_accumulation=3, gradient_clipping=0.5)
UNEQUAL = (50, 33, 32, 16, 7, 1)  # 4, 3, 2, 1, 1 and 1 mini-batches, some of them not full
TOLERANCE = 2e-6


def learners(data: Prepared, model: str, samples: Sequence[int]) -> list[Learner]:
    pool = ModelPool(lambda: build(model, data.shape, data.classes, 1))
    ends = np.cumsum(samples)
    return [
        Learner(pool, data, 7, f"device-{k}", np.arange(end - count, end))
        for k, (count, end) in enumerate(zip(samples, ends, strict=True))
    ]


def both(
    clients: list[Learner], params: LocalTraining, extra: ExtraLoss | None = None, own: float = 1.0
) -> tuple[list[TrainResult], list[TrainResult]]:
    """The results one by one and together. Clients begin with different weights."""
    random = np.random.default_rng(3)
    starts = []
    for learner in clients:
        w = learner.initial()
        factor = np.float32(random.uniform(0.9, 1.1))
        starts.append({n: each * factor if each.dtype.kind == "f" else each for n, each in w.items()})
    trainings = [Training(w, params, 5, extra, own) for w in starts]
    assert len({form(*each) for each in zip(clients, trainings, strict=True)}) == 1
    alone = [learner.train(w, params, 5, extra, own) for learner, w in zip(clients, starts, strict=True)]
    return alone, Crew(clients).train(trainings)


def apart(alone: TrainResult, together: TrainResult) -> float:
    """The largest difference of two entries, counters and running statistics too."""
    assert {n: (w.shape, w.dtype) for n, w in alone.weights.items()} == {
        n: (w.shape, w.dtype) for n, w in together.weights.items()
    }
    differences = [np.abs(alone.weights[n].astype(np.float64) - together.weights[n]) for n in alone.weights]
    return max(float(each.max()) for each in differences)


@pytest.mark.parametrize("params", [SGD, STEPS, PARTS])
@pytest.mark.parametrize(
    ("model", "samples"),
    [("mlp", UNEQUAL), ("lenet", UNEQUAL), ("tiny-resnet", (20, 9)), ("cnn", (48,) * 4), ("separable-cnn", (32,) * 3)],
)
def test_clients_learn_together_what_they_learn_alone(
    digits: Prepared, model: str, samples: tuple[int, ...], params: LocalTraining
) -> None:
    alone, together = both(learners(digits, model, samples), params)
    for one, other in zip(alone, together, strict=True):
        assert apart(one, other) < TOLERANCE
        assert (one.steps, one.samples, one.clipped) == (other.steps, other.samples, other.clipped)
        assert other.loss == pytest.approx(one.loss, abs=TOLERANCE)
    assert len({each.loss for each in together}) == len(samples)


@pytest.mark.parametrize("names", [("tokens", "mask", "side"), ("0", "1", "2")])
def test_samples_of_several_parts_and_numbers_to_predict(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Tokens and a mask stay as they are, floats are normalised by the mean and deviation of each column."""
    random = np.random.default_rng(1)
    arrays = (random.integers(0, 9, (80, 5)), random.random((80, 5)) < 0.5, random.normal(3, 2, (80, 2)))
    x = dict(zip(names, arrays, strict=True)) if "side" in names else arrays
    y = random.normal(size=(80, 3))
    entry = Dataset("parts", read=lambda: {"x_train": x, "y_train": y, "x_test": x, "y_test": y})
    data = prepare("parts", tmp_path, known={"parts": entry})

    class Extractor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layer = nn.Embedding(9, 4), nn.Linear(6, 8)

        def forward(self, x: Any) -> Tensor:
            tokens, mask, side = (x[name] for name in names) if "side" in names else x
            assert (tokens.dtype, mask.dtype, side.dtype) == (torch.int64, torch.bool, torch.float32)
            pooled = (self.embedding(tokens) * mask[..., None]).sum(-2)
            return torch.tanh(self.layer(torch.cat([pooled, side], -1)))

    def made() -> Model:
        with seeded(1):
            return Model(Extractor(), nn.Linear(8, 3))

    clients = [Learner(ModelPool(made), data, 7, f"device-{k}", np.arange(40 * k, 40 * k + 33)) for k in range(1)]
    clients.append(Learner(clients[0].models, data, 7, "device-1", np.arange(40, 60)))
    inputs = clients[0].normalise(clients[0].train_data[0])
    side = inputs["side"] if "side" in names else inputs[2]
    expected = (arrays[2] - arrays[2].mean(axis=0)) / arrays[2].std(axis=0)
    np.testing.assert_allclose(side, expected[:33], atol=1e-5)
    assert hindrance(made(), data) is None
    alone, together = both(clients, SGD)
    assert max(apart(*each) for each in zip(alone, together, strict=True)) < TOLERANCE
    found = clients[0].evaluate(alone[0].weights, "global")
    assert found.loss == pytest.approx(found.metrics["mse"])
    assert found.metrics["mae"] < found.metrics["mse"] ** 0.5


def test_labels_that_do_not_count(tmp_path: Path) -> None:
    """A step is that of its mini-batch, whose loss is the mean over the labels that count: in parts and together, too,
    though the samples have between 1 and 5 of them."""
    random = np.random.default_rng(1)
    x = random.integers(0, 9, (60, 5))
    y = np.where(np.arange(5) < random.integers(1, 6, (60, 1)), (x + 1) % 9, -100)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = prepare(f"npz:{tmp_path / 'a.npz'}", tmp_path)

    def made() -> Model:
        with seeded(1):
            return Model(nn.Embedding(9, 4), nn.Linear(4, 9))

    pool = ModelPool(made)
    clients = [Learner(pool, data, 7, "device-0", np.arange(33)), Learner(pool, data, 7, "device-1", np.arange(33, 60))]
    whole = replace(PARTS, batch_size=24, gradient_accumulation=1)
    for params in (whole, PARTS):
        alone, together = both(clients, params)
        assert max(apart(*each) for each in zip(alone, together, strict=True)) < TOLERANCE
    in_one, in_parts = (both(clients, params)[0][0] for params in (whole, PARTS))
    assert apart(in_one, in_parts) < TOLERANCE
    weights = alone[0].weights
    clients[0].set(weights)
    with torch.inference_mode():
        logits = clients[0].model(torch.from_numpy(x))
    right = (logits.argmax(-1).numpy() == y).sum()
    found = clients[0].evaluate(weights, "global")
    assert found.metrics["accuracy"] == pytest.approx(right / (y != -100).sum())
    assert found.loss == pytest.approx(float(cross_entropy(logits.flatten(0, 1), torch.from_numpy(y).flatten())))


def test_by_adam_too(digits: Prepared) -> None:
    alone, together = both(learners(digits, "mlp", UNEQUAL), ADAM)
    assert max(apart(*each) for each in zip(alone, together, strict=True)) < 1e-5
    alone, together = both(learners(digits, "cnn", (48, 48)), ADAM)
    assert [each.loss for each in together] == pytest.approx([each.loss for each in alone], abs=1e-4)


def test_with_fedproxs_term_and_a_weight_of_the_own_loss(digits: Prepared) -> None:
    clients = learners(digits, "mlp", UNEQUAL)
    for params in (SGD, PARTS):
        plain, _ = both(clients, params)
        alone, together = both(clients, params, ProximalTerm(clients[0].initial(), 0.5), own=0.7)
        assert max(apart(*each) for each in zip(alone, together, strict=True)) < TOLERANCE
        assert apart(plain[0], together[0]) > 1e-3  # the term acts
        for one, other in zip(alone, together, strict=True):
            assert one.objective is not None
            assert other.objective is not None
            assert other.objective == pytest.approx(one.objective, abs=TOLERANCE)
            assert other.loss == pytest.approx(one.loss, abs=TOLERANCE)
            assert other.objective < other.loss  # by the factor 0.7: the proximal term is small here


def test_each_client_has_the_arrays_of_its_own_term(digits: Prepared) -> None:
    clients = learners(digits, "mlp", (20, 20))
    w = clients[0].initial()
    far = {name: values + 1 for name, values in w.items()}
    trainings = [Training(w, SGD, 5, ProximalTerm(anchor, 1.0)) for anchor in (w, far)]
    alone = [each.train(w, SGD, 5, t.extra) for each, t in zip(clients, trainings, strict=True)]
    together = Crew(clients).train(trainings)
    assert max(apart(*each) for each in zip(alone, together, strict=True)) < TOLERANCE


def test_a_batch_of_one_sample_keeps_the_statistics_of_batch_normalisation(digits: Prepared) -> None:
    def made() -> Model:
        with seeded(1):
            return Model(nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4)), nn.Linear(4, 10))

    pool = ModelPool(made)
    clients = [Learner(pool, digits, 7, f"device-{k}", np.arange(17 * k, 17 * k + 17)) for k in range(2)]
    alone, together = both(clients, SGD)  # every second mini-batch has one sample
    assert max(apart(*each) for each in zip(alone, together, strict=True)) < TOLERANCE
    assert int(together[0].weights["extractor.2.num_batches_tracked"]) == 2  # of four


@pytest.mark.parametrize("travels", [True, False])
@pytest.mark.parametrize("params", [SGD, ADAM])
def test_frozen_and_unused_parameters_stay(digits: Prepared, params: LocalTraining, travels: bool) -> None:
    def made() -> Model:
        with seeded(1):
            frozen = nn.Linear(64, 8).requires_grad_(False)
            model = Model(nn.Sequential(nn.Flatten(), frozen, nn.ReLU()), nn.Linear(8, 10), travels)
        model.classifier.spare = nn.Parameter(torch.ones(2))
        return model

    pool = ModelPool(made)
    clients = [Learner(pool, digits, 7, f"device-{k}", np.arange(17 * k, 17 * k + 17)) for k in range(2)]
    alone, together = both(clients, params)
    assert max(apart(*each) for each in zip(alone, together, strict=True)) < 1e-5
    w = clients[0].initial()
    for result in (clients[0].train(w, params, 1), Crew(clients[:1]).train([Training(w, params, 1)])[0]):
        same = {name for name, values in w.items() if np.array_equal(values, result.weights[name])}
        assert same == {"classifier.spare"} | ({"extractor.1.weight", "extractor.1.bias"} if travels else set())
    start, end = made().state_dict(), pool.model.state_dict()
    assert all(torch.equal(end[name], start[name]) for name in ("extractor.1.weight", "extractor.1.bias"))
    assert clients[0].trained == ("classifier.weight", "classifier.bias", "classifier.spare")


@dataclass(frozen=True)
class OfItsOwn:
    """A term that no other client can share."""

    def __call__(self, model: Model, batch: MiniBatch) -> Tensor:
        return batch.logits.sum() * 0


def test_who_trains_together(digits: Prepared) -> None:
    first, second, empty = learners(digits, "mlp", (20, 30, 0))
    w = first.initial()
    alike = form(first, Training(w, SGD, 1))
    assert alike is not None
    assert form(second, Training(w, SGD, 2)) == alike
    near, nearer = (ProximalTerm(w, mu) for mu in (0.1, 0.2))
    others = [
        form(second, Training(w, STEPS, 1)),
        form(second, Training(w, SGD, 1, near)),
        form(second, Training(w, SGD, 1, nearer)),
        form(second, Training(w, SGD, 1, None, 0.5)),
        form(learners(digits, "mlp", (20,))[0], Training(w, SGD, 1)),  # another pool: another model, or device
    ]
    assert len({alike, *others}) == 6
    assert form(empty, Training(w, SGD, 1)) is None
    assert form(first, Training(w, replace(SGD, gradient_checkpointing=True), 1)) is None
    assert form(first, Training(w, SGD, 1, OfItsOwn())) is None
    small, large, equal = learners(digits, "cnn", (20, 30, 20))
    w = small.initial()
    kinds = [form(each, Training(w, SGD, 1)) for each in (small, large, equal)]
    assert kinds[0] == kinds[2] != kinds[1]  # batch normalisation


def test_clients_together_follow_their_device(digits: Prepared) -> None:
    pool = ModelPool(lambda: build("mlp", digits.shape, 10, 1), TOY)
    clients = [Learner(pool, digits, 7, f"device-{k}", np.arange(20 * k, 20 * k + 20)) for k in range(2)]
    w = pool.initial()
    term = ProximalTerm(w, 0.1)
    found = Crew(clients).train([Training(w, SGD, 1, term)] * 2)
    expected = Crew(learners(digits, "mlp", (20, 20))).train([Training(w, SGD, 1, term)] * 2)
    assert [apart(*each) for each in zip(found, expected, strict=True)] == [0, 0]  # the same kernels


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        (nn.Dropout(0.5), "its dropout draws other numbers"),
        (nn.Dropout(0.0), None),
        (Branching(), "torch cannot compute it"),
    ],
)
def test_models_that_are_refused_with_a_reason(digits: Prepared, middle: nn.Module, reason: str | None) -> None:
    model = Model(nn.Sequential(nn.Flatten(), middle), nn.Linear(64, 10))
    before = {name: each.clone() for name, each in model.tensors.items()}
    found = hindrance(model, digits)
    assert (found is None) == (reason is None)
    assert found is None or (reason is not None and found.startswith(reason))
    assert all(torch.equal(each, model.tensors[name]) for name, each in before.items())


def test_every_small_model_of_the_catalogue_can(digits: Prepared) -> None:
    for name in ("mlp", "cnn", "lenet", "phefl-cnn", "separable-cnn", "tiny-resnet"):
        assert hindrance(build(name, digits.shape, 10, 1), digits) is None


def test_weights_of_another_model_are_refused(digits: Prepared) -> None:
    (learner,) = learners(digits, "mlp", (20,))
    with pytest.raises(ModelError, match=r"device-0: weights are not.*model"):
        Crew([learner]).train([Training({"w": np.zeros(3)}, SGD, 1)])
