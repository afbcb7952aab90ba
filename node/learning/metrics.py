"""Accuracy of a model from its logits and the true labels."""

from __future__ import annotations

import torch
from torch import Tensor


def correct(logits: Tensor, labels: Tensor) -> int:
    """The number of samples whose highest logit is at their label. A sample with a non-finite logit counts as wrong."""
    return int(((logits.argmax(dim=1) == labels) & logits.isfinite().all(dim=1)).sum())


def per_class(logits: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """Accuracy on the samples of each class; None for a class without samples."""
    right = logits.argmax(dim=1) == labels
    totals = torch.bincount(labels, minlength=classes)
    hits = torch.bincount(labels[right], minlength=classes)
    return [int(hit) / int(total) if total else None for hit, total in zip(hits, totals, strict=True)]
