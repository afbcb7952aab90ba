from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from node.algorithms.dffke.embedding_decoder import Decoder, Pictures
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.step_samples import StepSamples
from node.learning.models import Model
from node.learning.networks.zoo import forward_work

PICTURES = Pictures((1, 8, 8), 10, (0.0,), (1.0,))
MODEL = Model(nn.Flatten(), nn.Linear(64, 10, bias=False))  # 640 multiply-adds
PARAMS = DFFKE(profile="fast", batch_size=32, dimension=16, width=4, exchange_epochs=4, docking_epochs=20)
COST = StepSamples(MODEL, PICTURES, PARAMS)
DECODER = forward_work(Decoder(16, (1, 8, 8), 4), torch.zeros(1, 16)).operations


def test_docking_layers_worked_example() -> None:
    """50 embeddings of 40 numbers and 30 of 20, to 16: 50 · 640 + 30 · 320 multiply-adds in each of 20 passes, which
    are 65 samples of the model's 640."""
    embeddings = {"edge-0": np.zeros((50, 40), np.float32), "edge-1": np.zeros((30, 20), np.float32)}
    assert COST.docking(embeddings) == 20 * 65


def test_pictures_are_made_and_then_looked_at() -> None:
    assert COST.teaching(100) == round(100 + 100 * DECODER / 640)


def test_each_past_picture_goes_with_a_current_one() -> None:
    making = DECODER / 640 / 3
    assert COST.exchange(100, 0) == round(4 * 100 + 100 * making)
    assert COST.exchange(100, 80) == round(4 * 2 * 100 + 180 * making)


def test_private_steps_are_mini_batches() -> None:
    """100 pictures are four mini-batches of 32; with two steps after each, 4 · 4 · 2 · 32 samples in four passes."""
    cost = StepSamples(MODEL, PICTURES, replace(PARAMS, private_steps=2))
    assert cost.exchange(100, 0) - COST.exchange(100, 0) == 1024
