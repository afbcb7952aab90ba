from __future__ import annotations

import pytest
import torch

from node.catalogue.sizes import EVALUATION, TRAINING
from node.learning.counted_operations import cost_of
from node.learning.models import build
from node.learning.step_seconds import PER_NUMBER, PER_STEP, StepCost


def test_operations_and_values_of_a_network_with_one_hidden_layer() -> None:
    cost = cost_of(build("mlp", (1, 8, 8), 10, 1, {"hidden": 50}), torch.zeros(1, 1, 8, 8), 32)
    assert cost.operations == 64 * 50 + 50 * 10
    assert cost.values == 64 + 50 + 50 + 10  # flattened, hidden, after ReLU, logits
    assert cost.layers == 4


def test_operations_of_convolutions() -> None:
    """On 28x28: 3x3 of stride 2 to 6 channels of 14x14, again to 16 of 7x7, 784 to 32 features, 10 classes."""
    cost = cost_of(build("cnn", (1, 28, 28), 10, 1), torch.zeros(1, 1, 28, 28), 32)
    assert cost.operations == 9 * 6 * 14 * 14 + 9 * 6 * 16 * 7 * 7 + 784 * 32 + 32 * 10
    assert cost.values == 3 * 6 * 14 * 14 + 3 * 16 * 7 * 7 + 784 + 32 + 10


def test_a_step_worked_example() -> None:
    cost = StepCost(operations=1000, values=100, layers=4, batch_size=32)
    sample = 1000 * TRAINING.per_operation + 100 * TRAINING.per_value
    assert cost(70, "train") == pytest.approx(
        PER_STEP + 3 * 4 * TRAINING.per_layer + 70 * sample
    )  # batches of 32, 32 and 6
    sample = 1000 * EVALUATION.per_operation + 100 * EVALUATION.per_value
    assert cost(70, "evaluate") == pytest.approx(PER_STEP + 4 * EVALUATION.per_layer + 70 * sample)
    assert cost(0, "other") == cost(0, "train") == 0.0
    assert cost(1000, "other") == pytest.approx(1000 * PER_NUMBER)


def test_training_of_the_classifier_alone() -> None:
    """fedfeat-cnn: 1024 features to 512 and to 10 classes; the rest is the extractor's."""
    cost = cost_of(build("fedfeat-cnn", (1, 28, 28), 10, 1), torch.zeros(1, 1, 28, 28), 32)
    part = StepCost(operations=1024 * 512 + 512 * 10, values=512 + 512 + 10, layers=3, batch_size=32)
    assert cost(70, "classifier") == part(70, "train")
    assert cost(70, "classifier") < cost(70, "train") / 3
