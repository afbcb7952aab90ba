"""The size of a network, and the work of its forward pass, added up layer by layer without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from node.catalogue.datasets import Shape


@dataclass(frozen=True)
class Size:
    """The size of a model's state, which nodes send: the numbers of `parameters` (float32), float `buffers` and
    integer `counters` (int64); whether it is `partial`, so that frozen parameters stay at the nodes; the number of
    `features` in the vector that its extractor makes of a sample, 0 if it makes none; whether its classifier is one
    `linear` layer; and the `width` of a float in a message, in bytes.

    The work of one sample's forward pass: `operations`, the multiply-adds of convolutions and products of matrices;
    `values`, the numbers that all layers output; and the number of `layers`, the modules without submodules. A closed
    form without them has 0 layers. Then they are measured on the model."""

    parameters: int
    buffers: int = 0
    counters: int = 0
    features: int = 0
    operations: int = 0
    values: int = 0
    layers: int = 0
    linear: bool = True
    partial: bool = False
    width: int = 4

    @property
    def bytes(self) -> int:
        """Bytes of the state in a message, without the header."""
        return self.width * (self.parameters + self.buffers) + 8 * self.counters


@dataclass(frozen=True)
class Rates:
    """Seconds on the reference core, see `orchestrator.planning.learning.cost`: per layer of a batch, per multiply-add
    and per value of a sample."""

    per_layer: float
    per_operation: float
    per_value: float


TRAINING = Rates(per_layer=35e-6, per_operation=30e-12, per_value=3.3e-9)  # forward and backward
EVALUATION = Rates(per_layer=17.5e-6, per_operation=21.5e-12, per_value=0.38e-9)  # forward


class Layers:
    """Adds up the layers of a network for samples of ``shape``, with the names and defaults of torch. ``shape`` is that
    of the last layer's output, without the batch. Each method adds a layer."""

    def __init__(self, shape: Shape) -> None:
        self.shape = tuple(shape)
        self._sums = {"parameters": 0, "buffers": 0, "counters": 0, "operations": 0, "values": 0, "layers": 0}

    def size(self, features: int, linear: bool = True) -> Size:
        return Size(features=features, linear=linear, partial=False, **self._sums)

    def convolution(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1, bias: bool = True
    ) -> Self:
        inside, *sides = self.shape
        weights = inside // groups * kernel ** len(sides)
        self.shape = (width, *((side + 2 * padding - kernel) // stride + 1 for side in sides))
        return self._add(parameters=(weights + bias) * width, operations=weights * math.prod(self.shape))

    def normalisation(self) -> Self:
        """Batch normalisation."""
        return self._add(parameters=2 * self.shape[0], buffers=2 * self.shape[0], counters=1)

    def activation(self) -> Self:
        """Any layer without parameters that keeps the shape."""
        return self._add()

    def pooling(self, factor: int = 2) -> Self:
        self.shape = (self.shape[0], *(side // factor for side in self.shape[1:]))
        return self._add()

    def mean(self) -> Self:
        """The mean of each channel."""
        self.shape = (self.shape[0], *(1 for _ in self.shape[1:]))
        return self._add()

    def flatten(self) -> Self:
        self.shape = (math.prod(self.shape),)
        return self._add()

    def linear(self, width: int) -> Self:
        (inside,) = self.shape
        self.shape = (width,)
        return self._add(parameters=(inside + 1) * width, operations=inside * width)

    def _add(self, **sums: int) -> Self:
        for name, number in (sums | {"values": math.prod(self.shape), "layers": 1}).items():
            self._sums[name] += number
        return self
