"""The models, each with its size in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from node.catalogue.datasets import Shape
from node.parameters import Parameters, read_parameters, whole


@dataclass(frozen=True, kw_only=True)
class NoParameters(Parameters):
    """Nothing to choose."""


@dataclass(frozen=True, kw_only=True)
class MLP(Parameters):
    """hidden: width of the one hidden layer."""

    hidden: int = whole(200, low=1)


@dataclass(frozen=True)
class Size:
    """What a model's state holds: trained `parameters` (float32), float `buffers` and integer `counters` (int64)."""

    parameters: int
    buffers: int = 0
    counters: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the state as it travels, without message headers."""
        return 4 * (self.parameters + self.buffers) + 8 * self.counters


@dataclass(frozen=True)
class Model:
    """A model; `measure(shape, classes, params)` gives its size in closed form, or raises ValueError for a shape it
    cannot take."""

    name: str
    summary: str
    params: type[Parameters]
    measure: Callable[[Shape, int, Any], Size]

    def size(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> Size:
        """Size for samples of `shape` and so many classes. Raises ValueError naming what the model cannot take."""
        try:
            return self.measure(shape, classes, read_parameters(self.params, params or {}))
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error

    def parameters(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> int:
        """Number of trained parameters for samples of `shape` and so many classes."""
        return self.size(shape, classes, params).parameters


def _cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) not in (2, 3):
        raise ValueError(f"takes images or sequences, not samples of shape {shape}; take mlp")
    channels, window = shape[0], 3 ** (len(shape) - 1)
    half = [math.ceil(math.ceil(side / 2) / 2) for side in shape[1:]]
    convolutions = (channels * window + 1) * 6 + (6 * window + 1) * 16
    norms = 2 * (6 + 16)
    linear = (16 * math.prod(half) + 1) * 32 + 33 * classes
    return Size(convolutions + norms + linear, buffers=norms, counters=2)


def _phefl_cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(f"takes images of at least 4x4, not samples of shape {shape}")
    quarter = 64 * (shape[1] // 4) * (shape[2] // 4)
    return Size((shape[0] * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (quarter + 1) * 512 + 513 * classes)


def _mlp(shape: Shape, classes: int, params: MLP) -> Size:
    return Size((math.prod(shape) + 1) * params.hidden + (params.hidden + 1) * classes)


def _resnet18(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    total, inside = (shape[0] * 9 + 1) * 64, 64
    for width in (64, 128, 256, 512):
        total += (inside * 9 + 1) * width + 3 * (width * 9 + 1) * width
        total += (inside + 1) * width if inside != width else 0  # the 1x1 shortcut of a stage that narrows
        inside = width
    return Size(total + 513 * classes)


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("cnn", "two small 3x3 convolutions of stride 2 with batch normalisation (FedGen, FEELPGen)",
              NoParameters, _cnn),
        Model("phefl-cnn", "5x5 convolutions 32 and 64 with pooling, 512 features (McMahan 2017, PHE-FL)",
              NoParameters, _phefl_cnn),
        Model("mlp", "one hidden layer", MLP, _mlp),
        Model("resnet18", "ResNet-18 for small images, without batch normalisation (FedEDS)", NoParameters, _resnet18),
    )
}  # fmt: skip
