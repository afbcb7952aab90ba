"""Algorithms for a cloud, edges and devices that FEELPGen's paper compares with. Differences from HierFAVG:

FedProx-h: FedProx (T. Li et al., MLSys 2020, equation 2). w model that a device gets from its edge, μ weight.
    device   w_i ≈ argmin F_i(w_i) + (μ / 2) ‖w_i − w‖²

HPFL: C. You, K. Guo, H. H. Yang, T. Q. S. Quek, "Hierarchical Personalized Federated Learning Over Massive Mobile Edge
Computing Networks", IEEE Transactions on Wireless Communications 2023, arXiv 2303.10580, by Per-FedAvg (A. Fallah et
al., NeurIPS 2020). F_i, F′_i losses on two mini-batches, α adaptation rate, β learning rate.
    device   w_i ← w_i − β ∇F′_i(w_i − α ∇F_i(w_i)), for each mini-batch; predicts by w_i − α ∇F_i(w_i)

ESPerHFL: C. Ma, X. Li, B. Huang, G. Li, F. Li, "Personalized client-edge-cloud hierarchical federated learning in
mobile edge computing", Journal of Cloud Computing 2024. y_d model of edge d, λ_d mixing parameter, T Tanimoto's.
    edge     p_d = λ_d y_d + (1 − λ_d) g_d, from which its devices train; y_d ← their mean
             λ_d ← λ_d − η_λ ⟨∇F_d(p_d), y_d − g_d⟩, in [0, 1]
    cloud    g_d ← Σ_e T_de y_e / Σ_e T_de,  T_de = ⟨y_d, y_e⟩ / (‖y_d‖² + ‖y_e‖² − ⟨y_d, y_e⟩)

Departures. HPFL: the gradient is of first order; the cloud waits for `gathering.quorum` edges, the paper schedules
them; a learning rate that decays is β. ESPerHFL is our reading of its abstract, without the paper: ∇F_d(p_d) is the
change p_d − y_d by the training of devices; the normalisation parameters that devices train are averaged like all
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import edgebed
from edgebed.baselines import fedala, sdfeel

HIERFAVG: Any = edgebed.algorithm("hierfavg").roles
Device: Any = HIERFAVG["device"]


@dataclass(frozen=True, kw_only=True)
class FedProxH(sdfeel.Clusters):
    """mu μ."""

    mu: float = edgebed.number(0.01, low=0)


@dataclass(frozen=True, kw_only=True)
class HPFL(sdfeel.Clusters):
    """adaptation_rate α. The model adapts to a mini-batch, and then learns from the next one."""

    own_loop: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    adaptation_rate: float = edgebed.number(0.01, low=0)

    def longest_training(self, work: edgebed.ClientWork) -> float:
        return 2 * super().longest_training(work)


@dataclass(frozen=True, kw_only=True)
class ESPerHFL(sdfeel.Clusters):
    """mixing λ at the start; mixing_rate η_λ."""

    mixing: float = edgebed.number(0.5, low=0, high=1)
    mixing_rate: float = edgebed.number(0.1, low=0)


def trainable(model: edgebed.Model) -> list[Tensor]:
    """The parameters that are not frozen."""
    return [w for w in model.parameters() if w.requires_grad]


def gradients(learner: edgebed.Learner, chosen: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loss of the learner's model on a mini-batch, and its gradients; those of unused parameters are 0."""
    x, y = learner.train_data
    logits = learner.model(learner.normalise(x, chosen))
    loss = edgebed.loss(logits, y[chosen])
    weights = trainable(learner.model)
    slopes = torch.autograd.grad(loss, weights, materialize_grads=True)
    return loss.detach(), slopes


def move(model: edgebed.Model, rate: float, directions: Iterable[Tensor]) -> None:
    """w ← w + rate · direction."""
    with torch.no_grad():
        for w, direction in zip(trainable(model), directions, strict=True):
            w.add_(direction, alpha=rate)


def meta_train(
    learner: edgebed.Learner,
    w: edgebed.State,
    p: HPFL,
    round: int,
) -> tuple[edgebed.State, dict[str, float]]:
    """Local training by Per-FedAvg, and its metrics: the mean `loss` before adaptation, which is the task's, and the
    `objective`, the mean loss after it."""
    learner.set(w)
    model = learner.model.train()
    losses = torch.zeros(())
    objectives = torch.zeros(())
    weights = list(model.parameters())
    step = edgebed.optimizer(weights, p)
    random = learner.random("batches", round)
    mini_batches = []
    for _, _, batch in edgebed.batches(learner.samples, p, random, learner.device):
        mini_batches.append(batch)
    next_ones = [*mini_batches[1:], *mini_batches[:1]]
    for batch, next_one in zip(mini_batches, next_ones, strict=True):
        loss, adaptation = gradients(learner, batch)
        move(model, -p.adaptation_rate, adaptation)
        objective, slopes = gradients(learner, next_one)
        move(model, p.adaptation_rate, adaptation)  # back
        step(linear_loss(model, slopes))
        losses += loss.cpu()
        objectives += objective.cpu()
    steps = max(len(mini_batches), 1)
    loss_before = float(losses) / steps
    loss_after = float(objectives) / steps
    metrics = {"loss": loss_before, "objective": loss_after}
    return learner.get(), metrics


def linear_loss(model: edgebed.Model, slopes: Iterable[Tensor]) -> Tensor:
    """A loss with the gradients `slopes`."""
    terms = []
    for w, slope in zip(trainable(model), slopes, strict=True):
        terms.append(torch.sum(w * slope))
    return torch.stack(terms).sum()


def adapted(
    learner: edgebed.Learner,
    w: edgebed.State,
    p: HPFL,
    round: int,
) -> edgebed.State:
    """The model with which a device predicts, after one step on a mini-batch."""
    learner.set(w)
    random = learner.random("adaptation", round)
    order = random.permutation(learner.samples)
    chosen = order[: p.batch_size]
    batch = torch.from_numpy(chosen).to(learner.device)
    model = learner.model.train()
    _, adaptation = gradients(learner, batch)
    move(model, -p.adaptation_rate, adaptation)
    return learner.get()


def similarity(y: edgebed.State, other: edgebed.State) -> float:
    """T of two models, or 0 if it is negative."""
    a = floats_of(y)
    b = floats_of(other)
    product = float(a @ b)
    union = float(a @ a + b @ b - product)
    return max(product / union, 0.0)


def floats_of(state: edgebed.State) -> NDArray[np.float64]:
    """All floats of a model, one after the other."""
    parts = []
    for values in state.values():
        if values.dtype.kind == "f":
            parts.append(values.ravel())
    return np.concatenate(parts).astype(np.float64)


def similar_means(models: Mapping[str, edgebed.State]) -> dict[str, edgebed.State]:
    """g_d of each edge, from the models of all."""
    states = list(models.values())
    means = {}
    for d, y in models.items():
        similarities = [similarity(y, other) for other in states]
        means[d] = edgebed.weighted_mean(states, similarities)
    return means


def personal(y: edgebed.State, g: edgebed.State, mixing: float) -> edgebed.State:
    """p_d = λ_d y_d + (1 − λ_d) g_d."""
    weights = [mixing, 1 - mixing]
    return edgebed.weighted_mean([y, g], weights)


def next_mixing(
    mixing: float,
    rate: float,
    y: edgebed.State,
    g: edgebed.State,
    trained: edgebed.State,
) -> float:
    """λ_d after a round in which the edge's devices moved p_d to `trained`."""
    slopes = []
    for name, y_d in y.items():
        if y_d.dtype.kind != "f":
            continue
        g_d = g[name]
        p_d = mixing * y_d + (1 - mixing) * g_d
        moved = p_d - trained[name]
        products = moved * (y_d - g_d)
        slope = np.sum(products, dtype=np.float64)
        slopes.append(float(slope))
    stepped = mixing - rate * sum(slopes)
    return min(max(stepped, 0.0), 1.0)


class ProximalDevice(Device):  # type: ignore[misc]
    """Trains near the edge's model."""

    train = edgebed.algorithm("fedprox").roles["device"].train  # type: ignore[attr-defined]


class MetaDevice(sdfeel.Device):
    """Learns a model that is good after a step on the device's data. Evaluates it after such a step."""

    async def learn(
        self,
        w: edgebed.State,
        r: int,
    ) -> tuple[edgebed.State, dict[str, float]]:
        params = edgebed.params_at(self, self.params, r)
        work = 2 * self.learner.work(self.params)
        return await self.compute(
            self.learner.apply,
            meta_train,
            w,
            params,
            r,
            samples=work,
            mode="train",
        )

    async def score(self, w: edgebed.State, r: int, t: int) -> None:
        samples = self.learner.samples
        if not samples:
            return
        own = await self.compute(
            self.learner.apply,
            adapted,
            w,
            self.params,
            r,
            samples=min(self.params.batch_size, samples),
            mode="train",
        )
        await edgebed.evaluate(self, own, t)


class SimilarCloud(edgebed.Role):
    """Sends each edge the mean of all edges' models that is weighted by their similarity to its own."""

    async def run(self) -> None:
        w = self.learner.initial()
        g = dict.fromkeys(self.children, w)
        if self.restored:
            for edge in self.children:
                g[edge] = edgebed.parted(self.restored.tensors, edge)
        mean = next(iter(g.values()))
        async for t in self.rounds():
            await self.publish_each("model", g, owned=True, round=t)
            answers = await self.gather("update", self.children, round=t)
            fit = edgebed.fitting(self, answers, w)
            updates = edgebed.with_samples(self, fit)
            if updates:
                models = {update.sender: update.tensors for update in updates}
                g |= await self.compute(similar_means, models, mode="other")
            mean = await edgebed.average(self, updates, mean)
            await edgebed.evaluate(self, mean, t)
            await self.checkpoint(t, edgebed.joined(**g))


class MixingEdge(sdfeel.Edge):
    """Mixes its own model with the cloud's, and learns how much of each to take."""

    async def run(self) -> None:
        y = {}
        mixing = self.params.mixing
        samples = 0
        done = 0
        if self.restored is not None:
            y = self.restored.tensors
            done = self.restored.round
            mixing = self.restored.fields["mixing"]
            samples = self.restored.fields["samples"]
        while True:
            message = await self.receive("model", sender=self.parent)
            t = edgebed.round_of(message)
            g = message.tensors
            if t > done:  # else the cloud restarted, and lacks the answer of this round
                y = y or g
                p = personal(y, g, mixing)
                trained, samples = await self.aggregate(p, t)
                mixing = next_mixing(mixing, self.params.mixing_rate, y, g, trained)
                y = trained
                done = t
            self.report(round=t, scope="train", mixing=mixing)
            p = personal(y, g, mixing)
            await edgebed.evaluate(self, p, t)
            await self.checkpoint(t, y, mixing=mixing, samples=samples)
            update = y if samples else None
            await self.send(
                self.parent,
                "update",
                update,
                owned=True,
                round=t,
                samples=samples,
            )


TREE = {"cloud": fedala.Cloud, "edge": HIERFAVG["edge"]}
ROLES = {
    "fedprox-h": TREE | {"device": ProximalDevice},
    "hpfl": TREE | {"device": MetaDevice},
    "esperhfl": {"cloud": SimilarCloud, "edge": MixingEdge, "device": sdfeel.Device},
}
_tree = partial(edgebed.Algorithm, edges="required")
PLUGIN = edgebed.Plugin(
    algorithms=[
        _tree("fedprox-h", params=FedProxH, summary="HierFAVG with devices that stay near their edge's model"),
        _tree("hpfl", params=HPFL, summary="HierFAVG for a model that one step adapts to a device's data"),
        _tree("esperhfl", params=ESPerHFL, summary="edges mix their model with those of similar edges"),
    ]
)
