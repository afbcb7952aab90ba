"""Server optimizers: FedAvgM, FedAdam, FedYogi. S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S.
Kumar, H. B. McMahan, "Adaptive Federated Optimization", ICLR 2021, arXiv 2003.00295, Algorithms 1 and 2.

x_t server model, x_i^t model of client i after local training, n_i its samples, n those of all that answered, η server
learning rate, β₁ and β₂ decay of the moments m and v, τ adaptivity. Operations are entry by entry.

    client   x_i^t ← x_t, then local training;  send x_i^t
    cloud    Δ_t ← Σ_i (n_i / n) (x_i^t − x_t)
             FedAvgM           m_t ← β₁ m_{t−1} + Δ_t;  x_{t+1} ← x_t + η m_t
             FedAdam, FedYogi  m_t ← β₁ m_{t−1} + (1 − β₁) Δ_t;  x_{t+1} ← x_t + η m_t / (√v_t + τ)
             FedAdam           v_t ← β₂ v_{t−1} + (1 − β₂) Δ_t²
             FedYogi           v_t ← v_{t−1} − (1 − β₂) Δ_t² sign(v_{t−1} − Δ_t²)
    first    m = 0, v = τ²

Nothing corrects the bias of the first moments. FedAvgM with β₁ = 0 and η = 1 is FedAvg, up to rounding.

Departures: Δ_t is weighted by samples, as FedAvg's mean. Every client takes part in every round, but in a population. A
round without an update changes neither moments nor model. Only trained parameters have moments: batch normalisation's
statistics are averaged, and its counters take the maximum. FedAvgM's m is a sum, as in Hsu et al. 2019 (arXiv
1909.06335); the paper does not print it.

x, m and v are in the server's checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import edgebed


@dataclass(frozen=True, kw_only=True)
class FedAvgM(edgebed.LocalTraining):
    """server_learning_rate η; server_momentum β₁."""

    moments: ClassVar[tuple[str, ...]] = ("m",)

    server_learning_rate: float = edgebed.number(1.0, low=0, above=True)
    server_momentum: float = edgebed.number(0.9, low=0, high=1, below=True)


@dataclass(frozen=True, kw_only=True)
class FedAdam(edgebed.LocalTraining):
    """server_learning_rate η; beta1 β₁; beta2 β₂; adaptivity τ."""

    moments: ClassVar[tuple[str, ...]] = ("m", "v")

    server_learning_rate: float = edgebed.number(0.01, low=0, above=True)
    beta1: float = edgebed.number(0.9, low=0, high=1, below=True)
    beta2: float = edgebed.number(0.99, low=0, high=1, below=True)
    adaptivity: float = edgebed.number(1e-3, low=0, above=True)


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedAdam):
    """server_learning_rate η; beta1 β₁; beta2 β₂; adaptivity τ."""


Params = FedAvgM | FedAdam
Values = NDArray[np.float64]
Moments = dict[str, edgebed.State]
"""The moments m and v by their names."""


def first_moments(x: edgebed.State, trained: Collection[str], p: Params) -> Moments:
    """m = 0 and v = τ² of the trained entries."""
    moments: Moments = {"m": {}}
    for name in trained:
        moments["m"][name] = np.zeros_like(x[name])
    if isinstance(p, FedAdam):
        v_0 = p.adaptivity**2
        moments["v"] = {}
        for name in trained:
            moments["v"][name] = np.full_like(x[name], v_0)
    return moments


def stepped(
    x: edgebed.State,
    mean: edgebed.State,
    moments: Moments,
    p: Params,
    trained: Collection[str],
) -> tuple[edgebed.State, Moments]:
    """x_{t+1} and the moments, from the clients' mean model. Entries that are not trained are those of the mean."""
    result = dict(mean)
    after = {name: dict(moment) for name, moment in moments.items()}
    for name in trained:
        form = x[name].dtype
        x_t = x[name].astype(np.float64)
        m = moments["m"][name].astype(np.float64)
        delta = mean[name] - x_t
        if isinstance(p, FedAvgM):
            m = p.server_momentum * m + delta
            direction = m
        else:
            v = moments["v"][name].astype(np.float64)
            m = p.beta1 * m + (1 - p.beta1) * delta
            v = second_moment(v, delta**2, p)
            divisor = np.sqrt(v) + p.adaptivity
            direction = m / divisor
            after["v"][name] = v.astype(form)
        after["m"][name] = m.astype(form)
        x_next = x_t + p.server_learning_rate * direction
        result[name] = x_next.astype(form)
    return result, after


def second_moment(v: Values, square: Values, p: FedAdam) -> Values:
    """v_t from v_{t−1} and Δ_t²."""
    if isinstance(p, FedYogi):
        sign = np.sign(v - square)
        yogi: Values = v - (1 - p.beta2) * square * sign
        return yogi
    adam: Values = p.beta2 * v + (1 - p.beta2) * square
    return adam


class Cloud(edgebed.Role):
    """Its model has the final accuracy on the global test set."""

    async def run(self) -> None:
        trained = self.learner.trained
        x, moments = self.start()
        async for t in self.rounds():
            await self.publish(self.children, "model", x, owned=True, round=t)
            gathered = await self.gather("update", self.children, round=t)
            fitting = edgebed.fitting(self, gathered, x)
            updates = edgebed.with_samples(self, fitting)
            if updates:
                mean = await edgebed.average(self, updates, x)
                x, moments = await self.compute(
                    stepped,
                    x,
                    mean,
                    moments,
                    self.params,
                    trained,
                    mode="other",
                )
            await edgebed.evaluate(self, x, t)
            kept = edgebed.joined(model=x, **moments)
            await self.checkpoint(t, kept)

    def start(self) -> tuple[edgebed.State, Moments]:
        """The model and its moments before the first round, or as they were kept."""
        x: edgebed.State
        if self.restored is None:
            x = self.learner.initial()
            return x, first_moments(x, self.learner.trained, self.params)
        tensors = self.restored.tensors
        x = edgebed.parted(tensors, "model")
        moments = {}
        for name in self.params.moments:
            moments[name] = edgebed.parted(tensors, name)
        return x, moments


CLIENT = edgebed.algorithm("fedavg").roles["device"]
ROLES = {"cloud": Cloud, "edge": CLIENT, "device": CLIENT}
_server_optimizer = partial(
    edgebed.Algorithm,
    edges="optional",
    devices="optional",
    flat=True,
    population=True,
)
PLUGIN = edgebed.Plugin(
    algorithms=[
        _server_optimizer("fedavgm", params=FedAvgM, summary="FedAvg with momentum at the server"),
        _server_optimizer("fedadam", params=FedAdam, summary="FedAvg with Adam at the server"),
        _server_optimizer("fedyogi", params=FedYogi, summary="FedAvg with Yogi at the server"),
    ]
)
