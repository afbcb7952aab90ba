"""SCAFFOLD. S. P. Karimireddy, S. Kale, M. Mohri, S. Reddi, S. Stich, A. T. Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020, arXiv 1910.06378, Algorithm 1 with option II.

x server model, y_i model of client i, c and c_i their control variates, η_ℓ and η_g local and server learning rate, K
local steps, S the clients of a round, N all clients.

    client   y_i ← x;  y_i ← y_i − η_ℓ (g_i(y_i) − c_i + c), K times                                  lines 7 to 11
             c_i⁺ ← c_i − c + (x − y_i) / (K η_ℓ);  send Δy_i = y_i − x, Δc_i = c_i⁺ − c_i;  c_i ← c_i⁺   lines 12 to 14
    server   x ← x + (η_g / |S|) Σ_i Δy_i;  c ← c + (1 / N) Σ_i Δc_i                                  lines 16 and 17

Control variates of zero are FedAvg with equal weights: the first round is, and all rounds of a single client are.

Departures: every client is asked in every round, and S are those that answered. The term (c − c_i)·y of the loss has
the gradient c − c_i. Only trained parameters have control variates. Batch normalisation's statistics are averaged, and
its counters take the maximum. Option II supposes plain SGD: momentum, Adam, weight decay and clipping are refused.

A client's c_i lives in its memory and is 0 again after a crash. In a population it is in the client's checkpoint. The
server's c goes into its checkpoint. If an update does not reach the server, c lacks the change of that client's c_i.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

import edgebed
from edgebed.baselines import plugin

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Scaffold(edgebed.LocalTraining):
    """server_learning_rate η_g; learning_rate is η_ℓ, and K are the steps of `epochs` or `steps`."""

    server_learning_rate: float = edgebed.number(1.0, low=0, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer != "sgd" or self.momentum or self.weight_decay or self.gradient_clipping:
            raise ValueError(
                "optimizer: SCAFFOLD corrects plain SGD: leave out adam, momentum, weight_decay and gradient_clipping"
            )


def difference(a: edgebed.State, b: edgebed.State) -> edgebed.State:
    """a − b, of the entries of a."""
    return {name: each - b[name] for name, each in a.items()}


def renewed(
    x: edgebed.State, y: edgebed.State, c: edgebed.State, c_i: edgebed.State, rate: float
) -> tuple[edgebed.State, edgebed.State]:
    """c_i⁺ = c_i − c + (x − y_i) / (K η_ℓ), and Δc_i (lines 12 and 13). ``rate``: K η_ℓ."""
    new = {name: (c_i[name] - c[name] + (x[name] - y[name]) / rate).astype(c[name].dtype) for name in c}
    return new, difference(new, c_i)


def advanced(x: edgebed.State, states: Sequence[edgebed.State], rate: float, trained: Collection[str]) -> edgebed.State:
    """x + (η_g / |S|) Σ_i (y_i − x) of the trained entries, and the mean of the others (lines 16 and 17)."""
    mean = edgebed.weighted_mean(states, [1.0] * len(states))
    return mean | {name: (x[name] + rate * (mean[name] - x[name])).astype(x[name].dtype) for name in trained}


def controlled(c: edgebed.State, changes: Sequence[edgebed.State], clients: int) -> edgebed.State:
    """c + (1 / N) Σ_i Δc_i (lines 16 and 17)."""
    return {name: (c[name] + sum(each[name] for each in changes) / clients).astype(c[name].dtype) for name in c}


@dataclass(frozen=True)
class Correction:
    """(c − c_i)·y over the trained parameters, as a term of each mini-batch's loss: its gradient is c − c_i."""

    c: edgebed.State
    c_i: edgebed.State

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        import torch

        y = dict(model.named_parameters())
        return torch.stack(
            [torch.sum(each.to(y[name].device) * y[name]) for name, each in self._differences.items()]
        ).sum()

    @cached_property
    def _differences(self) -> dict[str, Tensor]:
        import torch

        return {name: torch.tensor(each) for name, each in difference(self.c, self.c_i).items()}


class Cloud(edgebed.Role):
    """Its model has the final accuracy on the global test set."""

    async def run(self) -> None:
        trained, p = self.learner.trained, self.params
        if self.restored is None:
            x: edgebed.State = self.learner.initial()
            c = {name: np.zeros_like(x[name]) for name in trained}
        else:
            x, c = (edgebed.parted(self.restored.tensors, part) for part in ("model", "control"))
        async for t in self.rounds():
            await self.publish(self.children, "model", edgebed.joined(model=x, control=c), owned=True, round=t)
            gathered = await self.gather("update", self.children, round=t)
            fitting = edgebed.fitting(self, gathered, edgebed.joined(model=x, control=c))
            updates = [each.tensors for each in edgebed.with_samples(self, fitting)]
            if updates:
                states = [edgebed.parted(each, "model") for each in updates]
                changes = [edgebed.parted(each, "control") for each in updates]
                x = await self.compute(advanced, x, states, p.server_learning_rate, trained, mode="other")
                c = await self.compute(controlled, c, changes, self.clients, mode="other")
            await edgebed.evaluate(self, x, t)
            await self.checkpoint(t, edgebed.joined(model=x, control=c))


class Client(edgebed.Role):
    """Corrects each of its steps by the difference of the control variates."""

    async def run(self) -> None:
        if self.restored is None:
            initial = self.learner.initial()
            c_i = {name: np.zeros_like(initial[name]) for name in self.learner.trained}
        else:
            c_i = self.restored.tensors
        while True:
            message = await self.receive("model", sender=self.parent)
            t = edgebed.round_of(message)
            x, c = (edgebed.parted(message.tensors, part) for part in ("model", "control"))
            result = await edgebed.train(self, x, t, self.params, Correction(c, c_i))
            y, rate = result.weights, max(result.steps, 1) * self.params.at(t).learning_rate
            c_i, change = await self.compute(renewed, x, y, c, c_i, rate, mode="other")
            self.report(round=t, scope="train", **result.metrics)
            await edgebed.evaluate(self, y, t)
            if not self.lasting:
                await self.checkpoint(t, c_i)
            update = edgebed.joined(model=y, control=change)
            await self.send(self.parent, "update", update, owned=True, round=t, samples=result.samples)


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "FedAvg; clients correct their drift by control variates"
PLUGIN = plugin("scaffold", Scaffold, SUMMARY, population=True)
