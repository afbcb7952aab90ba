"""A common embedding space for clients with models of different spaces: DFFKE's section 3.1, equations 10 and 11.

E_k embeddings (n_k, h_k) of client k with labels Y_k, z(·; θ_k^z) its docking layer, linear from h_k to the common
dimension, Ẽ_k = z(E_k; θ_k^z) the translated embeddings, l(·; θ_global) a linear classifier of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from node.algorithms.dffke.parameters import DFFKE
from node.learning.aggregation import State
from node.learning.devices import PROCESSOR, as_array, load_state, seeded, state_of
from node.learning.metrics import correct
from node.learning.optimizers import Adam

Embeddings = NDArray[np.float32]  # (samples, dimension)
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Docked:
    """Docking layers and translated embeddings of each client. ``accuracy`` of the temporary head on the latter."""

    layers: dict[str, State]
    translated: dict[str, Embeddings]
    accuracy: float


def dock(
    embeddings: Mapping[str, Embeddings],
    labels: Mapping[str, Labels],
    layers: Mapping[str, State],
    classes: int,
    params: DFFKE,
    seed: int,
    device: str = PROCESSOR,
) -> Docked:
    """Train docking layers and a head together on ``device``, min Σ_k CE(l(z(E_k; θ_k^z); θ_global), Y_k), by Adam, and
    discard the head. A client's layer continues from that in ``layers`` if it has the right size. Otherwise it
    starts from random weights.

    Each step takes a mini-batch of every client, so all have equal weight. Clients with fewer mini-batches repeat them.
    """
    random = torch.Generator().manual_seed(seed)
    z: dict[str, nn.Linear] = {}
    with seeded(seed):
        for owner, values in embeddings.items():
            features = values.shape[1]
            layer = nn.Linear(features, params.dimension)
            z[owner] = layer.to(device)
        head = nn.Linear(params.dimension, classes)
        head.to(device)
    for owner, layer in z.items():
        known = layers.get(owner)
        if known is None:
            continue
        if known["weight"].shape == layer.weight.shape:
            load_state(layer, known)
    e: dict[str, Tensor] = {}
    y: dict[str, Tensor] = {}
    for owner, values in embeddings.items():
        e[owner] = torch.tensor(values, device=device)
    for owner, classes_of_owner in labels.items():
        y[owner] = torch.tensor(classes_of_owner, device=device)
    weights: list[nn.Parameter] = []
    for module in (*z.values(), head):
        weights.extend(module.parameters())
    step = Adam(weights, params.learning_rate)
    for _ in range(params.docking_epochs):
        batches = _batches(e, params.batch_size, random)
        most = max(map(len, batches.values()))
        for place in range(most):
            losses = []
            for owner, batches_of_owner in batches.items():
                batch = batches_of_owner[place % len(batches_of_owner)]
                translated = z[owner](e[owner][batch])
                logits = head(translated)
                loss = cross_entropy(logits, y[owner][batch])
                losses.append(loss)
            step(torch.stack(losses).sum())
    return _docked(z, head, e, y)


def _batches(
    e: Mapping[str, Tensor],
    batch_size: int,
    random: torch.Generator,
) -> dict[str, Sequence[Tensor]]:
    """The indices of each client's embeddings in mini-batches, in a random order."""
    batches: dict[str, Sequence[Tensor]] = {}
    for owner, values in e.items():
        order = torch.randperm(len(values), generator=random)
        order = order.to(values.device)
        batches[owner] = torch.split(order, batch_size)
    return batches


def _docked(
    z: Mapping[str, nn.Linear],
    head: nn.Linear,
    e: Mapping[str, Tensor],
    y: Mapping[str, Tensor],
) -> Docked:
    layers = {}
    translated = {}
    hits = 0
    samples = 0
    with torch.inference_mode():
        for owner, values in e.items():
            e_translated = z[owner](values)
            hits += correct(head(e_translated), y[owner])
            samples += len(y[owner])
            layers[owner] = state_of(z[owner])
            translated[owner] = as_array(e_translated)
    return Docked(layers, translated, hits / samples)


def docking_layer(state: State) -> nn.Linear:
    """The layer of a `Docked` state, frozen."""
    dimension, features = state["weight"].shape
    layer = load_state(nn.Linear(features, dimension), state)
    return layer.requires_grad_(False)
