"""FedBuff. J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, "Federated Learning with Buffered
Asynchronous Aggregation", AISTATS 2022, arXiv 2106.06639, Algorithms 1 and 2.

w^t global model, Δ_i update of client i, τ_i its staleness, K size of the buffer, η_g server learning rate, s(·)
scaling by staleness.

    client   y_0 ← w^t;  y_q ← y_{q−1} − η_ℓ g_q(y_{q−1});  Δ_i ← y_0 − y_Q
    server   Δ̄ ← Δ̄ + s(τ_i) Δ_i for each update that comes;  with K of them: w^{t+1} ← w^t − (η_g / K) Δ̄,  Δ̄ ← 0

    s(τ) = 1 / √(1 + τ), or 1

A round of the run is one new version. A buffer of all clients, none of them stale, with η_g = 1 is FedAvg with
equal weights.

In a population the server samples clients up to a concurrency, ``topology.selected``, as in the paper: as soon as an
update is in the buffer, another client that is online gets the newest model. If it was the K-th, that is the new
version. Without a population all clients train all the time, which is a departure.

Departures: a client with an update in the buffer waits for the version that it becomes part of, or is not sampled
until then. So no version has two updates of one client. A buffer takes at most as many updates as there are
clients. Clients send batch normalisation's statistics as they are, and the next version has the mean of the buffer's:
steps added to one another would leave their range. Counters take the maximum.

The server waits for updates without a deadline: take K well below the number of clients if clients drop out. Lost
messages, and updates that are not finite, are as in FedAsync.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

import edgebed
from edgebed.baselines import fedasync, plugin


@dataclass(frozen=True, kw_only=True)
class FedBuff(edgebed.LocalTraining):
    """buffer K; server_learning_rate η_g; staleness: s(·) is `root`, 1 / √(1 + τ), or `constant`; evaluate_every:
    versions from one evaluation of the global model to the next."""

    buffer: int = edgebed.whole(10, low=1)
    server_learning_rate: float = edgebed.number(1.0, low=0, above=True)
    staleness: str = edgebed.word("root", "root", "constant")
    evaluate_every: int = edgebed.whole(1, low=1)


def scaling(tau: int, p: FedBuff) -> float:
    """s(τ) of an update with staleness τ."""
    if p.staleness == "root":
        return 1 / math.sqrt(1 + tau)
    return 1.0


def difference(
    before: edgebed.State,
    after: edgebed.State,
    trained: Collection[str],
) -> edgebed.State:
    """Δ = before − after of the trained entries. The others are as after the training."""
    result: edgebed.State = {}
    for name, values in after.items():
        if name in trained:
            result[name] = before[name] - values
        else:
            result[name] = values
    return result


def stepped(
    w: edgebed.State,
    updates: Sequence[edgebed.State],
    scales: Sequence[float],
    rate: float,
    trained: Collection[str],
) -> edgebed.State:
    """w − (η_g / K) Σ_i s(τ_i) Δ_i of the trained entries, and the mean of the others."""
    equal_weights = [1.0] * len(updates)
    result = edgebed.weighted_mean(updates, equal_weights)
    for name in trained:
        scaled = []
        for s, update in zip(scales, updates, strict=True):
            scaled.append(np.float64(s) * update[name])
        change = rate / len(updates) * sum(scaled)
        after = w[name] - change
        result[name] = after.astype(w[name].dtype)
    return result


class Cloud(fedasync.Server):
    """Collects K updates for each version."""

    async def make_version(self, t: int) -> None:
        buffer: dict[str, edgebed.Message] = {}
        size = min(self.params.buffer, self.clients)
        while len(buffer) < size:
            update = await self.next_update(t, waiting=buffer)
            buffer[update.sender] = update
            if len(buffer) < size:
                self.release([update.sender])
        updates = []
        states = []
        ages = []
        scales = []
        for client in sorted(buffer):
            update = buffer[client]
            tau = fedasync.age(update, t)
            updates.append(update)
            states.append(update.tensors)
            ages.append(tau)
            scales.append(scaling(tau, self.params))
        self.w = await self.compute(
            stepped,
            self.w,
            states,
            scales,
            self.params.server_learning_rate,
            self.learner.trained,
            mode="other",
        )
        await self.conclude(t, updates, ages)


class Client(fedasync.Worker):
    """Trains on its own data, and sends the difference."""

    def term(self, x: edgebed.State) -> None:
        return None

    def update(self, x: edgebed.State, trained: edgebed.State) -> edgebed.State:
        return difference(x, trained, self.learner.trained)


ROLES = {"cloud": Cloud, "edge": Client, "device": Client}
SUMMARY = "asynchronous: a buffer of K updates makes the next model"
PLUGIN = plugin("fedbuff", FedBuff, SUMMARY, population=True, asynchronous=True)
