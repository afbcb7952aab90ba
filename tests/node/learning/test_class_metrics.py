"""Metrics of classes, against values from confusion matrices that are worked out here by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from node.catalogue.tasks import CLASS_METRICS
from node.learning.class_metrics import ClassCounts, class_metrics
from node.learning.data.datasets import Prepared
from node.learning.evaluation import Totals
from node.learning.models import ModelPool, build
from node.learning.training import Learner

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
PREDICTED = torch.tensor([0, 0, 1, 2, 1, 1, 0, 2])

# Rows are labels, columns predictions:   2 1 1
#                                         0 2 0
#                                         1 0 1
# Class 0: TP 2, FN 2, FP 1. Class 1: TP 2, FN 0, FP 1. Class 2: TP 1, FN 1, FP 1.
RECALLS = {"recall_0": 2 / 4, "recall_1": 2 / 2, "recall_2": 1 / 2}
BALANCED = (2 / 4 + 2 / 2 + 1 / 2) / 3
MACRO_F1 = (4 / (4 + 1 + 2) + 4 / (4 + 1 + 0) + 2 / (2 + 1 + 1)) / 3


def logits_for(predicted: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(predicted, classes).float()


def measured(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    return class_metrics(ClassCounts.of(outputs, targets), CLASS_METRICS)


def test_they_are_those_of_the_confusion_matrix() -> None:
    found = measured(logits_for(PREDICTED, 3), LABELS)
    assert found == pytest.approx({"macro_f1": MACRO_F1, "balanced_accuracy": BALANCED} | RECALLS)


def test_a_class_that_does_not_occur_does_not_count() -> None:
    """Of five classes, 3 and 4 are neither in the labels nor predicted."""
    assert measured(logits_for(PREDICTED, 5), LABELS) == measured(logits_for(PREDICTED, 3), LABELS)


def test_a_class_that_is_only_predicted_counts_in_the_f1_alone() -> None:
    """Labels 0 and 1; the class 2, without test samples, has F1 0 and no recall. F1 of 0: 2 / 3, of 1: 1."""
    found = measured(logits_for(torch.tensor([0, 2, 1]), 3), torch.tensor([0, 0, 1]))
    assert found == pytest.approx(
        {"macro_f1": (2 / 3 + 1 + 0) / 3, "balanced_accuracy": 3 / 4, "recall_0": 1 / 2, "recall_1": 1.0}
    )


def test_a_model_that_diverged_predicts_no_class() -> None:
    """The first label of class 0 is a miss, and no prediction of another class: F1 of 0 is 2 / (2 + 0 + 1)."""
    logits = logits_for(torch.tensor([1, 0, 1]), 2)
    for odd in (math.nan, math.inf):
        logits[0] = torch.tensor([0.0, odd])
        found = measured(logits, torch.tensor([0, 0, 1]))
        assert found == pytest.approx(
            {"macro_f1": (2 / 3 + 1) / 2, "balanced_accuracy": 3 / 4, "recall_0": 1 / 2, "recall_1": 1.0}
        )
    excluded = torch.tensor([[-math.inf, 1.0], [-math.inf, 1.0], [0.0, -math.inf]])
    assert measured(excluded, torch.tensor([1, 1, 0]))["macro_f1"] == 1.0


def test_each_token_that_counts_is_a_label() -> None:
    """The same labels in sequences of three, the last of which is -100."""
    labels = torch.cat([LABELS, torch.tensor([-100])]).reshape(3, 3)
    predicted = torch.cat([PREDICTED, torch.tensor([1])])
    logits = logits_for(predicted, 3).reshape(3, 3, 3)
    assert measured(logits, labels) == measured(logits_for(PREDICTED, 3), LABELS)


def test_mini_batches_are_added_and_not_averaged() -> None:
    whole, parted = (Totals("classification", CLASS_METRICS) for _ in range(2))
    outputs = logits_for(PREDICTED, 3)
    whole.add(outputs, LABELS)
    for start, end in ((0, 3), (3, 4), (4, 8)):
        parted.add(outputs[start:end], LABELS[start:end])
    found = parted.evaluation((8,)).metrics
    assert found == pytest.approx(whole.evaluation((8,)).metrics)
    assert found["macro_f1"] == pytest.approx(MACRO_F1)
    assert next(iter(found)) == "accuracy"


def test_a_learner_reports_those_that_are_requested(digits: Prepared) -> None:
    """On the node's own test set, classes 0 and 1 alone, as from its predictions."""
    own = np.flatnonzero(digits.test_labels < 2)
    pool = ModelPool(lambda: build("mlp", digits.shape, 10, 1))
    one = Learner(pool, digits, 7, "device-0", own_test=own, class_metrics=("balanced_accuracy", "recall"))
    found = one.evaluate(one.initial(), "own").metrics
    assert set(found) == {"accuracy", "balanced_accuracy", "recall_0", "recall_1"}
    sizes = np.bincount(digits.test_labels[own])
    right = found["recall_0"] * sizes[0] + found["recall_1"] * sizes[1]
    assert found["accuracy"] == pytest.approx(right / sizes.sum())
    assert found["balanced_accuracy"] == pytest.approx((found["recall_0"] + found["recall_1"]) / 2)
    plain = Learner(pool, digits, 7, "device-0", own_test=own)
    assert set(plain.evaluate(plain.initial(), "own").metrics) == {"accuracy"}
