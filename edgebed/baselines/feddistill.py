"""FedDistill, federated distillation. E. Jeong, S. Oh, H. Kim, J. Park, M. Bennis, S.-L. Kim, "Communication-Efficient
On-Device Machine Learning: Federated Distillation and Augmentation under Non-IID Private Data", 2018, arXiv 1811.11479,
Algorithm 1.

F_k^(l) mean logits of client k over its samples with label l, F̂_k^(l) the mean over the other clients, M_l the clients
that have label l, CE cross-entropy, γ weight of distillation.

    client   L = CE(F(x), y) + γ CE(F(x), softmax(F̂_k^(y))),  sends F_k^(l) for each label that it has
    cloud    F̂_k^(l) ← Σ_{j ≠ k, j ∈ M_l} F_j^(l) / |M_l \\ {k}|

Models may be of any architecture. γ = 0 is local training.

Departures:
- The paper takes the mean of the logits over the steps of the training. Here it is over the local samples after the
  training, in evaluation mode.
- Only clients that have a label count in its mean. What no other client has is not distilled. A client that does not
  answer counts with what it sent last.
- No samples are generated: the paper's federated augmentation is a method of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

import edgebed
from edgebed.baselines import personal, plugin
from edgebed.baselines.fedproto import class_means


@dataclass(frozen=True, kw_only=True)
class FedDistill(edgebed.LocalTraining):
    """distillation_weight γ."""

    distillation_weight: float = edgebed.number(1.0, low=0)


@dataclass(frozen=True, eq=False)
class Distilled:
    """γ CE(F(x), softmax(F̂_k^(y))), the mean over the mini-batch. 0 for samples with a label that no one else has."""

    logits: NDArray[np.float32]  # (classes, classes): F̂ by label
    clients: NDArray[np.int64]  # (classes,): how many they are the mean of
    weight: float

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        y = batch.y
        mean_logits = torch.tensor(self.logits, device=y.device)
        targets = torch.softmax(mean_logits, dim=1)[y]
        has_others = torch.tensor(self.clients > 0, device=y.device)
        known = has_others[y]
        losses = cross_entropy(batch.logits, targets, reduction="none")
        return self.weight * (losses * known).mean()


def mean_logits(learner: edgebed.Learner, w: edgebed.State) -> edgebed.State:
    """F_k^(l) over the client's samples, as `logits` (classes, classes), and which labels it `has` (classes,)."""
    _, logits, labels = learner.outputs(w)
    means, counts = class_means(logits, labels, learner.data.classes)
    has = counts > 0
    return {
        "logits": means.cpu().numpy(),
        "has": has.cpu().numpy(),
    }


def of_others(shared: Sequence[edgebed.State], classes: int) -> edgebed.State:
    """F̂_k^(l), the mean over those that have label l, as `logits` (classes, classes), and how many they are, `clients`
    (classes,)."""
    total = np.zeros((classes, classes))
    clients = np.zeros(classes, np.int64)
    for state in shared:
        has = state["has"]
        logits = state["logits"]
        total += np.where(has[:, None], logits, 0)
        clients += has
    divisors = np.maximum(clients, 1)[:, None]
    means = (total / divisors).astype(np.float32)
    return {"logits": means, "clients": clients}


class Cloud(personal.Cloud):
    """Gives each client the mean logits of the others."""

    def start(self) -> edgebed.State:
        return {}

    def form(self, common: edgebed.State) -> edgebed.State:
        classes = self.learner.data.classes
        logits = np.zeros((classes, classes), np.float32)
        has = np.zeros(classes, bool)
        return {"logits": logits, "has": has}

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        """What each client has sent last, under its name."""
        sent = {update.sender: update.tensors for update in updates}
        return common | edgebed.joined(**sent)

    async def issue(self, common: edgebed.State, t: int) -> None:
        classes = self.learner.data.classes
        clients = []
        for name in common:
            if name.endswith("/has"):
                clients.append(name.removesuffix("/has"))
        means: dict[str, edgebed.State] = {}
        for child in self.children:
            others = []
            for client in clients:
                if client != child:
                    others.append(edgebed.parted(common, client))
            means[child] = of_others(others, classes)
        await self.publish_each("common", means, owned=True, round=t)


class Client(personal.Client):
    """Learns from its labels and from the others' mean logits, and sends its own."""

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        weight = self.params.distillation_weight
        distilled = Distilled(common["logits"], common["clients"], weight)
        return await self.train(kept, t, distilled)

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return await self.compute(
            self.learner.apply,
            mean_logits,
            kept,
            samples=self.learner.samples,
            mode="evaluate",
        )


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "clients of different models learn from the others' mean logits of each class (FedDistill)"
PLUGIN = plugin("feddistill", FedDistill, SUMMARY, personal=True, floats=True, classes=True)
