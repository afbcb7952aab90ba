"""The cost of a model's steps (`node.learning.step_seconds`), counted on the model itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from node.learning.models import Model
from node.learning.networks.zoo import forward_work
from node.learning.step_seconds import StepCost


def cost_of(model: Model, x: Any, batch_size: int) -> StepCost:
    """The cost of a model for samples like ``x`` (1, ...), one tensor or several parts, trained in mini-batches of
    ``batch_size``."""
    with torch.inference_mode():
        features = model.eval().extractor(x)
    whole = _cost(model, x, batch_size)
    classifier = _cost(model.classifier, features, batch_size)
    return replace(whole, classifier=classifier)


def _cost(model: nn.Module, x: Any, batch_size: int) -> StepCost:
    work = forward_work(model, x)
    return StepCost(work.operations, work.values, work.layers, batch_size)
