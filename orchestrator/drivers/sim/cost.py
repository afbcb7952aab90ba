"""The duration of a step of work on the reference core in seconds, computed in advance from the model's operations.

    seconds = batches * layers * per_layer + samples * (operations * per_operation + values * per_value)

For one sample's forward pass, ``operations`` are the multiply-adds of convolutions and linear layers, and ``values``
are the numbers that all layers output. ``layers`` are the modules without submodules. Training does the forward and the
backward pass, evaluation only the forward pass. The constants were fitted to measurements of the catalogue's models on
one core of a server of 2023 (`python -m benchmarks.cost`), within a fifth for each model. That core has speed
1 of hardware classes in a simulation. For emulated nodes, speed 1 is the host's core, which may be faster or slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import starmap

import torch
from torch import Tensor, nn

from node.catalogue.datasets import Shape
from node.learning.models import Model
from node.learning.training import EVALUATION_BATCH
from node.learning.zoo import EVALUATION, TRAINING, layer_outputs, layers_of, operations
from node.runtime.compute import Mode


@dataclass(frozen=True)
class Cost:
    """The cost of one model. A call with the number of samples and the mode gives the seconds of a step. Other work is
    not modelled and takes 0 s. ``classifier`` is the cost of the classifier alone."""

    operations: int
    values: int
    layers: int
    batch_size: int
    classifier: Cost | None = None

    def __call__(self, samples: int, mode: Mode) -> float:
        if mode == "other" or samples == 0:
            return 0.0
        if mode == "classifier" and self.classifier is not None:
            return self.classifier(samples, "train")
        rates, batch = (EVALUATION, EVALUATION_BATCH) if mode == "evaluate" else (TRAINING, self.batch_size)
        batches = math.ceil(samples / batch)
        sample = self.operations * rates.per_operation + self.values * rates.per_value
        return batches * self.layers * rates.per_layer + samples * sample


def cost_of(model: Model, shape: Shape, batch_size: int) -> Cost:
    """The cost of a model for samples of ``shape``, trained in mini-batches of ``batch_size``."""
    x = torch.zeros(1, *shape)
    with torch.inference_mode():
        features = model.eval().extractor(x)
    return replace(_cost(model, x, batch_size), classifier=_cost(model.classifier, features, batch_size))


def _cost(model: nn.Module, x: Tensor, batch_size: int) -> Cost:
    called = layer_outputs(model, x)
    return Cost(
        sum(starmap(operations, called)), sum(values for _, values in called), len(layers_of(model)), batch_size
    )
