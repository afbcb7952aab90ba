"""FedALA. J. Zhang, Y. Hua, H. Wang, T. Song, Z. Xue, R. Ma, H. Guan, "FedALA: Adaptive Local Aggregation for
Personalized Federated Learning", AAAI 2023, arXiv 2212.01197, equations 3 to 5 and Algorithm 1.

Θ global model, Θ_i the model that client i trained last, W_i weights in [0, 1] of the entries of the upper p layers, s
share of the client's samples that W_i learns from, η its learning rate.

    client   Θ̂_i ← Θ_i + (Θ − Θ_i) ⊙ [1; W_i]                                                  equation 4
             W_i ← σ(W_i − η ∇_{W_i} L(Θ̂_i)),  σ clips to [0, 1]                                equation 5
             until the loss converges the first time, for one epoch in later rounds;
             Θ_i ← Θ̂_i after local training
    cloud    Θ ← Σ_i (n_i / n) Θ_i, as FedAvg's

The gradient is ∇_{W_i} L = ∇_{Θ̂_i} L ⊙ (Θ − Θ_i). No layers (p = 0), or W_i = 1, are FedAvg.

Departures: every client takes part in every round. The loss has converged when the standard deviation of ten epochs
is below 0.1, or after 100 epochs; the authors' code has no such limit. W_i is learned with batch normalisation's
running statistics, which are the global model's. A client's own accuracy is that of Θ_i, after local training; the
authors evaluate Θ̂_i before it. Time on the virtual clock counts one epoch of it.

Θ_i and W_i are in a client's checkpoint. A client that gets the model of a round again repeats its answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgebed
from edgebed.baselines import plugin

LOSSES = 10
DEVIATION = 0.1
MOST_EPOCHS = 100


@dataclass(frozen=True, kw_only=True)
class FedALA(edgebed.LocalTraining):
    """layers p; sampled s; weight_learning_rate η."""

    layers: int = edgebed.whole(1, low=0)
    sampled: float = edgebed.number(0.8, low=0, above=True, high=1)
    weight_learning_rate: float = edgebed.number(1.0, low=0)

    def longest_training(self, work: edgebed.ClientWork) -> float:
        sampled = math.ceil(self.sampled * work.samples)
        return super().longest_training(work) + sampled


def upper(entries: Sequence[str], layers: int) -> list[str]:
    """The entries of the last `layers` layers, or of all if there are fewer. A layer's entries have the same name
    before the last dot."""
    if not layers:
        return []
    layers_of_entries = map(layer_of, entries)
    names = list(dict.fromkeys(layers_of_entries))
    first = max(0, len(names) - layers)
    last_layers = set(names[first:])
    return [entry for entry in entries if layer_of(entry) in last_layers]


def layer_of(entry: str) -> str:
    return entry.rpartition(".")[0]


def aggregated(
    own: edgebed.State,
    w: edgebed.State,
    weights: Mapping[str, NDArray[Any]],
) -> edgebed.State:
    """Θ̂_i = Θ_i + (Θ − Θ_i) ⊙ W_i where there are weights, else Θ (equation 4)."""
    mixed = dict(w)
    for name, w_i in weights.items():
        difference = w[name] - own[name]
        mixed[name] = own[name] + difference * w_i
    return mixed


def reweighted(
    weight: NDArray[Any],
    gradient: NDArray[Any],
    difference: NDArray[Any],
    rate: float,
) -> NDArray[Any]:
    """σ(W_i − η ∇_{Θ̂_i} L ⊙ (Θ − Θ_i)) (equation 5)."""
    stepped = weight - rate * gradient * difference
    clipped = np.clip(stepped, 0, 1)
    result: NDArray[Any] = clipped.astype(weight.dtype)
    return result


def converged(losses: Sequence[float]) -> bool:
    """Whether the loss has settled, or has had its time."""
    if len(losses) >= MOST_EPOCHS:
        return True
    if len(losses) <= LOSSES:
        return False
    latest = losses[-LOSSES:]
    return float(np.std(latest)) < DEVIATION


def adapt(
    learner: edgebed.Learner,
    own: edgebed.State,
    w: edgebed.State,
    weights: edgebed.State,
    p: FedALA,
    t: int,
    once: bool,
) -> edgebed.State:
    """W_i after one epoch, or after as many as the loss needs to converge."""
    import torch

    x, y = learner.train_data
    random = learner.random("local aggregation", t)
    count = math.ceil(p.sampled * len(y))
    order = random.permutation(len(y))[:count]
    losses: list[float] = []
    while True:
        total = 0.0
        for start in range(0, len(order), p.batch_size):
            end = start + p.batch_size
            chosen = torch.from_numpy(order[start:end])
            batch = chosen.to(learner.device)
            learner.set(aggregated(own, w, weights))
            model = learner.model.eval()
            parameters = dict(model.named_parameters())
            logits = model(learner.normalise(x, batch))
            loss = edgebed.loss(logits, y[batch])
            weighted = [parameters[name] for name in weights]
            gradients = torch.autograd.grad(loss, weighted, allow_unused=True)
            stepped = dict(weights)
            for name, gradient in zip(weights, gradients, strict=True):
                if gradient is not None:
                    stepped[name] = reweighted(
                        weights[name],
                        gradient=gradient.cpu().numpy(),
                        difference=w[name] - own[name],
                        rate=p.weight_learning_rate,
                    )
            weights = stepped
            total += float(loss.detach()) * len(batch)
        losses.append(total / len(order))
        if once or converged(losses):
            return weights


class Cloud(edgebed.Role):
    """Averages its clients, as FedAvg's."""

    async def run(self) -> None:
        if self.restored:
            w = self.restored.tensors
        else:
            w = self.learner.initial()
        async for t in self.rounds():
            await self.publish(self.children, "model", w, owned=True, round=t)
            w = await self.aggregate(w, t)
            await edgebed.evaluate(self, w, t)
            await self.checkpoint(t, w)

    async def aggregate(self, w: edgebed.State, t: int) -> edgebed.State:
        updates = await self.gather("update", self.children, round=t)
        return await edgebed.average(self, updates, w)


class Client(edgebed.Role):
    """Trains from its own mixture of the global model and its last one. Its trained model is evaluated on its own test
    set."""

    async def run(self) -> None:
        own, weights, once, trained = self.start()
        while True:
            model = await self.receive("model", sender=self.parent)
            start = model.tensors
            t = edgebed.round_of(model)
            if t > trained:
                if trained and weights and self.learner.samples:
                    weights = await self.adapt(own, start, weights, t, once)
                    once = True
                    start = aggregated(own, start, weights)
                result = await edgebed.train(self, start, t, self.params)
                own = result.weights
                trained = t
                self.report(round=t, scope="train", **result.metrics)
                kept = edgebed.joined(own=own, weights=weights)
                await self.checkpoint(t, kept, once=once)
            if weights:
                values = [w_i.ravel() for w_i in weights.values()]
                mean = np.concatenate(values).mean()
                self.report(round=t, scope="train", global_weight=float(mean))
            await edgebed.evaluate(self, own, t)
            await self.send(
                self.parent,
                "update",
                own,
                owned=True,
                round=t,
                samples=self.learner.samples,
            )

    def start(self) -> tuple[edgebed.State, edgebed.State, bool, int]:
        """Θ_i, W_i, whether the loss has converged once, and the round that was trained last."""
        if self.restored is None:
            initial = self.learner.initial()
            names = upper(self.learner.trained, self.params.layers)
            ones = {name: np.ones_like(initial[name]) for name in names}
            return initial, ones, False, 0
        own = edgebed.parted(self.restored.tensors, "own")
        weights = edgebed.parted(self.restored.tensors, "weights")
        once = bool(self.restored.fields["once"])
        return own, weights, once, self.restored.round

    async def adapt(
        self,
        own: edgebed.State,
        start: edgebed.State,
        weights: edgebed.State,
        t: int,
        once: bool,
    ) -> edgebed.State:
        """W_i for the global model `start`."""
        p = self.params
        work = math.ceil(p.sampled * self.learner.samples)
        adapted: edgebed.State = await self.compute(
            self.learner.apply,
            adapt,
            own,
            start,
            weights,
            p,
            t,
            once,
            samples=work,
        )
        return adapted


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "FedAvg; each client learns, entry by entry, how much of the global model to take"
PLUGIN = plugin("fedala", FedALA, SUMMARY)
