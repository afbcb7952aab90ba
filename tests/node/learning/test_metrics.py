from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from node.learning.metrics import correct, cross_entropy, loss, metrics, sample_losses, tally

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1, 1, 2])  # right, right, wrong, right


def test_correct() -> None:
    assert correct(LOGITS, LABELS) == 3


def test_a_model_that_diverged_has_nothing_right() -> None:
    assert correct(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)) == 0


def measured(outputs: Tensor, targets: Tensor, task: str) -> dict[str, float]:
    """The metrics of two mini-batches, with the mean loss over both."""
    tallies = Counter[str]()
    for part in (slice(2), slice(2, None)):
        tallies.update(tally(outputs[part], targets[part]))
    return metrics(tallies, float(loss(outputs, targets)), tuple(targets.shape), task)


def test_classes_and_tokens() -> None:
    assert measured(LOGITS, LABELS, "classification") == {"accuracy": 0.75}
    tokens = measured(LOGITS[None].expand(3, -1, -1), LABELS[None].expand(3, -1), "classification")
    assert tokens == {"accuracy": 0.75, "perplexity": pytest.approx(math.exp(cross_entropy(LOGITS, LABELS)))}


def test_numbers() -> None:
    """Errors 1, 0, -2, 3: squares 1 + 0 + 4 + 9 over 4, absolute values 1 + 0 + 2 + 3 over 4."""
    outputs, targets = torch.tensor([[2.0], [5.0], [1.0], [3.0]]), torch.tensor([[1.0], [5.0], [3.0], [0.0]])
    assert measured(outputs, targets, "regression") == {"mse": 3.5, "mae": 1.5}
    assert sample_losses(outputs, targets).tolist() == [1, 0, 4, 9]


def test_several_labels() -> None:
    """Logits above 0 are predictions: 3 of 4 rows are right. Of 4 predicted and 5 true labels 4 agree: 8/9. The loss
    of a logit z is log(1 + e^-z) for a true label and log(1 + e^z) for another."""
    outputs = torch.tensor([[1.0, -1.0], [2.0, 3.0], [-1.0, -2.0], [-1.0, 1.0]])
    targets = torch.tensor([[1, 0], [1, 1], [0, 0], [1, 1]], dtype=torch.uint8)
    assert measured(outputs, targets, "multi-label") == {"accuracy": 0.75, "f1": pytest.approx(8 / 9)}
    logits = (outputs * (1 - 2 * targets.float())).flatten().tolist()
    assert float(loss(outputs, targets)) == pytest.approx(sum(math.log1p(math.exp(z)) for z in logits) / 8)
    assert measured(outputs * torch.nan, targets, "multi-label") == {"accuracy": 0.0, "f1": 0.0}
