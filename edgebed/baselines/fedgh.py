"""FedGH. L. Yi, G. Wang, X. Liu, Z. Shi, H. Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global
Header", ACM Multimedia 2023, arXiv 2303.13137, Algorithm 1.

f_k extractor of client k, h the header (the classifier), R_k^s the mean of f_k over client k's samples of class s, η_h
learning rate of the header, ℓ cross-entropy.

    client   h_k ← h, then local training of (f_k, h_k), sends R_k^s and s for each class that it has
    cloud    h ← h − η_h ∇ℓ(h(R_k^s), s) over all R_k^s, `header_epochs` times

Models differ between clients below the header. Their features have one size.

Departures: the cloud takes mini-batches of the clients' representations in a random order, several times. The paper has
one step for each. All clients take part in each round. A client is evaluated after its training, with its own header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

import edgebed
from edgebed.baselines import fedproto, personal, plugin

PREFIX = "classifier."  # of the names of the header's entries


@dataclass(frozen=True, kw_only=True)
class FedGH(edgebed.LocalTraining):
    """header_epochs: passes over the clients' representations in each round; header_learning_rate η_h."""

    header_epochs: int = edgebed.whole(100, low=0)
    header_learning_rate: float = edgebed.number(0.01, low=0, above=True)


def representations(
    shared: Sequence[edgebed.State],
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All R_k^s (n, d) and their classes s (n,), of the classes that each client has."""
    features = []
    classes = []
    for state in shared:
        has = state["counts"] > 0
        features.append(state["prototypes"][has])
        classes.append(np.flatnonzero(has))
    return np.concatenate(features), np.concatenate(classes)


def train_header(
    learner: edgebed.Learner,
    header: edgebed.State,
    features: NDArray[np.float32],
    classes: NDArray[np.int64],
    params: FedGH,
    round: int,
) -> edgebed.State:
    """h after the passes over all representations."""
    device = learner.device
    own: edgebed.State = {}
    for name, values in header.items():
        own[name.removeprefix(PREFIX)] = values
    h = learner.model.classifier.train()
    edgebed.load_state(h, own)
    training = params.local(learning_rate=params.header_learning_rate)
    weights = list(h.parameters())
    step = edgebed.optimizer(weights, training)
    r = torch.tensor(features, device=device)
    s = torch.tensor(classes, device=device)
    random = learner.random("header", round)
    for _ in range(params.header_epochs):
        permutation = random.permutation(len(s))
        order = torch.from_numpy(permutation).to(device)
        for batch in torch.split(order, params.batch_size):
            logits = h(r[batch])
            step(cross_entropy(logits, s[batch]))
    state = edgebed.state_of(h)
    return {f"{PREFIX}{name}": values for name, values in state.items()}


class Cloud(personal.Cloud):
    """Trains the header on the representations of all clients."""

    def start(self) -> edgebed.State:
        w = self.learner.initial()
        header: edgebed.State = {}
        for name, values in w.items():
            if name.startswith(PREFIX):
                header[name] = values
        return header

    def form(self, common: edgebed.State) -> edgebed.State:
        return fedproto.no_prototypes(self.learner)

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        shared = [update.tensors for update in updates]
        features, classes = representations(shared)
        return await self.compute(
            self.learner.apply,
            train_header,
            common,
            features,
            classes,
            self.params,
            t,
            samples=self.params.header_epochs * len(classes),
            mode="classifier",
        )


class Client(fedproto.Client):
    """Trains from the global header, and sends the mean features of its classes."""

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return await self.train(kept | common, t)

    async def score(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> dict[str, float]:
        return await edgebed.evaluate(self, kept, t)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "the cloud trains one classifier for clients of different models, on their mean features (FedGH)"
PLUGIN = plugin(
    "fedgh",
    FedGH,
    SUMMARY,
    personal=True,
    featured=True,
    aligned=True,
    whole=True,
    classes=True,
)
