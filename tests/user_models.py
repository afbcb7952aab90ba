"""A plug-in with models as users bring them: with dropout, with parameters that are frozen or unused, and of forms that
not every algorithm can use."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import edgebed

if TYPE_CHECKING:
    from torch import nn

Parts = tuple["nn.Module", "nn.Module"]


def transformer(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """One encoder layer with dropout 0.1. A picture is a sequence of its rows. Its features are also jittered by
    numbers of numpy and of Python, whose generators are as global as torch's."""
    import numpy as np
    import torch
    from torch import nn

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(shape[-1], 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z: torch.Tensor = self.layer(self.enter(x.flatten(1, -2))).mean(1)
            return z * (1 + 0.1 * float(np.random.rand()) + 0.1 * random.random()) if self.training else z

    return Rows(), nn.Linear(16, classes)


def _layers(shape: tuple[int, ...], features: int = 12) -> nn.Sequential:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.ReLU(), nn.Linear(16, features), nn.ReLU())


def frozen(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """The first layer is frozen, as one that was trained elsewhere."""
    from torch import nn

    extractor = _layers(shape)
    extractor[1].requires_grad_(False)
    return extractor, nn.Linear(12, classes)


def frozen_head(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    from torch import nn

    return _layers(shape), nn.Linear(12, classes).requires_grad_(False)


def unused(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """A layer that no forward pass calls."""
    from torch import nn

    extractor = _layers(shape)
    extractor[1].spare = nn.Linear(3, 3)
    return extractor, nn.Linear(12, classes)


def two_layers(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """A classifier of two layers."""
    from torch import nn

    return _layers(shape), nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, classes))


def no_bias(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    from torch import nn

    return _layers(shape), nn.Linear(12, classes, bias=False)


def maps(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """The extractor makes a picture of features, which the classifier flattens."""
    from torch import nn

    sides = math.prod(shape[1:])
    return nn.Conv2d(shape[0], 3, 3, padding=1), nn.Sequential(nn.Flatten(), nn.Linear(3 * sides, classes))


def whole(shape: tuple[int, ...], classes: int, _: Any) -> nn.Module:
    """One module, without features."""
    from torch import nn

    return nn.Sequential(_layers(shape), nn.Linear(12, classes))


def untrainable(shape: tuple[int, ...], classes: int, _: Any) -> nn.Module:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes)).requires_grad_(False)


def stays(shape: tuple[int, ...], classes: int, _: Any) -> Parts:
    """The first layer is frozen, and does not travel."""
    return frozen(shape, classes, _)


def tied(shape: tuple[int, ...], classes: int, _: Any) -> nn.Module:
    """A mean of the tokens before each one, by a mask. Its head has the weights of its embedding."""
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.query = nn.Embedding(classes, 8), nn.Linear(8, 8)
            self.head = nn.Linear(8, classes, bias=False)
            self.head.weight = self.tokens.weight
            self.mask: torch.Tensor
            self.register_buffer("mask", torch.ones(*shape, *shape, dtype=torch.bool).tril())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = self.mask / self.mask.sum(1, keepdim=True)
            logits: torch.Tensor = self.head(seen @ self.query(self.tokens(x)))
            return logits

    return Tied()


NAMES = ["transformer", "frozen", "frozen-head", "unused", "two-layers", "no-bias", "maps", "whole", "stays"]
BUILDS: list[Any] = [transformer, frozen, frozen_head, unused, two_layers, no_bias, maps, whole, stays]
PLUGIN = edgebed.Plugin(
    models=[
        *(
            edgebed.ModelEntry(name, build=build, frozen_travels=build is not stays)
            for name, build in zip(NAMES, BUILDS, strict=True)
        ),
        edgebed.ModelEntry("untrainable", build=untrainable),
        edgebed.ModelEntry("tied", build=tied),
    ]
)
