"""A common embedding space for clients whose models have different spaces: DFFKE's section 3.1, equations 10 and 11.

E_k embeddings (n_k, h_k) of client k with labels Y_k, z(·; θ_k^z) its docking layer, linear from h_k to the common
dimension, Ẽ_k = z(E_k; θ_k^z) the translated embeddings, l(·; θ_global) a linear classifier of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
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
    discard the head. A client's layer continues from that in ``layers`` if it has the right size. Otherwise it begins
    anew.

    Each step takes a mini-batch of every client, so all have equal weight. Clients with fewer mini-batches repeat them.
    """
    random = torch.Generator().manual_seed(seed)
    with seeded(seed):
        docking = {
            owner: nn.Linear(values.shape[1], params.dimension).to(device) for owner, values in embeddings.items()
        }
        head = nn.Linear(params.dimension, classes).to(device)
    for owner, layer in docking.items():
        if owner in layers and layers[owner]["weight"].shape == layer.weight.shape:
            load_state(layer, layers[owner])
    inputs = {owner: torch.tensor(values, device=device) for owner, values in embeddings.items()}
    targets = {owner: torch.tensor(values, device=device) for owner, values in labels.items()}
    step = Adam([w for part in (*docking.values(), head) for w in part.parameters()], params.learning_rate)
    for _ in range(params.docking_epochs):
        orders = {
            owner: torch.split(torch.randperm(len(values), generator=random).to(device), params.batch_size)
            for owner, values in inputs.items()
        }
        for place in range(max(map(len, orders.values()))):
            losses = []
            for owner, order in orders.items():
                batch = order[place % len(order)]
                losses.append(cross_entropy(head(docking[owner](inputs[owner][batch])), targets[owner][batch]))
            step(torch.stack(losses).sum())
    with torch.inference_mode():
        translated = {owner: docking[owner](values) for owner, values in inputs.items()}
        hits = sum(correct(head(values), targets[owner]) for owner, values in translated.items())
    return Docked(
        {owner: state_of(layer) for owner, layer in docking.items()},
        {owner: as_array(values) for owner, values in translated.items()},
        hits / sum(map(len, targets.values())),
    )


def docking_layer(state: State) -> nn.Linear:
    """The layer of a `Docked` state, frozen."""
    dimension, features = state["weight"].shape
    return load_state(nn.Linear(features, dimension), state).requires_grad_(False)
