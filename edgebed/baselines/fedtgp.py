"""FedTGP. J. Zhang, Y. Liu, Y. Hua, J. Cao, "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced
Contrastive Learning for Data and Model Heterogeneity in Federated Learning", AAAI 2024, arXiv 2401.03230, its sections
on trainable global prototypes and on adaptive-margin-enhanced contrastive learning.

P_i^c prototype of class c of client i, P̌^c a vector that is trained, F two linear layers with ReLU between them,
P̂^c = F(P̌^c) the global prototype, φ Euclidean distance, Q^c the mean of the clients' prototypes of class c, τ the most
margin, λ weight of the prototypes.

    client   L = CE + λ mean_c φ(P_b^c, P̂^c) over the classes c of a mini-batch b,  sends P_i^c
    cloud    δ = min(max_{c ≠ c'} φ(Q^c, Q^c'), τ), then `server_epochs` times over all P_i^c, trains P̌ and F:
             L_P = −log exp(−φ(P_i^c, P̂^c) − δ) / (exp(−φ(P_i^c, P̂^c) − δ) + Σ_{c' ≠ c} exp(−φ(P_i^c, P̂^c')))
    predicts as FedProto, by the nearest global prototype

Models differ between clients. Their features have one size. λ = 0 is local training.

Departures: those of FedProto about rounds without prototypes and about when prototypes are taken. A class counts as
known once a client has sent its prototype. F has as many hidden units as features, as in the authors' code.

The authors' code (TsingZ0/FedTGP and HtFLlib) differs from these equations:
- Its δ is min(max_c min_{c' ≠ c} φ(Q^c, Q^c'), τ): the largest distance of a class to its nearest one. Here it is the
  largest distance of any two classes.
- Its clients compare each sample's features with its class's prototype, by the mean squared difference. Here the
  distance is that of a class's mean features, as in FedProto.
- It publishes and predicts by the prototypes of all classes, those that no client has sent too.
- F and P̌ learn at the clients' learning rate. Here they have one of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import edgebed
from edgebed.baselines import fedproto, plugin
from edgebed.baselines.fedgh import representations


@dataclass(frozen=True, kw_only=True)
class FedTGP(edgebed.LocalTraining):
    """prototype_weight λ; inference: by `prototypes` or by the `classifier`; margin τ; server_epochs: passes over the
    clients' prototypes in each round; server_learning_rate of P̌ and F."""

    prototype_weight: float = edgebed.number(0.1, low=0)
    inference: str = edgebed.word("prototypes", "prototypes", "classifier")
    margin: float = edgebed.number(100.0, low=0)
    server_epochs: int = edgebed.whole(100, low=1)
    server_learning_rate: float = edgebed.number(0.01, low=0, above=True)


class MeanDistance(fedproto.Distances):
    """λ mean_c φ(P_b^c, P̂^c) over the classes of a mini-batch that have a global prototype."""

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        distances = self.of_classes(batch)
        count = max(len(distances), 1)
        return self.weight * distances.sum() / count


class Generator(nn.Module):
    """P̂ (classes, d) from P̌ and F."""

    def __init__(self, classes: int, d: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(classes, d))
        first = nn.Linear(d, d)
        second = nn.Linear(d, d)
        self.layers = nn.Sequential(first, nn.ReLU(), second)

    def forward(self) -> Tensor:
        prototypes: Tensor = self.layers(self.vectors)
        return prototypes


def margin(features: Tensor, classes: Tensor, most: float) -> float:
    """δ from all P_i^c (n, d) and their classes (n,). 0 if there is one class only."""
    means = []
    for c in torch.unique(classes):
        of_class = features[classes == c]
        means.append(of_class.mean(dim=0))
    centres = torch.stack(means)
    largest = torch.cdist(centres, centres).max()
    return min(float(largest), most)


def contrastive_loss(
    features: Tensor,
    classes: Tensor,
    prototypes: Tensor,
    delta: float,
) -> Tensor:
    """The mean of L_P over P_i^c (n, d): a cross-entropy with the logits −φ, less δ for the own class."""
    phi = torch.cdist(features, prototypes)
    own = nn.functional.one_hot(classes, len(prototypes))
    return cross_entropy(-phi - delta * own, classes)


def train_prototypes(
    learner: edgebed.Learner,
    generator: edgebed.State,
    shared: Sequence[edgebed.State],
    params: FedTGP,
    round: int,
    seed: int,
) -> tuple[edgebed.State, edgebed.State]:
    """P̂ as `prototypes`, and the state of P̌ and F, from which the next round continues. An empty state is a new
    generator with weights drawn from `seed`."""
    device = learner.device
    all_features, all_classes = representations(shared)
    features = torch.tensor(all_features, device=device)
    classes = torch.tensor(all_classes, device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        prototypes = Generator(learner.data.classes, features.shape[1])
    prototypes.to(device)
    if generator:
        edgebed.load_state(prototypes, generator)
    training = params.local(learning_rate=params.server_learning_rate)
    weights = list(prototypes.parameters())
    step = edgebed.optimizer(weights, training)
    delta = margin(features, classes, params.margin)
    random = learner.random("prototypes", round)
    for _ in range(params.server_epochs):
        permutation = random.permutation(len(classes))
        order = torch.from_numpy(permutation).to(device)
        for batch in torch.split(order, params.batch_size):
            p = features[batch]
            loss = contrastive_loss(p, classes[batch], prototypes(), delta)
            step(loss)
    with torch.no_grad():
        p_hat = prototypes().cpu().numpy()
    return {"prototypes": p_hat}, edgebed.state_of(prototypes)


class Cloud(fedproto.Cloud):
    """Trains the prototypes. With them it keeps P̌ and F, which it does not publish."""

    def form(self, common: edgebed.State) -> edgebed.State:
        return {name: common[name] for name in ("prototypes", "counts")}

    async def issue(self, common: edgebed.State, t: int) -> None:
        await super().issue(self.form(common), t)

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        counts = common["counts"]
        shared = []
        prototypes_sent = 0
        for update in updates:
            shared.append(update.tensors)
            has = update.tensors["counts"] > 0
            prototypes_sent += int(has.sum())
        trained, generator = await self.compute(
            self.learner.apply,
            train_prototypes,
            edgebed.parted(common, "generator"),
            shared,
            self.params,
            t,
            self.seed("generator"),
            samples=self.params.server_epochs * prototypes_sent,
            mode="classifier",
        )
        all_counts = [state["counts"] for state in shared]
        total = np.sum(all_counts, axis=0)
        prototypes: edgebed.State = trained
        result = prototypes | {"counts": np.maximum(counts, total)}
        return result | edgebed.joined(generator=generator)


class Client(fedproto.Client):
    distances = MeanDistance


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "FedProto with prototypes that the cloud trains to keep the classes apart (FedTGP)"
PLUGIN = plugin(
    "fedtgp",
    FedTGP,
    SUMMARY,
    personal=True,
    featured=True,
    aligned=True,
    classes=True,
)
