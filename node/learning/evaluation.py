"""An evaluation of a model on a test set, added up from its mini-batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from node.learning.class_metrics import ClassCounts, class_metrics
from node.learning.metrics import loss, metrics, tally


@dataclass(frozen=True)
class Evaluation:
    """The mean loss and the ``metrics`` (`node.learning.metrics`) over ``samples`` test samples; for sequences, over
    their tokens."""

    loss: float
    samples: int
    metrics: Mapping[str, float]

    @property
    def accuracy(self) -> float:
        """A fraction. A regression has none."""
        return self.metrics["accuracy"]


class Totals:
    """The sums of an evaluation. ``requested``: names of class metrics (`node.learning.class_metrics`)."""

    def __init__(self, task: str, requested: Sequence[str] = ()) -> None:
        self._task = task
        self._requested = requested
        self._loss = 0.0
        self._tallies = Counter[str]()
        self._counts: ClassCounts | None = None

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a mini-batch: outputs and targets as in `node.learning.metrics`."""
        self._loss += float(loss(outputs, targets, reduction="sum"))
        self._tallies.update(tally(outputs, targets))
        if not self._requested:
            return
        counts = ClassCounts.of(outputs, targets)
        if self._counts is None:
            self._counts = counts
        else:
            self._counts = self._counts + counts

    def evaluation(self, targets: tuple[int, ...]) -> Evaluation:
        """The evaluation of all mini-batches together. ``targets``: the shape of all targets."""
        count = self._tallies.get("labels", math.prod(targets))
        mean = self._loss / count
        by_name = metrics(self._tallies, mean, targets, self._task)
        if self._counts is not None:
            by_name |= class_metrics(self._counts, self._requested)
        return Evaluation(mean, targets[0], by_name)
