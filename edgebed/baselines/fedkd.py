"""FedKD. C. Wu, F. Wu, L. Lyu, Y. Huang, X. Xie, "Communication-efficient federated learning via knowledge
distillation", Nature Communications 13, 2022, its sections on adaptive mutual distillation and on dynamic gradient
approximation.

Client k has a mentor of any architecture, which never leaves it, and a copy of the mentee, one architecture for all.
y^t, y^s predictions of mentor and mentee, H^t, H^s their features, W^h a matrix of client k, CE and KL losses, L^t =
CE(y, y^t) and L^s = CE(y, y^s), n_k samples of client k, U Σ V a singular value decomposition, T energy.

    client   for each mini-batch, both models and W^h together:
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
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
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
        worth = 1 + work.worth_of(self.mentee)
        return super().longest_training(work) * worth


def energy(params: FedKD, t: int, last: int) -> float:
    """T(t)."""
    rise = params.energy_end - params.energy_start
    return params.energy_start + rise * t / last


def compressed(update: edgebed.State, share: float) -> edgebed.State:
    """Each matrix as `name/u` (m, K), which holds Σ, and `name/v` (K, n), or as `name/whole` if that is smaller."""
    sent: edgebed.State = {}
    for name, values in update.items():
        is_matrix = values.ndim >= 2 and values.dtype.kind == "f"
        if not is_matrix or not np.isfinite(values).all():
            sent[f"{name}/whole"] = values
            continue
        matrix = values.reshape(len(values), -1)
        u, v = factors(matrix, share)
        if u.size + v.size < matrix.size:
            sent[f"{name}/u"] = u
            sent[f"{name}/v"] = v
        else:
            sent[f"{name}/whole"] = values
    return sent


def factors(
    matrix: NDArray[Any],
    share: float,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """U Σ (m, K) and V (K, n) of the matrix, with the least K of more than this share of its energy."""
    u, sigma, v = np.linalg.svd(matrix, full_matrices=False)
    squares = sigma.astype(np.float64) ** 2
    reached = np.cumsum(squares)
    total = reached[-1]
    place = np.searchsorted(reached, share * total, side="right")
    enough = int(place) + 1
    k = 1
    if total:
        k = min(enough, len(sigma))
    u_sigma = u[:, :k] * sigma[:k]
    return u_sigma, v[:k]


def decompressed(sent: edgebed.State, form: edgebed.State) -> edgebed.State:
    """The update with the shapes of `form`. What does not fit them is left out."""
    update: edgebed.State = {}
    for name, values in form.items():
        whole = sent.get(f"{name}/whole")
        u = sent.get(f"{name}/u")
        v = sent.get(f"{name}/v")
        if whole is not None:
            update[name] = whole
        elif u is not None and v is not None and _fit(u, v):
            product = u @ v
            if product.size == values.size:
                product = product.reshape(values.shape)
            update[name] = product
    return update


def _fit(u: NDArray[Any], v: NDArray[Any]) -> bool:
    matrices = u.ndim == v.ndim == 2
    return matrices and u.shape[1:] == v.shape[:1]


def added(w: edgebed.State, update: edgebed.State) -> edgebed.State:
    """mentee + g."""
    result: edgebed.State = {}
    for name, values in w.items():
        after = values + update[name]
        result[name] = np.asarray(after, values.dtype)
    return result


def difference(after: edgebed.State, before: edgebed.State) -> edgebed.State:
    """The update that makes `after` of `before`."""
    result: edgebed.State = {}
    for name, values in after.items():
        change = values - before[name]
        result[name] = np.asarray(change, values.dtype)
    return result


def losses(
    mentor: tuple[Tensor, Tensor],
    mentee: tuple[Tensor, Tensor],
    transform: Tensor,
    y: Tensor,
) -> tuple[Tensor, Tensor]:
    """The mentor's and the mentee's loss, from features and logits of each. ``transform`` is W^h, (d^t, d^s)."""
    h_t, y_t = mentor
    h_s, y_s = mentee
    l_t = cross_entropy(y_t, y)
    l_s = cross_entropy(y_s, y)
    total = (l_t + l_s).detach()
    seen = h_s @ transform.T
    of_outputs = _divergence(y_s.detach(), y_t)
    of_hidden = mse_loss(h_t, seen.detach())
    mentor_loss = l_t + (of_outputs + of_hidden) / total
    of_outputs = _divergence(y_t.detach(), y_s)
    of_hidden = mse_loss(seen, h_t.detach())
    mentee_loss = l_s + (of_outputs + of_hidden) / total
    return mentor_loss, mentee_loss


def _divergence(target: Tensor, logits: Tensor) -> Tensor:
    q = log_softmax(logits, 1)
    p = log_softmax(target, 1)
    return kl_div(q, p, reduction="batchmean", log_target=True)


def distil_mutually(
    learner: edgebed.Learner,
    kept: edgebed.State,
    params: FedKD,
    round: int,
) -> tuple[edgebed.State, dict[str, float]]:
    """What a client keeps, with mentor (`own`), `mentee` and `transform` trained from `own`, `base` and `transform`;
    and the mentor's `mean_losses`."""
    learner.set(edgebed.parted(kept, "own"))
    base = edgebed.parted(kept, "base")
    mentor = learner.model.train()
    mentee = loaded(learner, params.mentee, base).train()
    x, y = learner.train_data
    w_h = first_transform(learner, mentor, mentee, kept)
    transform = nn.Parameter(w_h)
    mentor_weights = list(mentor.parameters())
    mentor_step = edgebed.optimizer(mentor_weights, params)
    mentee_weights = [*mentee.parameters(), transform]
    mentee_step = edgebed.optimizer(mentee_weights, params)
    random = learner.random("batches", round)
    task_losses = []
    objectives = []
    mini_batches = edgebed.batches(learner.samples, params, random, learner.device)
    for _, _, batch in mini_batches:
        inputs = learner.normalise(x[batch])
        labels = y[batch]
        of_mentor = _outputs(mentor, inputs)
        of_mentee = _outputs(mentee, inputs)
        mentor_loss, mentee_loss = losses(of_mentor, of_mentee, transform, labels)
        mentor_step(mentor_loss)
        mentee_step(mentee_loss)
        _, y_t = of_mentor
        task_losses.append(cross_entropy(y_t.detach(), labels))
        objectives.append(mentor_loss.detach())
    trained_mentor = learner.get()
    trained_mentee = edgebed.state_of(mentee)
    learned = edgebed.joined(own=trained_mentor, mentee=trained_mentee, base=base)
    trained_transform = transform.detach().cpu().numpy()
    learned["transform"] = trained_transform.copy()
    return learned, fml.mean_losses(task_losses, objectives)


def _outputs(model: edgebed.Model, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Features and logits."""
    features = model.extractor(inputs)
    return features, model.classifier(features)


def first_transform(
    learner: edgebed.Learner,
    mentor: edgebed.Model,
    mentee: edgebed.Model,
    kept: edgebed.State,
) -> Tensor:
    """W^h as it was kept, or a new one, drawn as torch draws a linear layer's: uniform within ±1/√d, the mentee's d."""
    device = learner.device
    if "transform" in kept:
        return torch.tensor(kept["transform"], device=device)
    zeros = learner.data.zeros(2)
    sample = torch.from_numpy(zeros).to(device)
    with torch.no_grad():
        h_t = mentor.eval().extractor(sample)
        h_s = mentee.eval().extractor(sample)
    rows = h_t.shape[1]
    columns = h_s.shape[1]
    mentor.train()
    mentee.train()
    random = learner.random("transform", 0)
    uniform = random.uniform(-1, 1, (rows, columns))
    transform = uniform / np.sqrt(columns)
    return torch.tensor(transform, dtype=torch.float32, device=device)


class Cloud(personal.Cloud):
    """Adds the mean of the clients' updates to the mentee. ``answered``: the clients that hold the mentee of the last
    round, and ``update``: what has been added to it since."""

    answered: frozenset[str] = frozenset()
    update: edgebed.State

    def start(self) -> edgebed.State:
        mentee = self.learner.build(self.params.mentee, "cpu")
        return edgebed.state_of(mentee)

    async def issue(self, common: edgebed.State, t: int) -> None:
        whole = edgebed.joined(whole=common)
        sent = dict.fromkeys(self.children, whole)
        for child in self.children:
            if child in self.answered:
                sent[child] = edgebed.joined(update=self.update)
        await self.publish_each("common", sent, owned=True, round=t)

    def usable(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
    ) -> list[edgebed.Message]:
        expanded = []
        for update in updates:
            tensors = decompressed(update.tensors, common)
            expanded.append(replace(update, tensors=tensors))
        usable = super().usable(expanded, common)
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
        self.answered = frozenset(update.sender for update in updates)
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
            update = edgebed.parted(common, "update")
            base = added(before, decompressed(update, before))
        own = edgebed.parted(kept, "own")
        start = edgebed.joined(own=own)
        if "transform" in kept:
            start["transform"] = kept["transform"]
        start |= edgebed.joined(base=base)
        name = self.params.mentee
        learned = await self.train_both(name, t, distil_mutually, start)
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
        mentee = edgebed.parted(kept, "mentee")
        base = edgebed.parted(kept, "base")
        share = energy(self.params, t, self.last_round)
        update = difference(mentee, base)
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
