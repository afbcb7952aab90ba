"""Loss and accuracy of a model from its logits and the true labels: (N, classes) and (N,), or of sequences
(N, T, classes) and (N, T), where each token counts."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def correct(logits: Tensor, labels: Tensor) -> int:
    """The number of labels at which the logit is highest. Where a logit is not finite, it counts as wrong."""
    return int(((logits.argmax(dim=-1) == labels) & logits.isfinite().all(dim=-1)).sum())


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The mean or the sum of the cross-entropy over all labels."""
    return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction=reduction)


def sample_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each sample (N,), the mean over the tokens of a sequence."""
    losses = functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="none")
    return losses if labels.ndim == 1 else losses.reshape(labels.shape).mean(1)
