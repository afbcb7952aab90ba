"""FedEDS' encrypted sets: their content, their parts in messages, and how a model learns from them.

The owner's frozen *stochastic layer* is put between a model's extractor and its classifier. It is a random matrix that
transforms the features, or noise that is added to them at each pass. A node that has the layer can learn through it
from the pictures encrypted against it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from node.algorithms.fededs.parameters import PART_BYTES
from node.learning.metrics import divergence
from node.learning.models import Model
from node.learning.training import MiniBatch

Floats = NDArray[np.float32]
Part = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class EncryptedSet:
    """D_k^F (equation 4) as sent: `images` (N, *shape), uint8 steps between `low` and `high` or the float32 numbers
    themselves; `outputs` (N, classes), the softmax of the owner's model on them; the owner's `layer` (d, d)."""

    images: NDArray[Any]
    outputs: Floats
    layer: Floats
    low: float = 0.0
    high: float = 0.0

    def __len__(self) -> int:
        return len(self.images)

    def parts(self) -> list[Part]:
        """The samples in parts of `PART_BYTES` of pictures, or of one sample each if a sample is larger."""
        bytes_each = self.images[:1].nbytes
        size = max(1, PART_BYTES // max(1, bytes_each))
        parts = []
        for start in range(0, len(self), size):
            samples = slice(start, start + size)
            images = self.images[samples]
            outputs = self.outputs[samples]
            parts.append({"images": images, "outputs": outputs})
        return parts

    def taken(self, order: NDArray[np.int64]) -> EncryptedSet:
        """The samples at these places, in this order."""
        return EncryptedSet(
            images=self.images[order],
            outputs=self.outputs[order],
            layer=self.layer,
            low=self.low,
            high=self.high,
        )


NOTHING = EncryptedSet(
    images=np.empty(0, np.uint8),
    outputs=np.empty(0, np.float32),
    layer=np.empty((0, 0), np.float32),
)


@dataclass(eq=False)
class Incoming:
    """A set that is being received: it has `parts` parts; `received`: those that have arrived, by number."""

    layer: Floats
    parts: int
    low: float
    high: float
    received: dict[int, Part] = field(default_factory=dict)

    def lacks(self, part: int) -> bool:
        return part < self.parts and part not in self.received

    @property
    def complete(self) -> bool:
        return len(self.received) == self.parts

    def set(self) -> EncryptedSet:
        """The whole set, of one part at least."""
        images = []
        outputs = []
        for number in range(self.parts):
            part = self.received[number]
            images.append(part["images"])
            outputs.append(part["outputs"])
        return EncryptedSet(
            images=np.concatenate(images),
            outputs=np.concatenate(outputs),
            layer=self.layer,
            low=self.low,
            high=self.high,
        )


def stochastic_layer(features: int, seed: int, kind: str) -> Floats:
    """The (d, d) matrix θ^l of a kind of layer. R has independent N(0, 1/d), which keep the length of features on
    average. `gauss`: R; `near-identity`: I + R/2; `noise` and `none`: I."""
    identity: Floats = np.eye(features, dtype=np.float32)
    if kind in ("noise", "none"):
        return identity
    random = np.random.default_rng(seed)
    standard_normal = random.standard_normal((features, features))
    matrix = standard_normal / math.sqrt(features)
    r: Floats = matrix.astype(np.float32)
    if kind == "gauss":
        return r
    return identity + r / np.float32(2)


class FeatureNoise:
    """Adds fresh Gaussian noise to features, which has the standard deviation of the features of the batch."""

    def __init__(self, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, features: Tensor) -> Tensor:
        sigma = features.detach().std(correction=0)
        standard_normal = torch.randn(features.shape, generator=self._random)
        return features + sigma * standard_normal.to(features.device)


def through(
    model: Model,
    layer: Tensor,
    x: Tensor,
    noise: FeatureNoise | None = None,
) -> Tensor:
    """f(x; θ^g, θ^c, θ^l): logits with the stochastic layer between extractor and classifier."""
    features = model.extractor(x) @ layer.T
    if noise is not None:
        features = noise(features)
    return cast(Tensor, model.classifier(features))


def resemblance(x: Tensor, images: Tensor) -> float:
    """How much of the pictures `x` (N, *shape) is left in `images`, the pictures as sent: the median over the samples
    of the absolute correlation over a picture's values, from 0 to 1. A picture of one value everywhere counts as 0."""
    a = _contrast(x)
    b = _contrast(images)
    correlations = (a * b).sum(1)
    return float(correlations.abs().median())


def _contrast(x: Tensor) -> Tensor:
    """Each picture (N, ...) less its mean, scaled to the norm 1; zeros for one that varies by rounding only."""
    values = x.flatten(1)
    means = values.mean(1, keepdim=True)
    varying = values - means
    norms = varying.norm(dim=1)
    rounding = 1e-6 * values.norm(dim=1)
    scales = torch.where(norms > rounding, 1 / norms, 0.0)
    return varying * scales[:, None]


def to_bytes(x: Floats) -> tuple[NDArray[np.uint8], float, float]:
    """The nearest of 256 equal steps between the least and the largest number, and those two."""
    low = float(x.min())
    high = float(x.max())
    if high > low:
        scale = 255 / (high - low)
    else:
        scale = 0.0
    steps = np.rint((x - low) * scale)
    return steps.astype(np.uint8), low, high


def to_input(images: Tensor, low: float, high: float) -> Tensor:
    """Convert received pictures to the model's input."""
    if images.dtype != torch.uint8:
        return images
    step = (high - low) / 255
    return low + images.float() * step


def knowledge_loss(outputs: Tensor, logits: Tensor, reduction: str) -> Tensor:
    """L_dis of a batch (equation 6): KL(peer's outputs ‖ softmax of the logits), the `mean` or `sum` over samples."""
    if reduction == "mean":
        return divergence(logits, outputs, "batchmean")
    return divergence(logits, outputs, "sum")


@dataclass(frozen=True, eq=False)
class Distillation:
    """λ_dis L_dis (equation 8) as a term of each mini-batch's loss. Local epoch e goes through lesson e in its order.
    Each lesson has as many samples as the node's own set."""

    lessons: tuple[EncryptedSet, ...]
    lambda_dis: float
    batch_size: int
    reduction: str
    noise_seed: int | None = None  # of the layer `noise`

    def __call__(self, model: Model, batch: MiniBatch) -> Tensor:
        device = batch.x.device
        lesson = self.lessons[batch.epoch]
        start = batch.place * self.batch_size
        samples = slice(start, start + self.batch_size)
        images = torch.tensor(lesson.images[samples], device=device)
        outputs = torch.tensor(lesson.outputs[samples], device=device)
        layer = torch.tensor(lesson.layer, device=device)
        x = to_input(images, lesson.low, lesson.high)
        with unrecorded(model):
            logits = through(model, layer, x, self._noise)
        l_dis = knowledge_loss(outputs, logits, self.reduction)
        return self.lambda_dis * l_dis

    @cached_property
    def _noise(self) -> FeatureNoise | None:
        if self.noise_seed is None:
            return None
        return FeatureNoise(self.noise_seed)


@contextlib.contextmanager
def unrecorded(model: Model) -> Iterator[None]:
    """Make batch normalisation use the statistics of each batch. The running statistics stay unchanged."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
