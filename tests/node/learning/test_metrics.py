from __future__ import annotations

import torch

from node.learning.metrics import correct

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1, 1, 2])  # right, right, wrong, right


def test_correct() -> None:
    assert correct(LOGITS, LABELS) == 3


def test_a_model_that_diverged_has_nothing_right() -> None:
    assert correct(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)) == 0
