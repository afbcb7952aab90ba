"""FedEDS' data encryptor: a U-Net g(x; φ) whose pictures one frozen model recognises through its stochastic layer.

It learns to change a picture so that the model classifies it with the layer between extractor and classifier (equation
3). This obscures pictures but does not encrypt them: the cloud makes the layer, and the layer is sent with the pictures
(docs/papers/fededs.md).
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from node.algorithms.fededs.encrypted import (
    EncryptedSet,
    FeatureNoise,
    Floats,
    resemblance,
    through,
    to_bytes,
    to_input,
)
from node.algorithms.fededs.parameters import FedEDS
from node.catalogue.datasets import Shape
from node.learning.aggregation import State
from node.learning.batching import batches
from node.learning.devices import as_array, seeded
from node.learning.local_training import EVALUATION_BATCH
from node.learning.networks.zoo import forward_work
from node.learning.optimizers import Adam, optimizer
from node.learning.training import Learner

ADAMW_DECAY = 0.01  # as in torch.optim.AdamW


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each with batch normalisation and ReLU."""

    def __init__(self, inside: int, width: int) -> None:
        super().__init__(
            nn.Conv2d(inside, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """O. Ronneberger, P. Fischer, T. Brox, MICCAI 2015, with two levels and `width`, 2 and 4 times `width` channels, as
    in section VI-A2 of FedEDS: pooling down, transposed convolutions up, a 1x1 convolution at the end."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.enter = DoubleConvolution(channels, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConvolution(inside, 2 * inside)) for inside in (width, 2 * width)
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(inside, inside // 2, 2, stride=2) for inside in (4 * width, 2 * width)
        )
        self.up = nn.ModuleList(DoubleConvolution(inside, inside // 2) for inside in (4 * width, 2 * width))
        self.leave = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = [self.enter(x)]
        for down in self.down:
            skipped.append(down(skipped[-1]))
        x = skipped.pop()
        for grow, up in zip(self.grow, self.up, strict=True):
            x = grow(x)
            beside = skipped.pop()
            x = pad(x, (0, beside.shape[3] - x.shape[3], 0, beside.shape[2] - x.shape[2]))  # sides that were odd
            x = up(torch.cat([beside, x], dim=1))
        return cast(Tensor, self.leave(x))


def unet(shape: Shape, width: int, seed: int) -> UNet:
    """An encryptor for pictures of `shape`, with weights drawn from `seed`."""
    with seeded(seed):
        return UNet(shape[0], width)


def encrypt(
    learner: Learner,
    theta: State,
    layer: Floats,
    params: FedEDS,
) -> EncryptedSet:
    """Equations 3 and 4: train φ_k for E_g epochs on the node's pictures, with its model `theta` frozen and its `layer`
    active. Return the encrypted pictures and the model's outputs on them, in the order of the node's samples."""
    learner.set(theta)
    model = learner.model.eval()
    turn = torch.tensor(layer, device=learner.device)
    x, y = learner.train_data
    random = learner.random("encryptor", 0)
    g = unet(learner.data.shape, params.encryptor_width, int(random.integers(2**63))).to(learner.device)
    if params.layer == "noise":
        noise = FeatureNoise(int(random.integers(2**63)))
    else:
        noise = None
    training = params.training(params.encryptor_epochs, params.encryptor_learning_rate)
    weights = list(g.train().parameters())
    adamw = params.encryptor_optimizer == "adamw"
    step = Adam(weights, training.learning_rate, decay=ADAMW_DECAY) if adamw else optimizer(weights, training)
    for _, _, batch in batches(learner.samples, training, random, learner.device):
        step(cross_entropy(through(model, turn, g(learner.normalise(x[batch])), noise), y[batch]))
    g.eval()
    with torch.inference_mode():
        chunks = [g(learner.normalise(chunk)) for chunk in torch.split(x, EVALUATION_BATCH)]
        floats: Floats = as_array(torch.cat(chunks))
        images, low, high = to_bytes(floats) if params.images == "uint8" else (floats, 0.0, 0.0)
        travelled = torch.split(torch.from_numpy(images).to(learner.device), EVALUATION_BATCH)
        outputs = [through(model, turn, to_input(chunk, low, high), noise).softmax(1) for chunk in travelled]
    return EncryptedSet(images, as_array(torch.cat(outputs)), layer, low, high)


def recognised(learner: Learner, made: EncryptedSet) -> tuple[float, float]:
    """The share of the node's samples whose label is the largest output, and the resemblance of the pictures sent."""
    x, y = learner.train_data
    images = to_input(torch.from_numpy(made.images).to(learner.device), made.low, made.high)
    return float(np.mean(made.outputs.argmax(1) == as_array(y))), resemblance(learner.normalise(x), images)


def worth(learner: Learner, params: FedEDS) -> float:
    """The cost of one sample in the encryptor's training, in samples of the model's own training."""
    work = forward_work(learner.outline, torch.from_numpy(learner.data.zeros(1)))
    return params.encryptor_worth(learner.data.shape, work)
