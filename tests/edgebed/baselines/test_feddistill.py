"""FedDistill: its numbers by hand, who learns from whom, and its reduction to local training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgebed
from edgebed.baselines.feddistill import Distilled, of_others
from edgebed.testing import Federation, federation, star
from node.assignment import Gathering
from node.catalogue.partitions import Dirichlet
from node.learning.models import Model
from tests.edgebed.baselines.harness import equal, learns_and_reports, run, trained_alone


def test_the_mean_of_the_others() -> None:
    """Both others have label 0: the mean of (2, 0) and (4, 2). One has label 1."""
    one = {"logits": np.array([[2.0, 0.0], [8.0, 8.0]], np.float32), "has": np.array([True, False])}
    two = {"logits": np.array([[4.0, 2.0], [1.0, 5.0]], np.float32), "has": np.array([True, True])}
    made = of_others([one, two], 2)
    assert made["logits"].tolist() == [[3.0, 1.0], [1.0, 5.0]]
    assert made["clients"].tolist() == [2, 1]
    assert of_others([], 2)["clients"].tolist() == [0, 0]


def test_the_loss_of_a_mini_batch() -> None:
    """F(x) = (ln 3, 0) predicts (3/4, 1/4). The others' logits of label 1 are (0, ln 4), which asks for (1/5, 4/5). So
    the cross-entropy is 1/5 ln 4/3 + 4/5 ln 4. Nobody has label 0. The mean over both samples, times γ = 3."""
    logits = torch.tensor([[log(3), 0.0], [5.0, 1.0]])
    batch = edgebed.MiniBatch(torch.zeros(2, 1), torch.tensor([1, 0]), logits)
    known = np.array([[9.0, 0.0], [0.0, log(4)]], np.float32), np.array([0, 2])
    term = Distilled(*known, weight=3.0)
    expected = 3 * (log(4 / 3) / 5 + 4 / 5 * log(4)) / 2
    assert term(Model(nn.Identity(), nn.Identity()), batch).item() == pytest.approx(expected)


class Recorder:
    """The messages of each round and kind, in the order of their receivers or senders; the `lost` one is not
    delivered."""

    def __init__(self, lost: tuple[str, int] = ("", 0)) -> None:
        self.seen: dict[tuple[str, int], list[edgebed.Message]] = defaultdict(list)
        self.lost = lost

    def __call__(self, message: edgebed.Message) -> tuple[float, ...]:
        if message.kind not in ("common", "shared"):
            return (0.0,)
        t = edgebed.round_of(message)
        self.seen[message.kind, t].append(message)
        self.seen[message.kind, t].sort(key=lambda each: each.sender)
        return () if (message.sender, t) == self.lost and message.kind == "shared" else (0.0,)


def mean_by_label(logits: Any, labels: Any, classes: int) -> dict[int, Any]:
    return {label: logits[labels == label].mean(axis=0) for label in range(classes) if (labels == label).any()}


def expected_of_others(shared: Sequence[edgebed.Message], k: int, label: int) -> Any:
    """The mean logits of a label over the clients but the k-th, None if none of them has the label."""
    rows = [
        each.tensors["logits"][label] for place, each in enumerate(shared) if place != k and each.tensors["has"][label]
    ]
    return np.mean(rows, axis=0) if rows else None


def distilled_run(folder: Path, fate: Recorder, rounds: int = 3, **params: Any) -> Federation:
    given = {"learning_rate": 0.05, "batch_size": 30, "evaluate_samples": 20} | params
    more: dict[str, Any] = {"partition": Dirichlet(alpha=0.1, variant="client", samples_per_client=60)}
    more |= {"gathering": Gathering(quorum=0.5, deadline=2), "rounds": rounds, "fate": fate}
    return federation(folder, "edgebed.baselines.feddistill", "feddistill", star(3), params=given, **more).run()


def check_common(common: Sequence[edgebed.Message], shared: Sequence[edgebed.Message]) -> None:
    labels = 0
    for k, message in enumerate(common):
        for label in range(10):
            expected = expected_of_others(shared, k, label)
            assert (message.tensors["clients"][label] > 0) == (expected is not None)
            if expected is not None:
                labels += 1
                np.testing.assert_allclose(message.tensors["logits"][label], expected, atol=1e-5)
    assert 0 < labels < 30


def test_each_client_gets_the_mean_logits_of_the_others(tmp_path: Path) -> None:
    fate = Recorder()
    run = distilled_run(tmp_path, fate)
    for t in (1, 2):
        check_common(fate.seen["common", t + 1], fate.seen["shared", t])
    for k in range(3):
        learner = run.roles[f"device-{k}"].learner
        _, logits, labels = learner.outputs(run.state(f"device-{k}"))
        sent, means = fate.seen["shared", 3][k].tensors, mean_by_label(logits.numpy(), labels.numpy(), 10)
        assert np.flatnonzero(sent["has"]).tolist() == sorted(means)
        for label, mean in means.items():
            np.testing.assert_allclose(sent["logits"][label], mean, atol=1e-5)


def test_a_silent_client_counts_with_what_it_sent_last(tmp_path: Path) -> None:
    fate = Recorder(lost=("device-1", 2))
    distilled_run(tmp_path, fate)
    second, first = fate.seen["shared", 2], fate.seen["shared", 1]
    check_common(fate.seen["common", 3], [second[0], first[1], second[2]])


def test_the_objective_has_the_distillation(tmp_path: Path) -> None:
    """At a learning rate at which weights hardly move: cross-entropy of the labels, and γ = 2 times that of the others'
    mean logits, over the samples of labels that the others have. Two mini-batches of equal size."""
    fate = Recorder()
    run = distilled_run(tmp_path, fate, learning_rate=1e-7, distillation_weight=2.0)
    for k in range(3):
        learner, common = run.roles[f"device-{k}"].learner, fate.seen["common", 2][k].tensors
        _, logits, labels = (np.asarray(each, np.float64) for each in learner.outputs(learner.initial()))
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        targets = np.exp(common["logits"]) / np.exp(common["logits"]).sum(axis=1, keepdims=True)
        y = labels.astype(int)
        terms = -(targets[y] * log_p).sum(axis=1) * (common["clients"] > 0)[y]
        task = -log_p[np.arange(60), y]
        metrics = next(v for t, v in run.journals[f"device-{k}"].metrics if t == 2 and "objective" in v)
        assert metrics["loss"] == pytest.approx(task.mean(), abs=1e-4)
        assert metrics["objective"] == pytest.approx(task.mean() + 2 * terms.mean(), abs=1e-4)


def test_clients_of_three_models_learn_from_one_another(tmp_path: Path) -> None:
    done = run(tmp_path, "feddistill", model_params={})
    learns_and_reports(done)
    kept = done.state("cloud")
    assert sorted(kept) == [f"device-{k}/{name}" for k in range(3) for name in ("has", "logits")]
    assert not equal(done.state("device-0"), trained_alone(done, "device-0"))


def test_distillation_of_weight_0_is_local_training(tmp_path: Path) -> None:
    done = run(tmp_path, "feddistill", distillation_weight=0)
    for node in ("device-0", "device-1", "device-2"):
        assert equal(done.state(node), trained_alone(done, node))
