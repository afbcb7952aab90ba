"""FedProto. Y. Tan, G. Long, L. Liu, T. Zhou, Q. Lu, J. Jiang, C. Zhang, "FedProto: Federated Prototype Learning across
Heterogeneous Clients", AAAI 2022, arXiv 2105.00243, Algorithm 1 and its equations of prototypes and losses.

f_i extractor of client i, D_ij its samples of class j, C_i^(j) its prototype of class j, C̄^(j) the global one, N_j all
samples of class j, L_S cross-entropy, λ weight of the prototypes.

    client   C_i^(j) = 1 / |D_ij| Σ_{(x, y) ∈ D_ij} f_i(x)
             L = L_S + λ Σ_j ‖C_b^(j) − C̄^(j)‖₂ for each mini-batch b with its prototypes C_b^(j)
             sends C_i^(j) and |D_ij| after its training
    cloud    C̄^(j) ← Σ_i (|D_ij| / N_j) C_i^(j)
    predicts ŷ(x) = argmin_j ‖f_i(x) − C̄^(j)‖₂, by the prototypes that it trained with

Models differ between clients. Their features have one size. λ = 0 is local training.

Departures:
- The paper's mean divides by the number of clients with class j a second time, which would shrink the prototypes by it.
  That factor is dropped. The authors' code averages evenly: `aggregation: even`.
- The authors' code compares each sample's features with its class's prototype, by the mean squared difference, with λ =
  1. Here the loss is the paper's, with larger distances: λ = 1 kept small networks near chance.
- In a round without any global prototype (the first), and with `inference: classifier`, the classifier predicts. A
  class without a global prototype is further away than every other.
- Prototypes are of the whole local data after the training, in evaluation mode. All clients take part in each round. A
  class that no client has shared in a round keeps its prototype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import edgebed
from edgebed.baselines import personal, plugin


@dataclass(frozen=True, kw_only=True)
class FedProto(edgebed.LocalTraining):
    """prototype_weight λ; inference: by `prototypes` or by the `classifier`; aggregation: `weighted` by the samples of
    a class, or `even`."""

    prototype_weight: float = edgebed.number(0.1, low=0)
    inference: str = edgebed.word("prototypes", "prototypes", "classifier")
    aggregation: str = edgebed.word("weighted", "weighted", "even")


@dataclass(frozen=True, eq=False)
class Distances:
    """λ Σ_j ‖C_b^(j) − C̄^(j)‖₂ over the classes j of a mini-batch that have a global prototype."""

    prototypes: NDArray[np.float32]  # (classes, d)
    counts: NDArray[np.int64]  # (classes,), 0: none
    weight: float

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        return self.weight * self.of_classes(batch).sum()

    def of_classes(self, batch: edgebed.MiniBatch) -> Tensor:
        """‖C_b^(j) − C̄^(j)‖₂ of each such class."""
        classes = len(self.counts)
        own, rows = class_means(batch.features, batch.y, classes)
        device = own.device
        has_prototype = torch.tensor(self.counts > 0, device=device)
        known = (rows > 0) & has_prototype
        prototypes = torch.tensor(self.prototypes, device=device)
        differences = own[known] - prototypes[known]
        distances: Tensor = torch.linalg.vector_norm(differences, dim=1)
        return distances


@dataclass(frozen=True, eq=False)
class Nearest:
    """Logits −‖f(x) − C̄^(j)‖₂. A class without prototype has one less than the lowest."""

    prototypes: NDArray[np.float32]
    counts: NDArray[np.int64]

    def __call__(self, model: edgebed.Model, x: Tensor) -> Tensor:
        prototypes = torch.tensor(self.prototypes, device=x.device)
        known = torch.tensor(self.counts > 0, device=x.device)
        distances = torch.cdist(model.extractor(x), prototypes)
        of_known = distances[:, known]
        farthest = of_known.max(dim=1, keepdim=True).values
        return -torch.where(known, distances, farthest + 1)


def class_means(values: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The mean (classes, d) of the rows (n, d) of each class, 0 for a class without rows, and its number of rows."""
    one_hot = torch.nn.functional.one_hot(labels, classes)
    of_class = one_hot.to(values.dtype).T
    counts = torch.bincount(labels, minlength=classes)
    divisors = counts.clamp(min=1).unsqueeze(1)
    return of_class @ values / divisors, counts


def local_prototypes(learner: edgebed.Learner, w: edgebed.State) -> edgebed.State:
    """C_i^(j) over the client's samples, as `prototypes` (classes, d) and `counts` (classes,)."""
    features, _, labels = learner.outputs(w)
    means, counts = class_means(features, labels, learner.data.classes)
    return {
        "prototypes": means.cpu().numpy(),
        "counts": counts.cpu().numpy(),
    }


def global_prototypes(
    shared: Sequence[edgebed.State],
    before: edgebed.State,
    even: bool,
) -> edgebed.State:
    """C̄^(j) from the clients that have class j. A class that none of them has keeps the prototype from before."""
    counts_k = []
    prototypes_k = []
    for state in shared:
        counts_k.append(state["counts"])
        prototypes_k.append(state["prototypes"])
    counts = np.stack(counts_k).astype(np.float64)
    weights = counts
    if even:
        weights = (counts > 0).astype(np.float64)
    total = weights.sum(axis=0)
    all_prototypes = np.stack(prototypes_k).astype(np.float64)
    summed = np.einsum("kc,kcd->cd", weights, all_prototypes)
    divisors = np.maximum(total, 1)[:, None]
    means = (summed / divisors).astype(np.float32)
    has = total > 0
    prototypes_before = before["prototypes"]
    prototypes = np.where(has[:, None], means, prototypes_before)
    all_samples = counts.sum(axis=0)
    samples = np.where(has, all_samples, before["counts"])
    return {
        "prototypes": prototypes,
        "counts": samples.astype(np.int64),
    }


def no_prototypes(learner: edgebed.Learner) -> edgebed.State:
    """The state before any class has a prototype. It has as many features as the node's own model."""
    classes = learner.data.classes
    d = learner.features
    prototypes = np.zeros((classes, d), np.float32)
    counts = np.zeros(classes, np.int64)
    return {"prototypes": prototypes, "counts": counts}


class Cloud(personal.Cloud):
    """Averages the prototypes of each class."""

    def start(self) -> edgebed.State:
        return no_prototypes(self.learner)

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        shared = [update.tensors for update in updates]
        even = self.params.aggregation == "even"
        return await self.compute(global_prototypes, shared, common, even, mode="other")


class Client(personal.Client):
    """Holds its prototypes near the global ones by the term ``distances``, and sends its own."""

    distances = Distances

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        weight = self.params.prototype_weight
        prototypes = common["prototypes"]
        distances = self.distances(prototypes, common["counts"], weight)
        return await self.train(kept, t, distances)

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return await self.compute(
            self.learner.apply,
            local_prototypes,
            kept,
            samples=self.learner.samples,
            mode="evaluate",
        )

    async def score(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> dict[str, float]:
        forward: Nearest | None = None
        by_prototypes = self.params.inference == "prototypes"
        if by_prototypes and common["counts"].any():
            forward = Nearest(common["prototypes"], common["counts"])
        return await edgebed.evaluate(self, kept, t, forward)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "clients of different models share the mean features of each class"
PLUGIN = plugin(
    "fedproto",
    FedProto,
    SUMMARY,
    personal=True,
    featured=True,
    aligned=True,
    classes=True,
)
