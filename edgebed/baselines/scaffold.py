"""SCAFFOLD. S. P. Karimireddy, S. Kale, M. Mohri, S. Reddi, S. Stich, A. T. Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020, arXiv 1910.06378, Algorithm 1 with option II.

x server model, y_i model of client i, c and c_i their control variates, η_ℓ and η_g local and server learning rate, K
local steps, S the clients of a round, N all clients.

    client   y_i ← x;  y_i ← y_i − η_ℓ (g_i(y_i) − c_i + c), K times                                  lines 7 to 11
             c_i⁺ ← c_i − c + (x − y_i) / (K η_ℓ);  send Δy_i = y_i − x, Δc_i = c_i⁺ − c_i;  c_i ← c_i⁺   lines 12 to 14
    server   x ← x + (η_g / |S|) Σ_i Δy_i;  c ← c + (1 / N) Σ_i Δc_i                                  lines 16 and 17

With η_g = 1, control variates of zero are FedAvg with equal weights: the first round is, and all rounds of a single
client are.

Departures:
- A client sends y_i and c_i⁺. The server keeps c̃_i, the c_i⁺ of each client that it counted last, 0 at first, and
  takes their mean for c. Without a fault c̃_i = c_i. After an update that was lost, dropped or late, and after a crash,
  c is the mean of the c_i again as soon as the client is counted again. The paper's sum would stay wrong for good.
- The mean is over the clients that are present when the round starts. The control variate of a client that is away is
  a gradient at a model of the past: in c it would pull the others away from their minimum, if the client stays away for
  good. It counts again when the client is back. In a population c is the mean over all clients, present or not.
- Every client takes part in every round, and S are those that answered. N are the clients of the mean but for those
  that answer that they have no samples.
- The term (c − c_i)·y of the loss has the gradient c − c_i. Only trained parameters have control variates. Batch
  normalisation's statistics are averaged, and its counters take the maximum.
- Option II supposes plain SGD: momentum, Adam, weight decay and clipping are refused.

A client's c_i is in its checkpoint, together with that from before the round: a client that gets the model of a round
again repeats its answer. x and the c̃_i are in the server's checkpoint. The c̃_i take the memory of one control
variate for each client that was counted: 10,000 clients of a model with 10,000 parameters take 0.4 GB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
        plain_sgd = self.optimizer == "sgd" and not self.momentum
        if not plain_sgd or self.weight_decay or self.gradient_clipping:
            raise ValueError(
                "optimizer: SCAFFOLD corrects plain SGD: leave out adam, momentum, weight_decay and gradient_clipping"
            )


def zeros(x: edgebed.State, names: Iterable[str]) -> edgebed.State:
    """A control variate of zero for these entries of x."""
    control: edgebed.State = {}
    for name in names:
        control[name] = np.zeros_like(x[name])
    return control


def renewed(
    x: edgebed.State,
    y: edgebed.State,
    c: edgebed.State,
    c_i: edgebed.State,
    rate: float,
) -> edgebed.State:
    """c_i⁺ = c_i − c + (x − y_i) / (K η_ℓ) (line 12). ``rate``: K η_ℓ."""
    c_plus: edgebed.State = {}
    for name in c:
        mean_step = (x[name] - y[name]) / rate
        values = c_i[name] - c[name] + mean_step
        c_plus[name] = values.astype(c[name].dtype)
    return c_plus


def advanced(
    x: edgebed.State,
    states: Sequence[edgebed.State],
    rate: float,
    trained: Collection[str],
) -> edgebed.State:
    """x + (η_g / |S|) Σ_i (y_i − x) of the trained entries, and the mean of the others (lines 16 and 17)."""
    equal_weights = [1.0] * len(states)
    result = edgebed.weighted_mean(states, equal_weights)
    for name in trained:
        before = x[name]
        after = before + rate * (result[name] - before)
        result[name] = after.astype(before.dtype)
    return result


def controlled(
    counted: Sequence[edgebed.State],
    clients: int,
    form: edgebed.State,
) -> edgebed.State:
    """c = (1 / N) Σ_i c̃_i, which is the sum of all changes Δc_i / N (line 17). It has the shapes of `form`. The control
    variates of clients that were not counted are 0."""
    c: edgebed.State = {}
    for name, values in form.items():
        total = np.zeros(values.shape, np.float64)
        for c_i in counted:
            total += c_i[name]
        mean = total / max(clients, 1)
        c[name] = mean.astype(values.dtype)
    return c


@dataclass(frozen=True)
class Correction:
    """(c − c_i)·y over the trained parameters, as a term of each mini-batch's loss: its gradient is c − c_i."""

    c: edgebed.State
    c_i: edgebed.State

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        import torch

        y = dict(model.named_parameters())
        products = []
        for name, difference in self._differences.items():
            values = y[name]
            product = difference.to(values.device) * values
            products.append(torch.sum(product))
        return torch.stack(products).sum()

    @cached_property
    def _differences(self) -> dict[str, Tensor]:
        import torch

        differences = {}
        for name, values in self.c.items():
            difference = values - self.c_i[name]
            differences[name] = torch.tensor(difference)
        return differences


class Cloud(edgebed.Role):
    """Its model has the final accuracy on the global test set."""

    async def run(self) -> None:
        trained = self.learner.trained
        p = self.params
        x = self.start()
        zero = zeros(x, trained)
        form = edgebed.joined(model=x, control=zero)
        async for t in self.rounds():
            counted, clients = self.members()
            c = await self.compute(controlled, counted, clients, zero, mode="other")
            sent = edgebed.joined(model=x, control=c)
            await self.publish(self.children, "model", sent, owned=True, round=t)
            gathered = await self.gather("update", self.children, round=t)
            fitting = edgebed.fitting(self, gathered, form)
            for update in fitting:
                if not update.fields["samples"]:
                    self.without_samples.add(update.sender)
            updates = edgebed.with_samples(self, fitting)
            if updates:
                states = []
                for update in updates:
                    states.append(edgebed.parted(update.tensors, "model"))
                x = await self.compute(
                    advanced,
                    x,
                    states,
                    p.server_learning_rate,
                    trained,
                    mode="other",
                )
            for update in updates:
                c_i = edgebed.parted(update.tensors, "control")
                self.counted[update.sender] = c_i
            await edgebed.evaluate(self, x, t)
            await self.keep(t, x)

    def start(self) -> edgebed.State:
        """x before the first round, or as it was kept."""
        self.counted: dict[str, edgebed.State] = {}  # c̃_i of each client
        self.without_samples: set[str] = set()
        if self.restored is None:
            initial: edgebed.State = self.learner.initial()
            return initial
        x = edgebed.parted(self.restored.tensors, "model")
        stacked = edgebed.parted(self.restored.tensors, "counted")
        fields = self.restored.fields
        for row, client in enumerate(fields["counted"]):
            c_i = {name: values[row] for name, values in stacked.items()}
            self.counted[client] = c_i
        self.without_samples = set(fields["without_samples"])
        return x

    def members(self) -> tuple[list[edgebed.State], int]:
        """The c̃_i that make c in the round that starts, in the order of names, and N."""
        if self.selector is not None:
            counted = [self.counted[client] for client in sorted(self.counted)]
            n = self.clients - len(self.without_samples)
            return counted, n
        online = self.present & set(self.children)
        members = online - self.without_samples
        known = sorted(members & self.counted.keys())
        counted = [self.counted[client] for client in known]
        return counted, len(members)

    async def keep(self, t: int, x: edgebed.State) -> None:
        """Write the checkpoint. The c̃_i of all clients are stacked: a file holds many numbers, but few names."""
        clients = list(self.counted)
        stacked = {}
        if clients:
            for name in self.counted[clients[0]]:
                of_clients = [self.counted[client][name] for client in clients]
                stacked[name] = np.stack(of_clients)
        state = edgebed.joined(model=x, counted=stacked)
        without_samples = sorted(self.without_samples)
        await self.checkpoint(t, state, counted=clients, without_samples=without_samples)


class Client(edgebed.Role):
    """Corrects each of its steps by the difference of the control variates."""

    async def run(self) -> None:
        before, c_i, answered = self.start()
        while True:
            message = await self.receive("model", sender=self.parent)
            t = edgebed.round_of(message)
            if t > answered:
                before = c_i
                answered = t
            x = edgebed.parted(message.tensors, "model")
            c = edgebed.parted(message.tensors, "control")
            correction = Correction(c, before)
            result = await edgebed.train(self, x, t, self.params, correction)
            y = result.weights
            if result.steps:
                rate = result.steps * self.params.at(t).learning_rate
                c_i = await self.compute(
                    renewed,
                    x,
                    y,
                    c,
                    before,
                    rate,
                    mode="other",
                )
            self.report(round=t, scope="train", **result.metrics)
            await edgebed.evaluate(self, y, t)
            kept = edgebed.joined(before=before, control=c_i)
            await self.checkpoint(t, kept)
            update = edgebed.joined(model=y, control=c_i)
            await self.send(
                self.parent,
                "update",
                update,
                owned=True,
                round=t,
                samples=result.samples,
            )

    def start(self) -> tuple[edgebed.State, edgebed.State, int]:
        """c_i before and after the round that was answered last, and that round."""
        if self.restored is None:
            x = self.learner.initial()
            none = zeros(x, self.learner.trained)
            return none, none, 0
        before = edgebed.parted(self.restored.tensors, "before")
        c_i = edgebed.parted(self.restored.tensors, "control")
        return before, c_i, self.restored.round


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "FedAvg; clients correct their drift by control variates"
PLUGIN = plugin("scaffold", Scaffold, SUMMARY, population=True)
