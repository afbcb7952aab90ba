"""Metrics of a classification in which each class counts the same, however many samples it has.

With TP, FP and FN of a class from the confusion matrix of one test set:

    recall_<class>      TP / (TP + FN), for each class with test samples
    balanced_accuracy   the mean of the recalls
    macro_f1            the mean of 2 TP / (2 TP + FP + FN) over the classes that have test samples or were predicted

They are those of `recall_score`, `balanced_accuracy_score` and `f1_score(average="macro")` of scikit-learn. Where a
model diverged it predicts no class (`node.learning.metrics.correct`): that is an FN, and no FP.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from node.catalogue.datasets import IGNORED
from node.catalogue.tasks import CLASS_METRICS

Counts = NDArray[np.int64]
RECALL = "recall_"  # and the number of the class


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """For each class (classes,): its labels that were predicted ``right``, all its labels, and its predictions."""

    right: Counts
    labels: Counts
    predictions: Counts

    @classmethod
    def of(cls, outputs: Tensor, targets: Tensor) -> Self:
        """Of outputs (N, classes) and labels (N,), or of sequences (N, T, classes) and (N, T)."""
        logits = outputs.flatten(0, -2)
        labels = targets.flatten()
        counting = labels != IGNORED
        predicted = logits.argmax(dim=-1)
        predicting = counting & logits.amax(dim=-1).isfinite()
        right = predicting & (predicted == labels)
        classes = outputs.shape[-1]
        return cls(
            _count(labels[right], classes),
            _count(labels[counting], classes),
            _count(predicted[predicting], classes),
        )

    def __add__(self, other: ClassCounts) -> ClassCounts:
        return ClassCounts(
            self.right + other.right,
            self.labels + other.labels,
            self.predictions + other.predictions,
        )


def _count(classes: Tensor, number: int) -> Counts:
    on_device = torch.bincount(classes, minlength=number)
    counts: Counts = on_device.cpu().numpy()
    return counts


def of_classes(metrics: Mapping[str, float]) -> dict[str, float]:
    """Those of the metrics that have this module's names."""
    chosen = {}
    for name, value in metrics.items():
        if name in CLASS_METRICS or name.startswith(RECALL):
            chosen[name] = value
    return chosen


def class_metrics(counts: ClassCounts, requested: Collection[str]) -> dict[str, float]:
    """The ``requested`` metrics by name: of macro_f1, balanced_accuracy and recall, which stands for that of each
    class."""
    tested = np.flatnonzero(counts.labels)
    recalls = counts.right[tested] / counts.labels[tested]
    metrics: dict[str, float] = {}
    if "macro_f1" in requested:
        labels_and_predictions = counts.labels + counts.predictions
        occurring = labels_and_predictions > 0
        scores = 2 * counts.right[occurring] / labels_and_predictions[occurring]
        metrics["macro_f1"] = float(scores.mean())
    if "balanced_accuracy" in requested:
        metrics["balanced_accuracy"] = float(recalls.mean())
    if "recall" in requested:
        for label, recall in zip(tested, recalls, strict=True):
            metrics[f"{RECALL}{label}"] = float(recall)
    return metrics
