from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from node.algorithms.fedfeat import (
    ClientResult,
    Clipped,
    Shared,
    extract,
    of_models,
    retrain,
    sensitivity,
    train_client,
)
from node.algorithms.parameters import FedAvg, FedFeat
from node.assignment import Gathering, derive_seed
from node.catalogue.models import MODELS
from node.catalogue.partitions import LabelShards
from node.learning.aggregation import State, weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.models import Model, ModelPool, build
from node.learning.training import Learner
from node.messaging.wire import Message
from node.testing import Federation, same, star
from orchestrator.drivers.sim import codec

QUIET: dict[str, Any] = {"noise": "none", "retrain_epochs": 0}
FEATURES = pytest.mark.parametrize("features", ["last-epoch", "averaged"])
TWO_LABELS = LabelShards(shard_size="auto", samples_per_client=60)


def fedfeat(data: Prepared, folder: Path, clients: int = 4, **options: Any) -> Federation:
    rounds, gathering, others = (options.pop(name, None) for name in ("rounds", "gathering", "others"))
    rules = ({"gathering": gathering} if gathering else {}) | (others or {})
    params = FedFeat(epochs=2, **options)
    return Federation(data, star(clients), "fedfeat", params, folder, rounds=rounds or 3, partition=TWO_LABELS, **rules)


@pytest.fixture(scope="module")
def learner(digits: Prepared) -> Learner:
    """All training samples, in one hand."""
    model_pool = ModelPool(lambda: build("mlp", digits.shape, 10, derive_seed(7, "model")))
    return Learner(model_pool, digits, 7, "cloud", np.arange(len(digits.train_labels)))


def shared(learner: Learner, params: FedFeat) -> Shared:
    """What a client shares of its first round."""
    result = train_client(learner, learner.initial(), params, 1).shared
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("model", "params", "shape", "parameters"),
    [
        # conv 1-32 5x5, conv 32-64 5x5, 1024-512, 512-10: 832 + 51,264 + 524,800 + 5,130
        ("fedfeat-cnn", {}, (1, 28, 28), 582_026),
        # conv 3-32, conv 32-64, 1600-512, 512-10: 2,432 + 51,264 + 819,712 + 5,130
        ("fedfeat-cnn", {}, (3, 32, 32), 878_538),
        # 784-512, 512-512, 512-10: 401,920 + 262,656 + 5,130
        ("mlp", {"hidden": 512, "layers": 2}, (1, 28, 28), 669_706),
    ],
)
def test_parameters_of_table_1(model: str, params: dict[str, int], shape: tuple[int, ...], parameters: int) -> None:
    assert MODELS[model].parameters(shape, 10, params) == parameters
    built = build(model, shape, 10, 0, params)
    assert sum(each.numel() for each in built.parameters()) == parameters


def test_the_cnn_has_1024_features_and_two_classifiers() -> None:
    cnn = build("fedfeat-cnn", (1, 28, 28), 10, 0)
    assert cnn.extractor(torch.zeros(2, 1, 28, 28)).shape == (2, 1024)
    assert [tuple(each.shape) for each in cnn.classifier.parameters()] == [(512, 1024), (512,), (10, 512), (10,)]


def test_clipping_worked_example() -> None:
    """(3, 4) has L2 norm 5 and L1 norm 7; (0, 1) is within both bounds."""
    features = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert Clipped(1.0, 2).clip(features).tolist() == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]
    assert Clipped(1.0, 1).clip(features).tolist() == [pytest.approx([3 / 7, 4 / 7]), [0.0, 1.0]]
    assert sensitivity(FedFeat(clip_norm=0.25)) == 0.5
    assert sensitivity(FedFeat()) == 1.0


SGD: dict[str, Any] = {"learning_rate": 0.1, "optimizer": "sgd"}


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize(
    ("local", "own"),
    [
        (SGD, {}),
        (SGD | {"momentum": 0.9, "weight_decay": 0.01, "batch_size": 7}, {}),
        (SGD | {"steps": 5}, {"features": "averaged"}),
        (SGD, {"noise": "gaussian", "noise_in": "sent"}),  # no feature is sent
        ({"optimizer": "adam"}, {}),
    ],
)
def test_retraining_off_without_noise_is_fedavg(
    digits: Prepared, tmp_path: Path, local: dict[str, Any], own: dict[str, Any], model: str
) -> None:
    ours = fedfeat(digits, tmp_path / "ours", rounds=2, **QUIET | own, **local, others={"model": model}).run()
    params = FedAvg(epochs=2, **local)
    more: dict[str, Any] = {"partition": TWO_LABELS, "rounds": 2, "model": model}
    theirs = Federation(digits, star(4), "fedavg", params, tmp_path / "theirs", **more).run()
    assert same(ours.state("cloud"), theirs.state("cloud"))
    assert ours.journals["cloud"].metrics == theirs.journals["cloud"].metrics


@pytest.mark.parametrize("own", [{"noise": "gaussian"}, {"noise": "laplace", "noise_in": "sent", "clip_norm": 0.1}])
def test_without_retraining_noise_and_clipping_still_act_in_training(
    digits: Prepared, tmp_path: Path, own: dict[str, Any]
) -> None:
    ours = fedfeat(digits, tmp_path / "ours", rounds=1, **QUIET | own, **SGD).run()
    theirs = fedfeat(digits, tmp_path / "theirs", rounds=1, **QUIET, **SGD).run()
    assert not same(ours.state("cloud"), theirs.state("cloud"))


def test_a_round_is_algorithm_1(digits: Prepared, tmp_path: Path) -> None:
    """The cloud's model of round 1, made from the steps one by one."""
    run = fedfeat(digits, tmp_path, clients=2, rounds=1).run()
    params = FedFeat(epochs=2)
    results: list[ClientResult] = [
        run.roles[name].learner.apply(train_client, run.roles[name].learner.initial(), params, 1)
        for name in ("device-0", "device-1")
    ]
    w = weighted_mean([each.weights for each in results], [60, 60])
    shares = [each.shared for each in results if each.shared is not None]
    features, labels = [each.features for each in shares], [each.labels for each in shares]
    assert same(run.state("cloud"), retrain(run.roles["cloud"].learner, w, features, labels, params, 1))


def test_what_is_shared(learner: Learner) -> None:
    """Features of the last epoch, one of each sample, in the order in which the samples were seen."""
    params = FedFeat(epochs=3, noise="none")
    result = shared(learner, params)
    assert result.features.shape == (learner.samples, 200)
    assert (np.bincount(result.labels) == np.bincount(learner.train_data[1].numpy())).all()
    assert result.hidden is None
    fewer = shared(learner, FedFeat(epochs=3, noise="none", share=0.25))
    count = int(np.ceil(learner.samples / 4))
    np.testing.assert_array_equal(fewer.features, result.features[:count])


def test_shared_features_are_noised_as_asked(learner: Learner) -> None:
    """ReLU gives no negative feature; noise of σ = 2.4 does. Without training, clean features differ by noise alone."""
    clean = shared(learner, FedFeat(epochs=1, learning_rate=1e-12, noise="none"))
    noised = shared(learner, FedFeat(epochs=1, learning_rate=1e-12))
    np.testing.assert_array_equal(clean.labels, noised.labels)
    assert clean.features.min() >= 0
    assert (noised.features - clean.features).std() == pytest.approx(2.399, rel=0.01)
    laplace = shared(learner, FedFeat(epochs=1, learning_rate=1e-12, noise="laplace"))
    assert (laplace.features - clean.features).std() == pytest.approx(np.sqrt(2) / 2, rel=0.01)  # λ = 1/2


def test_noise_may_act_on_what_is_sent_alone(learner: Learner) -> None:
    """Equation 7 as printed: the model is trained as without noise, and what is sent has it."""
    clean, sent, both = (
        train_client(learner, learner.initial(), params, 1)
        for params in (FedFeat(epochs=2, noise="none"), FedFeat(epochs=2, noise_in="sent"), FedFeat(epochs=2))
    )
    assert same(sent.weights, clean.weights)
    assert not same(both.weights, clean.weights)
    assert sent.shared is not None
    assert clean.shared is not None
    np.testing.assert_array_equal(sent.shared.labels, clean.shared.labels)
    assert (sent.shared.features - clean.shared.features).std() == pytest.approx(2.399, rel=0.01)


def test_the_reported_loss_has_no_noise(learner: Learner) -> None:
    """Of the initial model, at a learning rate of 1e-9, over one mini-batch of all samples."""
    params = FedFeat(learning_rate=1e-9, batch_size=learner.samples)
    result = train_client(learner, learner.initial(), params, 1)
    _, logits, labels = learner.outputs(learner.initial())
    loss = float(torch.nn.functional.cross_entropy(logits, labels))
    assert result.loss == pytest.approx(loss, abs=1e-4)
    assert result.objective is not None
    assert result.objective > 1.1 * loss  # noise with a standard deviation of 2.4 on each feature
    assert "objective" not in train_client(learner, learner.initial(), FedFeat(noise="none"), 1).metrics


def test_features_of_the_averaged_extractor(digits: Prepared, tmp_path: Path) -> None:
    """The cloud's model of round 1, step by step; features are those of the samples, by the average's extractor."""
    run = fedfeat(digits, tmp_path, clients=2, rounds=1, features="averaged", noise="none").run()
    params = FedFeat(epochs=2, features="averaged", noise="none")
    learners = [run.roles[name].learner for name in ("device-0", "device-1")]
    results = [train_client(each, each.initial(), params, 1) for each in learners]
    assert [each.shared for each in results] == [None, None]
    w = weighted_mean([each.weights for each in results], [60, 60])
    shares = [extract(each, w, params, 1) for each in learners]
    features, labels = [each.features for each in shares], [each.labels for each in shares]
    assert same(run.state("cloud"), retrain(run.roles["cloud"].learner, w, features, labels, params, 1))

    first = learners[0]
    first.set(w)
    x, y = first.train_data
    expected = first.model.eval().extractor(first.normalise(x)).detach().numpy()
    by_label = [np.sort(features[0][labels[0] == label], axis=0) for label in np.unique(y)]
    for label, found in zip(np.unique(y), by_label, strict=True):
        np.testing.assert_allclose(found, np.sort(expected[y.numpy() == label], axis=0), rtol=1e-5, atol=1e-6)


def test_features_of_the_averaged_extractor_are_noised_and_shared_as_asked(learner: Learner) -> None:
    w = learner.initial()
    clean, noised = (extract(learner, w, FedFeat(features="averaged", noise=each), 1) for each in ("none", "gaussian"))
    np.testing.assert_array_equal(clean.labels, noised.labels)
    assert (noised.features - clean.features).std() == pytest.approx(2.399, rel=0.01)
    assert clean.hidden is None
    assert noised.hidden is not None
    assert noised.hidden.feature_correlation < 0.5
    few = extract(learner, w, FedFeat(features="averaged", noise="none", share=0.1), 1)
    np.testing.assert_array_equal(few.features, clean.features[: int(np.ceil(learner.samples / 10))])


def test_who_holds_nothing_shares_nothing(learner: Learner) -> None:
    empty = Learner(ModelPool(lambda: build("mlp", (1, 8, 8), 10, 0)), learner.data, 7, "device-0", np.arange(0))
    weights = empty.initial()
    result = train_client(empty, weights, FedFeat(), 1)
    assert (result.samples, result.shared) == (0, None)
    assert same(result.weights, weights)


def test_clipped_features_are_within_the_norm(learner: Learner) -> None:
    params = FedFeat(epochs=1, clip_norm=0.5, epsilon=1e9)  # next to no noise
    for features in (shared(learner, params).features, extract(learner, learner.initial(), params, 1).features):
        assert np.linalg.norm(features, axis=1).max() == pytest.approx(0.5, rel=1e-3)


def test_clipped_features_are_counted(learner: Learner) -> None:
    """A norm above all features clips none, one below all clips all, and the median norm half of them."""
    w = learner.initial()
    features, _, _ = learner.outputs(w)
    norms = torch.linalg.vector_norm(features, dim=1)
    few = FedFeat(epochs=1, features="averaged")
    for norm, share in ((2 * norms.max(), 0.0), (norms.min() / 2, 1.0), (norms.median(), 0.5)):
        clipped = extract(learner, w, replace(few, clip_norm=float(norm)), 1).clipped
        assert clipped == pytest.approx(share, abs=0.01)
    assert extract(learner, w, few, 1).clipped is None
    trained = train_client(learner, w, FedFeat(epochs=1, clip_norm=1e-3), 1)
    assert trained.metrics["clipped_features"] == 1
    assert "clipped_features" not in train_client(learner, w, FedFeat(epochs=1), 1).metrics


def test_a_ruined_classifier_is_repaired_by_retraining(learner: Learner) -> None:
    """A classifier whose rows are turned round by one label takes each digit for the next; its features are good."""
    params = FedFeat(epochs=5, noise="none", learning_rate=1e-3, retrain_epochs=5, retrain_learning_rate=1e-2)
    trained = train_client(learner, learner.initial(), params, 1)
    ruined: State = dict(trained.weights)
    for name in ("classifier.weight", "classifier.bias"):
        ruined[name] = np.roll(ruined[name], 1, axis=0)
    assert trained.shared is not None
    repaired = retrain(learner, ruined, [trained.shared.features], [trained.shared.labels], params, 1)
    before, after = (learner.evaluate(w, "global").accuracy for w in (ruined, repaired))
    assert before < 0.1
    assert after > 0.85
    assert all(np.array_equal(repaired[name], ruined[name]) for name in ruined if name.startswith("extractor"))


def test_retraining_helps_where_clients_know_two_labels(digits: Prepared, tmp_path: Path) -> None:
    """The more so where the classifier learns from the extractor that it is put on."""
    settings: dict[str, dict[str, Any]] = {
        "without": {"retrain_epochs": 0},
        "last-epoch": {},
        "averaged": {"features": "averaged"},
    }
    without, last_epoch, averaged = (
        fedfeat(digits, tmp_path / name, clients=5, noise="none", **options).run().journals["cloud"].series("global")
        for name, options in settings.items()
    )
    assert without[3] < last_epoch[3] < averaged[3]


def test_only_models_are_averaged() -> None:
    tensors: State = {"w": np.ones(2, np.float32), "features": np.ones((3, 4), np.float32), "labels": np.arange(3)}
    (kept,) = of_models([Message("update", "device-0", 1, {"samples": 3}, tensors)])
    assert kept.tensors.keys() == {"w"}
    assert kept.fields == {"samples": 3}


@FEATURES
def test_reports(digits: Prepared, tmp_path: Path, features: str) -> None:
    run = fedfeat(digits, tmp_path, features=features).run()
    assert sorted(run.journals["cloud"].series("global")) == [1, 2, 3]
    for name in ("mutual_information", "entropy_difference", "kl_divergence", "feature_correlation"):
        assert sorted(run.journals["device-0"].series("privacy", name)) == [1, 2, 3]


@FEATURES
def test_a_client_that_never_answers_is_not_waited_for_for_ever(
    digits: Prepared, tmp_path: Path, features: str
) -> None:
    rule = Gathering(quorum=0.5, deadline=5)
    run = fedfeat(
        digits, tmp_path, rounds=2, features=features, gathering=rule, others={"slow": {"device-3": 1e5}}
    ).run()
    assert run.roles["cloud"].ended_by == "rounds"
    assert sorted(run.journals["cloud"].series("global")) == [1, 2]


def test_steps_cross_to_the_workers_of_a_simulation(learner: Learner) -> None:
    """What cannot cross would be done in the simulation itself, one step after the other."""
    params = FedFeat(epochs=1)
    result = train_client(learner, learner.initial(), params, 1)
    memory = memoryview(bytearray(8 << 20))
    back = codec.read(memory, codec.write(result, memory), copy=True)
    assert back.shared is not None
    assert result.shared is not None
    np.testing.assert_array_equal(back.shared.features, result.shared.features)
    assert back.shared.hidden == result.shared.hidden
    for task in (
        [retrain, result.weights, [result.shared.features], [result.shared.labels], params, 1],
        [extract, result.weights, params, 1],
    ):
        assert codec.read(memory, codec.write(task, memory), copy=True)[0] is task[0]


def test_parameters_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="has no last epoch"):
        FedFeat(steps=5)
    assert FedFeat(steps=5, features="averaged").steps == 5
    with pytest.raises(ValueError, match="bounds what noise must hide"):
        FedFeat(noise="none", clip_norm=1.0)
    with pytest.raises(ValueError, match="is of sgd"):
        FedFeat(momentum=0.9)


def test_clipping_is_part_of_the_model_that_is_scored(learner: Learner) -> None:
    """With features of norm 1 at most, logits are those of the scaled features."""
    w = learner.initial()
    model: Model = learner.model
    x = torch.rand(4, *learner.data.shape)
    learner.set(w)
    features = model.extractor(x)
    expected = model.classifier(features / torch.linalg.vector_norm(features, dim=1, keepdim=True) * 0.01)
    torch.testing.assert_close(Clipped(0.01, 2)(model, x), expected)
    assert learner.evaluate(w, "global", None, Clipped(0.01, 2)).loss != learner.evaluate(w, "global").loss
