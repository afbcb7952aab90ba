"""FedKD. C. Wu, F. Wu, L. Lyu, Y. Huang, X. Xie, "Communication-efficient federated learning via knowledge
distillation", Nature Communications 13, 2022, its sections on adaptive mutual distillation and on dynamic gradient
approximation.

Client k has a mentor of any architecture, which never leaves it, and a copy of the mentee, one architecture for all.
y^t, y^s predictions of mentor and mentee, H^t, H^s their features, W^h a matrix of client k, CE and KL losses, L^t =
CE(y, y^t) and L^s = CE(y, y^s), n_k samples of client k, U Σ V a singular value decomposition, T energy.

    client   for each mini-batch, both models and W^h at once:
             mentor: L^t + (KL(y^s ‖ y^t) + MSE(H^t, W^h H^s)) / (L^t + L^s)
             mentee: L^s + (KL(y^t ‖ y^s) + MSE(H^t, W^h H^s)) / (L^t + L^s)
             sends the mentee's update g_k, each matrix of it as its first K singular values and vectors
    cloud    g ← Σ_k (n_k / n) g_k, sends g, compressed in the same way
    all      mentee ← mentee + g, as it was decompressed
    K        the least with Σ_{i ≤ K} σ_i² / Σ_i σ_i² > T(t), T(t) = T_start + (T_end − T_start) t / last round

Departures:
- What a model learns from, and the divisor L^t + L^s, are constants in its loss.
- The hidden loss is on the features before the classifier. The paper's networks are transformers: it takes all layers'
  states and the attention too.
- The update is that of the whole local training, of E epochs. A convolution is a matrix of its output channels. A
  matrix is sent as it is where that is smaller. Σ travels in U.
- A client that did not answer in the last round gets the whole mentee, since it lacks an update. In the paper all
  clients have all updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

import edgebed
from edgebed.baselines import fml, personal, plugin
from edgebed.baselines.fml import MEMES, loaded


@dataclass(frozen=True, kw_only=True)
class FedKD(edgebed.LocalTraining):
    """mentee: the model that clients share; energy_start T_start, energy_end T_end. 1 compresses without loss."""

    own_loop: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    mentee: str = edgebed.word("cnn", *MEMES)
    energy_start: float = edgebed.number(0.95, low=0, high=1)
    energy_end: float = edgebed.number(0.98, low=0, high=1)

    def longest_training(self, work: edgebed.ClientWork) -> float:
        return super().longest_training(work) * (1 + work.worth_of(self.mentee))


def energy(params: FedKD, t: int, last: int) -> float:
    """T(t)."""
    return params.energy_start + (params.energy_end - params.energy_start) * t / last


def compressed(update: edgebed.State, share: float) -> edgebed.State:
    """Each matrix as `name/u` (m, K), which holds Σ, and `name/v` (K, n), or as `name/whole` if that is smaller."""
    sent: edgebed.State = {}
    for name, values in update.items():
        sent[f"{name}/whole"] = values
        if values.ndim < 2 or values.dtype.kind != "f" or not np.isfinite(values).all():
            continue
        matrix = values.reshape(len(values), -1)
        u, sigma, v = np.linalg.svd(matrix, full_matrices=False)
        reached = np.cumsum(sigma.astype(np.float64) ** 2)
        enough = int(np.searchsorted(reached, share * reached[-1], side="right")) + 1
        if reached[-1]:
            kept = min(enough, len(sigma))
        else:
            kept = 1
        if kept * sum(matrix.shape) < matrix.size:
            del sent[f"{name}/whole"]
            sent |= {f"{name}/u": u[:, :kept] * sigma[:kept], f"{name}/v": v[:kept]}
    return sent


def decompressed(sent: edgebed.State, form: edgebed.State) -> edgebed.State:
    """The update with the shapes of `form`. What does not fit them is left out."""
    update: edgebed.State = {}
    for name, values in form.items():
        u, v, whole = (sent.get(f"{name}/{part}") for part in ("u", "v", "whole"))
        if whole is not None:
            update[name] = whole
        elif u is not None and v is not None and u.ndim == v.ndim == 2 and u.shape[1:] == v.shape[:1]:
            product = u @ v
            if product.size == values.size:
                update[name] = product.reshape(values.shape)
            else:
                update[name] = product
    return update


def added(w: edgebed.State, update: edgebed.State) -> edgebed.State:
    """mentee + g."""
    return {name: np.asarray(values + update[name], values.dtype) for name, values in w.items()}


def difference(after: edgebed.State, before: edgebed.State) -> edgebed.State:
    """The update that makes `after` of `before`."""
    return {name: np.asarray(values - before[name], values.dtype) for name, values in after.items()}


def losses(
    mentor: tuple[Tensor, Tensor], mentee: tuple[Tensor, Tensor], transform: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """The mentor's and the mentee's loss, from features and logits of each. ``transform`` is W^h, (d^t, d^s)."""
    (features, p), (its_features, q) = mentor, mentee
    of_mentor = cross_entropy(p, y)
    of_mentee = cross_entropy(q, y)
    total = (of_mentor + of_mentee).detach()
    seen = its_features @ transform.T
    return (
        of_mentor + (_divergence(q.detach(), p) + mse_loss(features, seen.detach())) / total,
        of_mentee + (_divergence(p.detach(), q) + mse_loss(seen, features.detach())) / total,
    )


def _divergence(target: Tensor, logits: Tensor) -> Tensor:
    return kl_div(log_softmax(logits, 1), log_softmax(target, 1), reduction="batchmean", log_target=True)


def distil_mutually(
    learner: edgebed.Learner, kept: edgebed.State, params: FedKD, round: int
) -> tuple[edgebed.State, dict[str, float]]:
    """What a client keeps, with mentor (`own`), `mentee` and `transform` trained from `own`, `base` and `transform`;
    and the mentor's `mean_losses`."""
    learner.set(edgebed.parted(kept, "own"))
    mentor = learner.model.train()
    mentee = loaded(learner, params.mentee, edgebed.parted(kept, "base")).train()
    x, y = learner.train_data
    transform = nn.Parameter(first_transform(learner, mentor, mentee, kept))
    steps = [
        edgebed.optimizer(list(mentor.parameters()), params),
        edgebed.optimizer([*mentee.parameters(), transform], params),
    ]
    task_losses = []
    objectives = []
    for _, _, chosen in edgebed.batches(learner.samples, params, learner.random("batches", round), learner.device):
        inputs = learner.normalise(x[chosen])
        outputs = []
        for model in (mentor, mentee):
            features = model.extractor(inputs)
            outputs.append((features, model.classifier(features)))
        both = losses(outputs[0], outputs[1], transform, y[chosen])
        for step, loss in zip(steps, both, strict=True):
            step(loss)
        task_losses.append(cross_entropy(outputs[0][1].detach(), y[chosen]))
        objectives.append(both[0].detach())
    learned = edgebed.joined(own=learner.get(), mentee=edgebed.state_of(mentee), base=edgebed.parted(kept, "base"))
    kept_transform = {"transform": transform.detach().cpu().numpy().copy()}
    return learned | kept_transform, fml.mean_losses(task_losses, objectives)


def first_transform(
    learner: edgebed.Learner, mentor: edgebed.Model, mentee: edgebed.Model, kept: edgebed.State
) -> Tensor:
    """W^h as it was kept, or a new one, drawn as torch draws a linear layer's: uniform within ±1/√d, the mentee's d."""
    if "transform" in kept:
        return torch.tensor(kept["transform"], device=learner.device)
    sample = torch.from_numpy(learner.data.zeros(2)).to(learner.device)
    with torch.no_grad():
        rows, columns = (model.eval().extractor(sample).shape[1] for model in (mentor, mentee))
    mentor.train()
    mentee.train()
    drawn = learner.random("transform", 0).uniform(-1, 1, (rows, columns)) / np.sqrt(columns)
    return torch.tensor(drawn, dtype=torch.float32, device=learner.device)


class Cloud(personal.Cloud):
    """Adds the mean of the clients' updates to the mentee. ``answered``: the clients that hold the mentee of the last
    round, and ``update``: what has been added to it since."""

    answered: frozenset[str] = frozenset()
    update: edgebed.State

    def start(self) -> edgebed.State:
        return edgebed.state_of(self.learner.build(self.params.mentee, "cpu"))

    async def tell(self, common: edgebed.State, t: int) -> None:
        whole = edgebed.joined(whole=common)
        given = {}
        for child in self.children:
            if child in self.answered:
                given[child] = edgebed.joined(update=self.update)
            else:
                given[child] = whole
        await self.publish_each("common", given, owned=True, round=t)

    def usable(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
    ) -> list[edgebed.Message]:
        read = [replace(each, tensors=decompressed(each.tensors, common)) for each in updates]
        usable = super().usable(read, common)
        self.answered = frozenset()
        return usable

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        mean = await edgebed.average(self, updates, common)
        share = energy(self.params, t, self.last_round)
        self.update = await self.compute(compressed, mean, share, mode="other")
        self.answered = frozenset(each.sender for each in updates)
        return added(common, decompressed(self.update, common))


class Client(fml.Client):
    """Trains its mentor and the mentee together, and sends the mentee's update. The mentor has its accuracy."""

    def start(self) -> edgebed.State:
        return super().start() | {"round": np.array(0)}

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        base = edgebed.parted(common, "whole")
        if not base:
            if kept["round"] != t - 1:  # it was killed before its last checkpoint was written: it asks for the whole
                return kept
            before = edgebed.parted(kept, "base")
            base = added(before, decompressed(edgebed.parted(common, "update"), before))
        own = {name: each for name, each in kept.items() if name.startswith("own/") or name == "transform"}
        learned = await self.train_both(self.params.mentee, t, distil_mutually, own | edgebed.joined(base=base))
        return learned | {"round": np.array(t)}

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        """The compressed update. Nothing, which the cloud leaves out, if the client could not learn in this round."""
        if kept["round"] != t:
            return {}
        update = difference(edgebed.parted(kept, "mentee"), edgebed.parted(kept, "base"))
        share = energy(self.params, t, self.last_round)
        return await self.compute(compressed, update, share, mode="other")


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "FML with a shared model that is sent as singular vectors, and with adaptive losses (FedKD)"
PLUGIN = plugin(
    "fedkd",
    FedKD,
    SUMMARY,
    personal=True,
    featured=True,
    floats=True,
    classes=True,
)
