from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from node.assignment import Assignment, DataAssignment, Keypair, Stop, derive_seed
from node.catalogue.partitions import IID
from node.learning.aggregation import weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.data.partition import divide
from node.learning.errors import DataError, ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import Model, ModelPool, build
from node.learning.training import Learner, MiniBatch
from tests.node.learning.test_batching import seen
from tests.texts import containing

PARAMS = LocalTraining(learning_rate=0.1, batch_size=32, epochs=2)


def learner(data: Prepared, node: str = "device-0-0", model: str = "cnn", samples: int = 100) -> Learner:
    train = np.arange(samples)
    return Learner(
        ModelPool(lambda: build(model, data.shape, data.classes, 1)), data, 7, node, train, own_test=np.arange(50)
    )


def test_state_round_trip(digits: Prepared) -> None:
    one = learner(digits)
    state = one.get()
    assert set(state) == set(one.model.state_dict())
    assert state["extractor.1.num_batches_tracked"].dtype == np.int64
    changed = {name: values + 1 for name, values in state.items()}
    one.set(changed)
    assert all(np.array_equal(values, changed[name]) for name, values in one.get().items())
    assert all(values is not one.get()[name] for name, values in one.get().items())  # copies, not views


def test_what_gradients_change_are_all_but_the_statistics_of_batch_normalisation(digits: Prepared) -> None:
    one = learner(digits)
    others = set(one.get()) - set(one.trained)
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert others == {f"extractor.{norm}.{each}" for norm in (1, 4) for each in statistics}


def test_wrong_states_are_refused_before_anything_changes(digits: Prepared) -> None:
    one = learner(digits, model="mlp")
    before = one.get()
    with pytest.raises(ModelError, match=r"device-0-0: weights are not.*model"):
        one.set(before | {"extra": np.zeros(1)})
    with pytest.raises(ModelError, match=r"shape \(1,\), this model's is \(10,\)"):
        one.set({name: np.zeros(1) if name == "classifier.bias" else values + 1 for name, values in before.items()})
    assert all(np.array_equal(values, before[name]) for name, values in one.get().items())


def test_training_repeats_exactly_and_depends_on_node_and_round(digits: Prepared) -> None:
    start = learner(digits).get()

    def weights(node: str, round: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        fresh = learner(digits, node)
        fresh.train(start, PARAMS, 99)  # what came before has no influence
        return fresh.train(start, PARAMS, round).weights["classifier.weight"]

    assert np.array_equal(weights("a", 1), weights("a", 1))
    assert not np.array_equal(weights("a", 1), weights("a", 2))
    assert not np.array_equal(weights("a", 1), weights("b", 1))


def test_a_warm_up_changes_nothing(digits: Prepared) -> None:
    one, other = learner(digits), learner(digits)
    one.warm_up(PARAMS)
    assert all(np.array_equal(values, one.initial()[name]) for name, values in one.get().items())
    results = [each.train(each.initial(), PARAMS, 1) for each in (one, other)]
    assert results[0].loss == results[1].loss


def test_a_warm_up_leaves_it_to_the_training_to_fail(digits: Prepared, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    one = learner(digits, model="mlp")
    one.model.classifier.register_forward_hook(lambda *_: 1 / 0)
    one.warm_up(PARAMS)
    assert caplog.messages == [containing("training", "before the run: ZeroDivisionError")]
    with pytest.raises(ZeroDivisionError):
        one.train(one.initial(), PARAMS, 1)


def test_one_step_worked_example(digits: Prepared) -> None:
    """A linear model on one sample: w ← w − η (p − e_y) xᵀ with p the softmax of the logits, which starts at 1/10."""
    linear = nn.Linear(64, 10)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    one = Learner(ModelPool(lambda: Model(nn.Flatten(), linear)), digits, 7, "device-0-0", train=np.array([3]))
    result = one.train(one.get(), LocalTraining(learning_rate=0.5), 1)
    x = (digits.array("x_train")[3].reshape(64) / 255 - digits.mean[0]) / digits.std[0]
    error = np.full(10, 0.1) - np.eye(10)[digits.train_labels[3]]
    np.testing.assert_allclose(result.weights["classifier.weight"], -0.5 * np.outer(error, x), atol=1e-6)
    np.testing.assert_allclose(result.weights["classifier.bias"], -0.5 * error, atol=1e-6)
    assert result.loss == pytest.approx(np.log(10))
    assert (result.samples, result.steps) == (1, 1)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("limit", [{"epochs": 2}, {"steps": 3}])
def test_accumulated_mini_batches_are_one_batch(digits: Prepared, optimizer: str, limit: dict[str, Any]) -> None:
    """100 samples are mini-batches of 16 and one of 4: steps of 3, 3 and 1 of them, or of 48, 48 and 4 samples."""
    one = learner(digits, model="mlp")
    params = LocalTraining(optimizer=optimizer, learning_rate=0.01, batch_size=48, gradient_clipping=1.0, **limit)

    def pull(model: Model, _: MiniBatch) -> torch.Tensor:
        return torch.stack([w.square().sum() for w in model.parameters()]).sum()

    accumulating = replace(params, batch_size=16, gradient_accumulation=3)
    whole, parts = (one.train(one.initial(), each, 1, pull) for each in (params, accumulating))
    assert (parts.steps, one.work(accumulating)) == (whole.steps, one.work(params))
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    for name, values in whole.weights.items():
        np.testing.assert_allclose(parts.weights[name], values, atol=1e-5)


def test_batch_normalisation_takes_the_statistics_of_each_accumulated_mini_batch(digits: Prepared) -> None:
    one = learner(digits, model="cnn")
    params = LocalTraining(learning_rate=0.01, batch_size=48, steps=1)
    whole, parts = (
        one.train(one.initial(), each, 1) for each in (params, replace(params, batch_size=16, gradient_accumulation=3))
    )
    counter = next(name for name in whole.weights if name.endswith("num_batches_tracked"))
    assert [int(result.weights[counter]) for result in (whole, parts)] == [1, 3]
    mean = counter.replace("num_batches_tracked", "running_mean")
    assert not np.allclose(whole.weights[mean], parts.weights[mean], atol=1e-4)


@pytest.mark.parametrize(("most", "share"), [(None, None), (1e6, 0.0), (1e-6, 1.0)])
def test_steps_with_clipped_gradients_are_counted(digits: Prepared, most: float | None, share: float | None) -> None:
    one = learner(digits, model="mlp")
    result = one.train(one.initial(), replace(PARAMS, gradient_clipping=most), 1)
    assert result.clipped == share
    assert result.metrics.get("clipped") == share


def test_an_extra_loss_is_added(digits: Prepared) -> None:
    one = learner(digits, model="mlp")
    start = one.get()
    pull: Callable[[Model, MiniBatch], torch.Tensor] = lambda model, batch: 1.5 + 0 * batch.logits.sum()  # noqa: E731
    plain, added = one.train(start, PARAMS, 1), one.train(start, PARAMS, 1, pull)
    assert (plain.objective, plain.metrics) == (None, {"loss": plain.loss})
    assert added.objective == pytest.approx(plain.loss + 1.5, rel=1e-5)
    assert added.metrics == {"loss": plain.loss, "objective": added.objective}
    assert np.array_equal(added.weights["classifier.weight"], plain.weights["classifier.weight"])


def test_an_extra_loss_sees_the_features(digits: Prepared) -> None:
    def features(model: Model, batch: MiniBatch) -> torch.Tensor:
        assert torch.equal(model.classifier(batch.features), batch.logits)
        return 0 * batch.features.sum()

    one = learner(digits, model="mlp")
    with_them, without = (one.train(one.initial(), PARAMS, 1, extra).weights for extra in (features, None))
    assert all(np.array_equal(without[name], with_them[name]) for name in without)


def test_outputs_for_all_training_samples(digits: Prepared) -> None:
    one = learner(digits, samples=300)  # more than are evaluated at once
    w = one.initial()
    features, logits, labels = one.outputs(w)
    assert (features.shape, logits.shape) == ((300, 32), (300, 10))
    assert torch.equal(labels, one.train_data[1])
    model, x = one.model.eval(), one.normalise(one.train_data[0][:3])
    assert torch.allclose(model(x), logits[:3], atol=1e-6)
    assert torch.allclose(model.extractor(x), features[:3], atol=1e-6)


def test_another_model_and_what_it_costs(digits: Prepared) -> None:
    """The mlp of 8x8 pictures has 64·200 + 200·10 = 14,800 multiply-adds. The cnn has 9·6·16 + 54·16·4 in its
    convolutions and 64·32 + 32·10 after them: 864 + 3,456 + 2,048 + 320 = 6,688."""
    one = learner(digits, model="mlp")
    other = one.build("cnn")
    assert one.worth(other) == pytest.approx(6688 / 14800)
    again = learner(digits, node="device-9").build("cnn")
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), again.parameters(), strict=True))
    with pytest.raises(ModelError, match="no model 'cnm'"):
        one.build("cnm")


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps": 1}, {"steps": 11}])
def test_work_is_the_samples_processed(digits: Prepared, options: dict[str, Any]) -> None:
    params = replace(PARAMS, batch_size=32, **options)
    assert learner(digits).work(params) == sum(len(batch) for batch in seen(100, params))


def test_a_client_without_samples_returns_what_it_got(digits: Prepared) -> None:
    one = learner(digits, samples=0)
    start = one.get()
    result = one.train(start, PARAMS, 1)
    assert (result.samples, result.steps, result.loss) == (0, 0, 0.0)
    assert all(np.array_equal(values, start[name]) for name, values in result.weights.items())


def test_evaluation_worked_example(digits: Prepared) -> None:
    """A classifier with only a bias, towards 3, is right on the threes, and its loss is that of its softmax."""
    linear = nn.Linear(64, 10)
    nn.init.zeros_(linear.weight)
    with torch.no_grad():
        linear.bias.copy_(torch.eye(10)[3])
    own_test = np.flatnonzero(digits.test_labels == 3)[:5]
    one = Learner(ModelPool(lambda: Model(nn.Flatten(), linear)), digits, 7, "edge-0", own_test=own_test)
    threes = (digits.test_labels == 3).mean()
    total = np.log(9 + np.e)
    result = one.evaluate(one.get(), "global")
    assert result.samples == 360
    assert result.accuracy == pytest.approx(threes)
    assert result.loss == pytest.approx(total - threes, rel=1e-5)
    own = one.evaluate(one.get(), "own")
    assert (own.accuracy, own.samples) == (1.0, 5)
    assert own.loss == pytest.approx(total - 1, rel=1e-5)


def test_evaluation_on_a_fixed_subset(digits: Prepared) -> None:
    one, other = learner(digits), learner(digits, "cloud")
    state = one.get()
    assert one.evaluate(state, "global", limit=40) == other.evaluate(state, "global", limit=40)
    assert one.evaluate(state, "global", limit=40).samples == one.test_samples("global", 40) == 40
    assert one.evaluate(state, "own", limit=400).samples == one.test_samples("own", 400) == 50


def test_evaluation_changes_nothing(digits: Prepared) -> None:
    one = learner(digits)
    start = one.get()
    one.evaluate(start, "global")
    assert all(np.array_equal(values, start[name]) for name, values in one.get().items())


def test_a_coordinator_holds_no_data(digits: Prepared) -> None:
    cloud = Learner(ModelPool(lambda: build("cnn", digits.shape, 10, 1)), digits, 7, "cloud")
    assert cloud.samples == 0
    with pytest.raises(DataError, match="cloud holds no training data"):
        _ = cloud.train_data
    with pytest.raises(DataError, match="cloud has no test samples"):
        cloud.evaluate(cloud.get(), "own")


def assignment(data: Prepared, shards: Path, node: str) -> Assignment:
    return Assignment(
        run="r",
        node=node,
        tier="device",
        index=2,
        seed=7,
        host="127.0.0.1",
        port=1,
        keys=Keypair(public="", secret=""),
        control_endpoint="",
        control_key="",
        peers=(),
        algorithm="fedavg",
        model="mlp",
        model_params={"hidden": 8},
        data=DataAssignment(
            dataset=data.name,
            directory=str(data.directory),
            shards=str(shards),
            train_key=node,
            own_test_key=f"{node}/own",
        ),
        stop=Stop(rounds=1),
        checkpoint_directory="",
        leads=False,
    )


def test_from_an_assignment(digits: Prepared, tmp_path: Path) -> None:
    shards = tmp_path / "shards.npz"
    counts = {"device-0": 5, "device-0/own": 3, "device-1": 6, "device-1/own": 3}
    indices: dict[str, Any] = {key: np.arange(count) for key, count in counts.items()}
    np.savez(shards, **indices)
    first = Learner.from_assignment(assignment(digits, shards, "device-0"))
    assert (first.samples, first.test_samples("own")) == (5, 3)
    second = Learner.from_assignment(assignment(digits, shards, "device-1"))
    same = build("mlp", digits.shape, 10, derive_seed(7, "model"), {"hidden": 8}).classifier.weight
    for one in (first, second):  # all nodes of a run start alike
        assert np.array_equal(one.get()["classifier.weight"], same.detach().numpy())  # type: ignore[operator]
    with pytest.raises(DataError, match=r"shards\.npz: no sample indices 'device-2'"):
        Learner.from_assignment(assignment(digits, shards, "device-2"))


def federated_accuracy(data: Prepared, params: LocalTraining, per_client: int, rounds: int, clients: int = 5) -> float:
    parts = divide(IID(samples_per_client=per_client), data.train_labels, (clients,), seed=1).parts
    model = build("cnn", data.shape, data.classes, 1)
    learners = [Learner(ModelPool(lambda: model), data, 7, f"device-{k}", part) for k, part in enumerate(parts)]
    w = learners[0].get()
    for t in range(1, rounds + 1):
        results = [one.train(w, params, t) for one in learners]
        w = weighted_mean([result.weights for result in results], [result.samples for result in results])
    return learners[0].evaluate(w, "global", limit=2000).accuracy


@pytest.mark.slow
def test_accuracy_floor_on_digits(digits: Prepared) -> None:
    params = LocalTraining(learning_rate=0.1, momentum=0.9, batch_size=16)
    assert federated_accuracy(digits, params, per_client=280, rounds=6) > 0.9


def test_accuracy_floor_on_mnist(mnist: Prepared) -> None:
    assert federated_accuracy(mnist, LocalTraining(learning_rate=0.05, momentum=0.9), per_client=600, rounds=4) > 0.9


def test_accuracy_floor_on_har(har: Prepared) -> None:
    assert federated_accuracy(har, LocalTraining(learning_rate=0.05, momentum=0.9), per_client=600, rounds=4) > 0.7
