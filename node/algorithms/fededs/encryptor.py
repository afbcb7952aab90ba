"""FedEDS' data encryptor: a U-Net g(x; φ). One frozen model recognises its pictures through a stochastic layer.

It learns to change a picture so that the model classifies it with the layer between extractor and classifier (equation
3). This obscures pictures but does not encrypt them: the cloud makes the layer, and the layer is sent with the pictures
(docs/papers/fededs.md).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
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
from node.learning.optimizers import Adam, DescentStep, optimizer
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
        narrow = 2 * width
        wide = 4 * width
        self.down = nn.ModuleList([_level_down(width), _level_down(narrow)])
        self.grow = nn.ModuleList([_doubling(wide), _doubling(narrow)])
        self.up = nn.ModuleList([_level_up(wide), _level_up(narrow)])
        self.leave = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        skipped = []
        for down in self.down:
            skipped.append(x)
            x = down(x)
        for grow, up in zip(self.grow, self.up, strict=True):
            skip = skipped.pop()
            x = _padded(grow(x), skip)
            both = torch.cat([skip, x], dim=1)
            x = up(both)
        return cast(Tensor, self.leave(x))


def _level_down(inside: int) -> nn.Module:
    convolutions = DoubleConvolution(inside, 2 * inside)
    return nn.Sequential(nn.MaxPool2d(2), convolutions)


def _doubling(inside: int) -> nn.Module:
    return nn.ConvTranspose2d(inside, inside // 2, 2, stride=2)


def _level_up(inside: int) -> nn.Module:
    return DoubleConvolution(inside, inside // 2)


def _padded(x: Tensor, like: Tensor) -> Tensor:
    """Pictures with the sides of others: a side that was odd lost one value in the pooling."""
    height = like.shape[2] - x.shape[2]
    width = like.shape[3] - x.shape[3]
    return pad(x, (0, width, 0, height))


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
    theta_l = torch.tensor(layer, device=learner.device)
    x, y = learner.train_data
    random = learner.random("encryptor", 0)
    seed = int(random.integers(2**63))
    g = unet(learner.data.shape, params.encryptor_width, seed)
    g.to(learner.device).train()
    noise: FeatureNoise | None = None
    if params.layer == "noise":
        noise_seed = int(random.integers(2**63))
        noise = FeatureNoise(noise_seed)
    training = params.training(params.encryptor_epochs, params.encryptor_learning_rate)
    phi = list(g.parameters())
    step: DescentStep
    if params.encryptor_optimizer == "adamw":
        step = Adam(phi, training.learning_rate, decay=ADAMW_DECAY)
    else:
        step = optimizer(phi, training)
    mini_batches = batches(learner.samples, training, random, learner.device)
    for _, _, batch in mini_batches:
        encrypted = g(learner.normalise(x[batch]))
        logits = through(model, theta_l, encrypted, noise)
        step(cross_entropy(logits, y[batch]))
    g.eval()
    with torch.inference_mode():
        floats = _encrypted_pictures(g, learner, x)
        images: NDArray[Any] = floats
        low = 0.0
        high = 0.0
        if params.images == "uint8":
            images, low, high = to_bytes(floats)
        sent = torch.from_numpy(images).to(learner.device)
        outputs = []
        for chunk in torch.split(sent, EVALUATION_BATCH):
            inputs = to_input(chunk, low, high)
            logits = through(model, theta_l, inputs, noise)
            outputs.append(logits.softmax(1))
    return EncryptedSet(
        images=images,
        outputs=as_array(torch.cat(outputs)),
        layer=layer,
        low=low,
        high=high,
    )


def _encrypted_pictures(g: UNet, learner: Learner, x: Tensor) -> Floats:
    chunks = []
    for chunk in torch.split(x, EVALUATION_BATCH):
        chunks.append(g(learner.normalise(chunk)))
    encrypted: Floats = as_array(torch.cat(chunks))
    return encrypted


def recognised(learner: Learner, encrypted: EncryptedSet) -> tuple[float, float]:
    """The share of the node's samples with the largest output at their label, and the resemblance of the pictures."""
    x, y = learner.train_data
    sent = torch.from_numpy(encrypted.images).to(learner.device)
    images = to_input(sent, encrypted.low, encrypted.high)
    right = encrypted.outputs.argmax(1) == as_array(y)
    accuracy = float(np.mean(right))
    return accuracy, resemblance(learner.normalise(x), images)


def worth(learner: Learner, params: FedEDS) -> float:
    """The cost of one sample in the encryptor's training, in samples of the model's own training."""
    sample = torch.from_numpy(learner.data.zeros(1))
    work = forward_work(learner.outline, sample)
    return params.encryptor_worth(learner.data.shape, work)
