"""The size of a network, and the work of its forward pass, added up layer by layer without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from node.catalogue.datasets import Shape


@dataclass(frozen=True)
class Size:
    """The size of a model's state, which nodes send: the numbers of `parameters` (float32), float `buffers` and
    integer `counters` (int64); whether it is `partial`, so that frozen parameters stay at the nodes; the number of
    `features` in the vector that its extractor makes of a sample, 0 if it makes none; whether its classifier is one
    `linear` layer; and the `width` of a float in a message, in bytes.

    The work of one sample's forward pass: `operations`, the multiply-adds of convolutions and products of matrices;
    `values`, the numbers that all layers output; and the number of `layers`, the modules without submodules. A closed
    form without them has 0 layers. Then they are measured on the model.

    The memory of one sample: `saved`, the numbers that its forward pass keeps for the backward pass; and `widest`, the
    most numbers of its input, or of a layer's output. `fixed` are the numbers of the model outside its state."""

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
    saved: int = 0
    widest: int = 0
    fixed: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the state in a message, without the header."""
        floats = self.parameters + self.buffers
        return self.width * floats + 8 * self.counters


@dataclass(frozen=True)
class Rates:
    """Seconds on the reference core, see `node.learning.step_seconds`: per layer of a batch, per
    multiply-add and per value of a sample."""

    per_layer: float
    per_operation: float
    per_value: float


TRAINING = Rates(per_layer=35e-6, per_operation=30e-12, per_value=3.3e-9)  # forward and backward
EVALUATION = Rates(per_layer=17.5e-6, per_operation=21.5e-12, per_value=0.38e-9)  # forward
_SUMS = ("parameters", "buffers", "counters", "operations", "values", "layers", "saved")


class Layers:
    """Adds up the layers of a network for samples of ``shape``, with the names and defaults of torch. ``shape`` is that
    of the last layer's output, without the batch; it is ``kept`` if a layer has saved it for the backward pass. Each
    method adds a layer. ``modules`` are the layers as torch's classes and their arguments. Those from
    ``classifier`` on are the classifier."""

    def __init__(self, shape: Shape) -> None:
        self.shape = tuple(shape)
        self.kept = False
        self.modules: list[tuple[str, tuple[Any, ...]]] = []
        self.classifier = 0
        self._features = 0
        self._sums = dict.fromkeys(_SUMS, 0)
        self._widest = math.prod(shape)

    def size(self) -> Size:
        self._sums["saved"] += math.prod(self.shape)  # the logarithms of the probabilities
        linear = len(self.modules) == self.classifier + 1
        return Size(
            features=self._features,
            linear=linear,
            partial=False,
            widest=self._widest,
            **self._sums,
        )

    def features(self) -> Self:
        """The layers so far are the extractor, the others the classifier."""
        (self._features,) = self.shape
        self.classifier = len(self.modules)
        return self

    def convolution(
        self,
        width: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Self:
        inside, *sides = self.shape
        weights = inside // groups * kernel ** len(sides)
        outer_sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]
        shape = (width, *outer_sides)
        arguments = (inside, width, kernel, stride, padding, 1, groups, bias)
        self.modules.append((f"Conv{len(sides)}d", arguments))
        parameters = (weights + bias) * width
        operations = weights * math.prod(shape)
        return self._add(shape, parameters=parameters, operations=operations)

    def normalisation(self) -> Self:
        """Batch normalisation."""
        width, *sides = self.shape
        self.modules.append((f"BatchNorm{len(sides)}d", (width,)))
        numbers = 2 * width  # scale and shift; mean and variance
        return self._add(self.shape, parameters=numbers, buffers=numbers, counters=1)

    def activation(self) -> Self:
        """ReLU, like any layer without parameters that keeps the shape and saves its output."""
        self.modules.append(("ReLU", ()))
        self._add(self.shape, saves=False)
        return self.keep()

    def pooling(self) -> Self:
        """The maximum of 2x2. Its place is saved in 8 bytes."""
        width, *sides = self.shape
        halves = [side // 2 for side in sides]
        shape = (width, *halves)
        self.modules.append(("MaxPool2d", (2,)))
        places = 2 * math.prod(shape)
        return self._add(shape, saved=places)

    def mean(self) -> Self:
        """The mean of each channel."""
        self.modules.append(("AdaptiveAvgPool2d", (1,)))
        width, *sides = self.shape
        ones = [1] * len(sides)
        return self._add((width, *ones), saves=False)

    def flatten(self) -> Self:
        kept = self.kept
        self.modules.append(("Flatten", ()))
        shape = (math.prod(self.shape),)
        self._add(shape, saves=False)
        self.kept = kept
        return self

    def linear(self, width: int) -> Self:
        (inside,) = self.shape
        self.modules.append(("Linear", (inside, width)))
        parameters = (inside + 1) * width
        return self._add((width,), parameters=parameters, operations=inside * width)

    def residual(self, width: int, initialisation: str) -> Self:
        """A block of two convolutions without normalisation, and a shortcut. ``initialisation``: of its weights."""
        start = self.shape
        stride = 1 if start[0] == width else 2
        place = len(self.modules)
        self.convolution(width, 3, stride, padding=1)
        self.convolution(width, 3, padding=1)
        end = self.shape
        # The shortcut has the same input, which the first convolution has saved.
        self.shape = start
        self.kept = True
        if stride == 1:
            self.activation()
        else:
            self.convolution(width, 1, stride).keep()
        assert self.shape == end
        block = ("ResidualBlock", (start[0], width, initialisation))
        self.modules[place:] = [block]
        return self

    def keep(self) -> Self:
        """Save the last output, if no layer has."""
        if not self.kept:
            self._sums["saved"] += math.prod(self.shape)
        self.kept = True
        return self

    def _add(self, shape: Shape, saves: bool = True, **sums: int) -> Self:
        """Add a layer with an output of this shape. It ``saves`` its input."""
        if saves:
            self.keep()
        self.shape = tuple(shape)
        self.kept = False
        outputs = math.prod(shape)
        self._widest = max(self._widest, outputs)
        self._sums["values"] += outputs
        self._sums["layers"] += 1
        for name, number in sums.items():
            self._sums[name] += number
        return self
