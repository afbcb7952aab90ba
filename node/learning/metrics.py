"""The loss and the metrics of a model, from its outputs and the targets. The type of the targets names the task:

    int64    classification   (N,), outputs (N, classes); sequences (N, T), (N, T, classes), where each token counts
    uint8    multi-label      (N, K) of 0 and 1, outputs (N, K), the logits of the labels
    float32  regression       (N, K), outputs (N, K)

The losses are cross-entropy, binary cross-entropy with logits, and the squared error. A label of a sequence that is
`IGNORED` counts neither in the loss nor in the metrics, as in torch. A logit of minus infinity is a probability of 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from node.catalogue.datasets import IGNORED


def correct(logits: Tensor, labels: Tensor) -> int:
    """The number of labels at which the logit is highest.

    A model that diverged has nothing right: a label counts as wrong where a logit is NaN or infinite, or where all
    are minus infinity. Where only some are minus infinity, the model excludes these classes.
    """
    highest = logits.amax(dim=-1)  # NaN if one of them is
    predicted = logits.argmax(dim=-1)
    right = (predicted == labels) & highest.isfinite()
    return int(right.sum())


def counted(labels: Tensor) -> Tensor:
    """The number of each sample's targets that count (N,), of targets (N,) or (N, T)."""
    if labels.dtype == torch.int64 and labels.ndim > 1:
        return (labels != IGNORED).sum(dim=1)
    targets_of_sample = math.prod(labels.shape[1:])
    return torch.full((len(labels),), targets_of_sample, device=labels.device)


def loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The mean or the sum of the task's loss over all targets that count. With the reduction "none", that of each
    target: of each token of a sequence, of each label and of each number of a sample; 0 where it does not count."""
    if targets.dtype == torch.float32:
        return functional.mse_loss(outputs.float(), targets, reduction=reduction)
    if targets.dtype == torch.uint8:
        return binary_cross_entropy(outputs.float(), targets.float(), reduction)
    losses = cross_entropy(outputs, targets, reduction)
    if reduction == "none":
        return losses.reshape(targets.shape)
    return losses


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The mean or the sum of the cross-entropy over all labels that count."""
    return functional.cross_entropy(
        logits.flatten(0, -2).float(),
        labels.flatten(),
        reduction=reduction,
        ignore_index=IGNORED,
    )


def binary_cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + e^z) − y z for each logit z and label y, 0 or 1. A label that never occurs, y = 0 and z = −∞, has the
    loss 0, where torch computes 0 · ∞."""
    never = (logits == -math.inf) & (labels == 0)
    finite = logits.masked_fill(never, 0.0)
    losses = functional.binary_cross_entropy_with_logits(finite, labels, reduction="none")
    losses = losses.masked_fill(never, 0.0)
    if reduction == "none":
        return losses
    if reduction == "mean":
        return losses.mean()
    return losses.sum()


def divergence(logits: Tensor, target: Tensor, reduction: str = "batchmean") -> Tensor:
    """KL(``target`` ‖ softmax of the ``logits``) in nats, of probabilities and logits (N, classes), the mean over
    samples ("batchmean") or the sum. A class that both exclude, p = 0 and z = −∞, counts 0: torch computes 0 · ∞."""
    excluded = (target == 0) & (logits == -math.inf)
    log_probabilities = functional.log_softmax(logits, dim=1)
    log_probabilities = log_probabilities.masked_fill(excluded, 0.0)
    return functional.kl_div(log_probabilities, target, reduction=reduction)


def sample_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample (N,), the mean over its targets that count."""
    losses = loss(outputs, targets, reduction="none")
    if targets.ndim == 1:
        return losses
    if targets.dtype == torch.int64:
        counts = counted(targets).clamp(min=1)
        return losses.sum(1) / counts
    return losses.mean(1)


def tally(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """What `metrics` needs of a mini-batch; the tallies of mini-batches are added."""
    if targets.dtype == torch.float32:
        absolute = functional.l1_loss(outputs.float(), targets, reduction="sum")
        return {"absolute": float(absolute)}
    if targets.dtype == torch.uint8:
        chosen = outputs > 0
        wanted = targets > 0
        valid = outputs < math.inf  # neither NaN nor an infinity; minus infinity is a label that never occurs
        right = (chosen == wanted) & valid
        true_positive = chosen & wanted & valid
        predicted = int(chosen.sum())
        occurring = int(wanted.sum())
        return {
            "correct": int(right.all(dim=1).sum()),
            "found": int(true_positive.sum()),
            "named": predicted + occurring,
        }
    labels = counted(targets).sum()
    return {"correct": correct(outputs, targets), "labels": int(labels)}


def metrics(
    tallies: Mapping[str, float],
    loss: float,
    targets: tuple[int, ...],
    task: str,
) -> dict[str, float]:
    """The metrics by name, from added tallies, the mean ``loss``, and the shape of all ``targets``:

    classification   accuracy, over the labels that count; for sequences also perplexity, e^loss
    multi-label      accuracy, the fraction of samples with all labels right (subset accuracy), and f1, 2 TP / (2 TP +
                     FP + FN) over all labels (micro-averaged); a label is predicted if its probability exceeds 1/2
    regression       mse and mae, the mean squared and the mean absolute error over all numbers
    """
    if task == "regression":
        absolute = tallies["absolute"] / math.prod(targets)
        return {"mse": loss, "mae": absolute}
    if task == "multi-label":
        named = tallies["named"]
        if named:
            f1 = 2 * tallies["found"] / named
        else:
            f1 = 0.0
        accuracy = tallies["correct"] / targets[0]
        return {"accuracy": accuracy, "f1": f1}
    accuracy = tallies["correct"] / tallies["labels"]
    if len(targets) == 1:
        return {"accuracy": accuracy}
    perplexity = math.exp(min(loss, 700))
    return {"accuracy": accuracy, "perplexity": perplexity}
