"""The loss and the metrics of a model, from its outputs and the targets. The type of the targets names the task:

    int64    classification   (N,), outputs (N, classes); sequences (N, T), (N, T, classes), where each token counts
    uint8    multi-label      (N, K) of 0 and 1, outputs (N, K), the logits of the labels
    float32  regression       (N, K), outputs (N, K)

The losses are cross-entropy, binary cross-entropy with logits, and the squared error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional


def correct(logits: Tensor, labels: Tensor) -> int:
    """The number of labels at which the logit is highest. Where a logit is not finite, it counts as wrong."""
    return int(((logits.argmax(dim=-1) == labels) & logits.isfinite().all(dim=-1)).sum())


def loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The mean or the sum of the task's loss over all targets. With the reduction "none", that of each target: of each
    token of a sequence, of each label and of each number of a sample."""
    if targets.dtype == torch.float32:
        return functional.mse_loss(outputs.float(), targets, reduction=reduction)
    if targets.dtype == torch.uint8:
        return functional.binary_cross_entropy_with_logits(outputs.float(), targets.float(), reduction=reduction)
    losses = cross_entropy(outputs, targets, reduction)
    return losses.reshape(targets.shape) if reduction == "none" else losses


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The mean or the sum of the cross-entropy over all labels."""
    return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction=reduction)


def sample_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample (N,), the mean over its targets."""
    losses = loss(outputs, targets, reduction="none")
    return losses if targets.ndim == 1 else losses.mean(1)


def tally(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """What `metrics` needs of a mini-batch; the tallies of mini-batches are added."""
    if targets.dtype == torch.float32:
        return {"absolute": float(functional.l1_loss(outputs.float(), targets, reduction="sum"))}
    if targets.dtype == torch.uint8:
        chosen, wanted, finite = outputs > 0, targets > 0, outputs.isfinite()
        return {
            "correct": int(((chosen == wanted) & finite).all(dim=1).sum()),
            "found": int((chosen & wanted & finite).sum()),
            "named": int(chosen.sum()) + int(wanted.sum()),
        }
    return {"correct": correct(outputs, targets)}


def metrics(tallies: Mapping[str, float], loss: float, targets: tuple[int, ...], task: str) -> dict[str, float]:
    """The metrics by name, from added tallies, the mean ``loss``, and the shape of all ``targets``:

    classification   accuracy; for sequences also perplexity, e^loss
    multi-label      accuracy, the fraction of samples with all labels right (subset accuracy), and f1, 2 TP / (2 TP +
                     FP + FN) over all labels (micro-averaged); a label is predicted if its probability exceeds 1/2
    regression       mse and mae, the mean squared and the mean absolute error over all numbers
    """
    count = math.prod(targets)
    if task == "regression":
        return {"mse": loss, "mae": tallies["absolute"] / count}
    if task == "multi-label":
        named = tallies["named"]
        return {"accuracy": tallies["correct"] / targets[0], "f1": 2 * tallies["found"] / named if named else 0.0}
    accuracy = {"accuracy": tallies["correct"] / count}
    return accuracy if len(targets) == 1 else accuracy | {"perplexity": math.exp(min(loss, 700))}
