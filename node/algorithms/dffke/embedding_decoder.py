"""Pictures from embeddings, without data: DFFKE's section 3.2 and equation 12.

Dec decoder from the common embedding space to pictures, h(·; θ_k^h) encoder of client k, z(·; θ_k^z) its docking layer,
Ẽ_k its translated embeddings. The decoder is the generator of G. Fang et al., "Contrastive Model Inversion for
Data-Free Knowledge Distillation", IJCAI 2021, which DFFKE names: 4,426,051 parameters for 512 dimensions and 3x32x32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from node.algorithms.dffke.docking import Embeddings, docking_layer
from node.algorithms.dffke.parameters import DFFKE
from node.catalogue.datasets import Shape
from node.catalogue.models import MODELS, ModelEntry
from node.learning.aggregation import State
from node.learning.devices import PROCESSOR, load_state, seeded, state_of
from node.learning.local_training import EVALUATION_BATCH
from node.learning.models import Model, build
from node.learning.optimizers import Adam


@dataclass(frozen=True)
class Pictures:
    """Public facts of a run's pictures: their shape, classes, and each channel's mean and standard deviation."""

    shape: Shape
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalised(self, x: Tensor) -> Tensor:
        """Convert pictures with values from 0 to 1 to a model's input."""
        mean = torch.tensor(self.mean, device=x.device)
        std = torch.tensor(self.std, device=x.device)
        centred = x - mean.reshape(-1, 1, 1)
        return centred / std.reshape(-1, 1, 1)


@dataclass(frozen=True, eq=False)
class ClientModel:
    """A client's model by name, with its parameters and weights."""

    name: str
    params: dict[str, Any]
    state: State

    def load(self, pictures: Pictures, known: Mapping[str, ModelEntry] = MODELS) -> Model:
        """The model itself, frozen, in evaluation mode. ``known``: the models of the catalogue, by name. Raises
        ModelError if it does not support these pictures."""
        model = build(self.name, pictures.shape, pictures.classes, 0, self.params, known)
        load_state(model, self.state)
        return model.eval().requires_grad_(False)


class Decoder(nn.Module):
    """Embeddings (N, dimension) to pictures (N, *shape) with values from 0 to 1.

    A linear layer to 2·width channels of a quarter of the sides, two times nearest-neighbour doubling, convolution,
    batch normalisation and LeakyReLU, and a last convolution. If 4 does not divide the sides, the result is scaled.
    """

    def __init__(self, dimension: int, shape: Shape, width: int) -> None:
        super().__init__()
        channels, *self.sides = shape
        quarters = [math.ceil(side / 4) for side in self.sides]
        self.start = (2 * width, *quarters)
        values = math.prod(self.start)
        self.linear = nn.Linear(dimension, values)
        wide = 2 * width
        self.convolutions = nn.Sequential(
            nn.BatchNorm2d(wide),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            nn.BatchNorm2d(wide),
            nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(wide, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, channels, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, embeddings: Tensor) -> Tensor:
        values = self.linear(embeddings)
        start = values.reshape(-1, *self.start)
        pictures: Tensor = self.convolutions(start)
        sides = list(pictures.shape[2:])
        if sides != self.sides:
            pictures = interpolate(pictures, size=self.sides, mode="bilinear", align_corners=False)
        return pictures


def new_decoder(pictures: Pictures, params: DFFKE, seed: int) -> State:
    """The initial weights of a decoder."""
    with seeded(seed):
        decoder = Decoder(params.dimension, pictures.shape, params.width)
        return state_of(decoder)


def train_decoder(
    decoder: State,
    clients: Mapping[str, ClientModel],
    layers: Mapping[str, State],
    translated: Mapping[str, Embeddings],
    pictures: Pictures,
    params: DFFKE,
    seed: int,
    device: str = PROCESSOR,
    known: Mapping[str, ModelEntry] = MODELS,
) -> tuple[State, float]:
    """Continue training the decoder on ``device``, min Σ_k MSE(z(h(Dec(Ẽ_k); θ_k^h); θ_k^z), Ẽ_k), by Adam over
    ``decoder_epochs``.

    A mini-batch mixes the embeddings of all clients. Each embedding is compared by the encoder of its own client, which
    is frozen and uses its running statistics of batch normalisation. ``known``: the models by name. Returns the weights
    and the last pass's mean loss.
    """
    random = torch.Generator().manual_seed(seed)
    dec = _opened(decoder, pictures, params)
    dec.to(device).train()
    owners = sorted(translated)
    encoders: list[nn.Module] = []
    places: list[Tensor] = []
    embeddings: list[Tensor] = []
    for place, owner in enumerate(owners):
        h = clients[owner].load(pictures, known).extractor
        z = docking_layer(layers[owner])
        encoder = nn.Sequential(h, z)
        encoders.append(encoder.to(device))
        values = torch.tensor(translated[owner])
        count = len(values)
        places.append(torch.full((count,), place))
        embeddings.append(values)
    place_of_owner = torch.cat(places).to(device)
    targets = torch.cat(embeddings).to(device)
    weights = list(dec.parameters())
    step = Adam(weights, params.learning_rate)
    loss = 0.0
    for _ in range(params.decoder_epochs):
        loss = 0.0
        order = torch.randperm(len(targets), generator=random)
        for batch in torch.split(order.to(device), params.batch_size):
            e = targets[batch]
            x = pictures.normalised(dec(e))
            error = _error(encoders, x, e, place_of_owner[batch])
            step(error)
            mean_error = float(error.detach())
            loss += mean_error * len(batch) / len(targets)
    return state_of(dec), loss


def _error(
    encoders: Sequence[nn.Module],
    x: Tensor,
    e: Tensor,
    place_of_owner: Tensor,
) -> Tensor:
    """MSE(z(h(x; θ_k^h); θ_k^z), e) of pictures x of embeddings e, each with the encoder of its owner k."""
    errors = []
    for place, encoder in enumerate(encoders):
        of_owner = place_of_owner == place
        if of_owner.any():
            difference = encoder(x[of_owner]) - e[of_owner]
            errors.append(difference.square())
    return torch.cat(errors).mean()


def synthesise(
    decoder: State,
    embeddings: Embeddings,
    pictures: Pictures,
    params: DFFKE,
    device: str = PROCESSOR,
) -> Tensor:
    """D̂ = Dec(Ẽ) as a model's input (N, *shape), on ``device``. A picture depends only on the decoder and its own
    embedding, so all nodes that hold both make the same picture."""
    dec = _opened(decoder, pictures, params)
    dec.to(device).eval()
    parts = []
    with torch.inference_mode():
        e = torch.tensor(embeddings, device=device)
        for batch in torch.split(e, EVALUATION_BATCH):
            x = pictures.normalised(dec(batch))
            parts.append(x)
    if parts:
        return torch.cat(parts)
    return torch.empty(0, *pictures.shape, device=device)


def _opened(decoder: State, pictures: Pictures, params: DFFKE) -> Decoder:
    dec = Decoder(params.dimension, pictures.shape, params.width)
    return load_state(dec, decoder)
