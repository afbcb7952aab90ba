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
from typing import Any, ClassVar

import numpy as np
import torch
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
    loss = edgebed.loss(learner.model(learner.normalise(x, chosen)), y[chosen])
    return loss.detach(), torch.autograd.grad(loss, trainable(learner.model), materialize_grads=True)


def move(model: edgebed.Model, rate: float, directions: Iterable[Tensor]) -> None:
    """w ← w + rate · direction."""
    with torch.no_grad():
        for w, direction in zip(trainable(model), directions, strict=True):
            w.add_(direction, alpha=rate)


def meta_train(
    learner: edgebed.Learner, w: edgebed.State, p: HPFL, round: int
) -> tuple[edgebed.State, dict[str, float]]:
    """Local training by Per-FedAvg, and its metrics: the mean `loss` before adaptation, which is the task's, and the
    `objective`, the mean loss after it."""
    learner.set(w)
    model = learner.model.train()
    losses = torch.zeros(())
    objectives = torch.zeros(())
    step = edgebed.optimizer(list(model.parameters()), p)
    chosen = [
        each for *_, each in edgebed.batches(learner.samples, p, learner.random("batches", round), learner.device)
    ]
    for first, second in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        loss, adaptation = gradients(learner, first)
        move(model, -p.adaptation_rate, adaptation)
        objective, slopes = gradients(learner, second)
        move(model, p.adaptation_rate, adaptation)  # back
        step(torch.stack([torch.sum(w * g) for w, g in zip(trainable(model), slopes, strict=True)]).sum())
        losses += loss.cpu()
        objectives += objective.cpu()
    steps = max(len(chosen), 1)
    return learner.get(), {"loss": float(losses) / steps, "objective": float(objectives) / steps}


def adapted(
    learner: edgebed.Learner,
    w: edgebed.State,
    p: HPFL,
    round: int,
) -> edgebed.State:
    """The model with which a device predicts, after one step on a mini-batch."""
    learner.set(w)
    chosen = learner.random("adaptation", round).permutation(learner.samples)[: p.batch_size]
    model = learner.model.train()
    move(model, -p.adaptation_rate, gradients(learner, torch.from_numpy(chosen).to(learner.device))[1])
    return learner.get()


def similarity(y: edgebed.State, other: edgebed.State) -> float:
    """T of two models, or 0 if it is negative."""
    a, b = (
        np.concatenate([each.ravel() for each in state.values() if each.dtype.kind == "f"]).astype(np.float64)
        for state in (y, other)
    )
    product = float(a @ b)
    return max(product / float(a @ a + b @ b - product), 0.0)


def similar_means(models: Mapping[str, edgebed.State]) -> dict[str, edgebed.State]:
    """g_d of each edge, from the models of all."""
    return {
        d: edgebed.weighted_mean([*models.values()], [similarity(y, other) for other in models.values()])
        for d, y in models.items()
    }


def next_mixing(
    mixing: float,
    rate: float,
    y: edgebed.State,
    g: edgebed.State,
    trained: edgebed.State,
) -> float:
    """λ_d after a round in which the edge's devices moved p_d to `trained`."""
    floats = [name for name in y if y[name].dtype.kind == "f"]
    p = {name: mixing * y[name] + (1 - mixing) * g[name] for name in floats}
    slope = sum(float(np.sum((p[name] - trained[name]) * (y[name] - g[name]), dtype=np.float64)) for name in floats)
    return min(max(mixing - rate * slope, 0.0), 1.0)


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
        step = (self.learner.apply, meta_train, w, params, r)
        return await self.compute(*step, samples=work, mode="train")

    async def score(self, w: edgebed.State, r: int, t: int) -> None:
        if not self.learner.samples:
            return
        step = (self.learner.apply, adapted, w, self.params, r)
        own = await self.compute(*step, samples=min(self.params.batch_size, self.learner.samples), mode="train")
        await edgebed.evaluate(self, own, t)


class SimilarCloud(edgebed.Role):
    """Sends each edge the mean of all edges' models that is weighted by their similarity to its own."""

    async def run(self) -> None:
        w = self.learner.initial()
        g = {edge: edgebed.parted(self.restored.tensors, edge) if self.restored else w for edge in self.children}
        mean = next(iter(g.values()))
        async for t in self.rounds():
            await self.publish_each("model", g, owned=True, round=t)
            answers = edgebed.fitting(self, await self.gather("update", self.children, round=t), w)
            updates = edgebed.with_samples(self, answers)
            if updates:
                g |= await self.compute(similar_means, {each.sender: each.tensors for each in updates}, mode="other")
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
                trained, samples = await self.aggregate(edgebed.weighted_mean([y, g], [mixing, 1 - mixing]), t)
                mixing = next_mixing(mixing, self.params.mixing_rate, y, g, trained)
                y = trained
                done = t
            self.report(round=t, scope="train", mixing=mixing)
            await edgebed.evaluate(self, edgebed.weighted_mean([y, g], [mixing, 1 - mixing]), t)
            await self.checkpoint(t, y, mixing=mixing, samples=samples)
            await self.send(
                self.parent,
                "update",
                y if samples else None,
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
PLUGIN = edgebed.Plugin(
    algorithms=[
        edgebed.Algorithm(name, params=params, summary=summary, edges="required")
        for name, params, summary in (
            ("fedprox-h", FedProxH, "HierFAVG with devices that stay near their edge's model"),
            ("hpfl", HPFL, "HierFAVG for a model that one step adapts to a device's data"),
            ("esperhfl", ESPerHFL, "edges mix their model with those of similar edges"),
        )
    ]
)
