"""Activation checkpointing: the same results to the last bit, with less kept."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from node.learning.data.datasets import Prepared
from node.learning.devices import seeded
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import Model, ModelPool, build
from node.learning.networks.zoo import _Counter
from node.learning.recomputation import recomputing
from node.learning.training import Learner

PLAIN = LocalTraining(learning_rate=0.05, momentum=0.9, epochs=2, batch_size=16)
CHECKPOINTED = replace(PLAIN, gradient_checkpointing=True)


def deep(width: int = 24) -> Model:
    """Blocks with dropout and batch normalisation."""
    with seeded(1):
        blocks = (
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)
        )
        return Model(nn.Sequential(nn.Flatten(), nn.Linear(64, width), *blocks), nn.Linear(width, 10))


@pytest.mark.parametrize("precision", ["", "bf16"])
@pytest.mark.parametrize("model", ["deep", "cnn", "tiny-resnet", "separable-cnn"])
def test_training_is_the_same_to_the_last_bit(digits: Prepared, model: str, precision: str) -> None:
    pool = ModelPool(lambda: deep() if model == "deep" else build(model, digits.shape, 10, 1), precision=precision)
    client = Learner(pool, digits, 7, "device-0", np.arange(33))  # the last mini-batch of an epoch has one sample
    plain, checkpointed = (
        client.seeded(client.train, "test")(client.initial(), params, 1) for params in (PLAIN, CHECKPOINTED)
    )
    assert plain.loss == checkpointed.loss
    assert all(np.array_equal(values, checkpointed.weights[name]) for name, values in plain.weights.items())


def test_a_transformer_with_adapters() -> None:
    lora = {"rank": 2, "alpha": 4, "targets": ["query"]}
    model = build("char-transformer", (16,), 11, 1, {"layers": 2, "width": 16, "lora": lora}).train()
    x = torch.arange(48).reshape(3, 16) % 11
    weights = [each for each in model.parameters() if each.requires_grad]
    found = []
    for params in (PLAIN, CHECKPOINTED):
        with recomputing(model, params):
            loss = model(x).square().sum()
        found.append(torch.autograd.grad(loss, weights))
    assert all(torch.equal(*each) for each in zip(*found, strict=True))


def test_activations_inside_a_block_are_not_kept_and_a_step_takes_four_thirds() -> None:
    """The backward pass takes twice the multiply-adds of the forward pass, except in the first layer, whose input needs
    no gradient."""
    model, x = build("char-transformer", (16,), 11, 1, {"layers": 3, "width": 32}).train(), torch.arange(16)[None] % 11
    inside: list[Any] = []
    model.get_submodule("extractor.blocks.1.wide").register_forward_hook(lambda *of: inside.append(weakref.ref(of[2])))
    counts = []
    for params in (PLAIN, CHECKPOINTED):
        with _Counter() as counter, recomputing(model, params):
            loss = model(x).square().sum()
            assert (inside.pop()() is None) == params.gradient_checkpointing
            torch.autograd.grad(loss, list(model.parameters()))
        counts.append(counter.operations)
    assert counts[1] / counts[0] == pytest.approx(CHECKPOINTED.passes, rel=0.03)


def test_models_that_are_refused() -> None:
    class Alone(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    with (
        pytest.raises(ModelError, match=r"the model has no nn\.Sequential"),
        recomputing(Model(Alone(), nn.Linear(3, 2)), CHECKPOINTED),
    ):
        pass
    in_place = Model(nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(inplace=True))), nn.Linear(3, 2))
    with pytest.raises(ModelError, match="changes its input in place"), recomputing(in_place, CHECKPOINTED):
        in_place(torch.ones(1, 3))
