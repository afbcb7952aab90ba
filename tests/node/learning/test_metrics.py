from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from node.learning.metrics import correct, counted, cross_entropy, divergence, loss, metrics, sample_losses, tally

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1, 1, 2])  # right, right, wrong, right


def test_correct() -> None:
    assert correct(LOGITS, LABELS) == 3


def test_a_model_that_diverged_has_nothing_right() -> None:
    assert correct(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)) == 0


INFINITY = math.inf


@pytest.mark.parametrize(
    ("logits", "right"),
    [
        ([-INFINITY, 1.0, 0.0], True),  # the model excludes class 0
        ([-INFINITY, 1.0, -INFINITY], True),  # only class 1 is left
        ([-1e9, 1.0, 0.0], True),
        ([math.nan, 1.0, 0.0], False),
        ([0.0, INFINITY, 0.0], False),
        ([-INFINITY, math.nan, -INFINITY], False),
    ],
)
def test_minus_infinity_is_a_logit_and_other_infinities_are_none(logits: list[float], right: bool) -> None:
    assert correct(torch.tensor([logits]), torch.tensor([1])) == int(right)


def test_logits_that_are_all_minus_infinity_predict_nothing() -> None:
    assert correct(torch.full((2, 3), -INFINITY), torch.tensor([0, 1])) == 0


def test_a_label_that_is_never_there() -> None:
    """Its loss is log(1 + e^−∞) = 0, as nearly for a logit of −1000. Torch computes 0 · ∞, which is NaN."""
    targets = torch.tensor([[1, 0], [0, 0]], dtype=torch.uint8)
    never = torch.tensor([[1.0, -INFINITY], [-2.0, -INFINITY]], requires_grad=True)
    large = torch.tensor([[1.0, -1000.0], [-2.0, -1000.0]])
    assert measured(never.detach(), targets, "multi-label") == {"accuracy": 1.0, "f1": 1.0}
    value = loss(never, targets)
    assert value.item() == loss(large, targets).item()
    value.backward()  # type: ignore[no-untyped-call]
    assert never.grad is not None
    assert never.grad.isfinite().all()
    for odd in (math.nan, INFINITY):
        outputs = torch.tensor([[1.0, odd], [-2.0, odd]])
        assert measured(outputs, targets, "multi-label")["accuracy"] == 0


def test_ignored_labels_count_nowhere() -> None:
    """The first sample has two labels, of which one is right; the second has one, which is right."""
    labels = torch.tensor([[0, 0, -100], [-100, -100, 1]])
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 3.0]]).view(2, 3, 2)
    of_label = [math.log1p(math.exp(-1)), math.log1p(math.exp(3)), math.log1p(math.exp(-3))]
    assert counted(labels).tolist() == [2, 1]
    assert float(loss(logits, labels)) == pytest.approx(sum(of_label) / 3)
    assert sample_losses(logits, labels).tolist() == pytest.approx([sum(of_label[:2]) / 2, of_label[2]])
    assert tally(logits, labels) == {"correct": 2, "labels": 3}
    found = metrics(tally(logits, labels), sum(of_label) / 3, (2, 3), "classification")
    assert found == {"accuracy": 2 / 3, "perplexity": pytest.approx(math.exp(sum(of_label) / 3))}


def test_a_number_to_predict_is_no_ignored_label() -> None:
    assert counted(torch.tensor([[-100.0, 1.0], [2.0, 3.0]])).tolist() == [2, 2]


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


def test_a_class_that_both_exclude_does_not_diverge() -> None:
    """KL of (1/4, 3/4) and (1/2, 1/2) is ln 2 + 1/4 ln 1/4 + 3/4 ln 3/4, as without the third class. A class that the
    model excludes and the target does not is infinitely far."""
    target = torch.tensor([[0.25, 0.75, 0.0]])
    logits = torch.tensor([[2.0, 2.0, -INFINITY]], requires_grad=True)
    value = divergence(logits, target)
    assert value.item() == pytest.approx(math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    value.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == [[pytest.approx(0.25), pytest.approx(-0.25), 0.0]]
    assert divergence(logits, torch.tensor([[0.25, 0.5, 0.25]])).item() == INFINITY
    finite = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    other = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).softmax(1)
    expected = torch.nn.functional.kl_div(finite.log_softmax(1), other, reduction="sum")
    assert torch.equal(divergence(finite, other, "sum"), expected)


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
