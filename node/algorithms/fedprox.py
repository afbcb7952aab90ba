"""FedProx. T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020, arXiv 1812.06127, Algorithm 2 and equation 2.

w^t global model of round t, F_k loss on client k's data, μ weight of the proximal term, n_k samples of client k.

    client   w_k ≈ argmin_w  h_k(w; w^t) = F_k(w) + (μ / 2) ‖w − w^t‖²
    cloud    w^{t+1} ← Σ_k (n_k / n) w_k, as FedAvg's

Clients are devices below the cloud, or edges that hold data themselves. μ = 0 is FedAvg, to the last bit.

Departures: the inexact minimum is E epochs (or `steps`) of mini-batch SGD, not a γ-inexact solution. Clients are drawn
evenly, and all by default, with the weight n_k. The paper samples clients in proportion to n_k and averages evenly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from node.algorithms import fedavg
from node.algorithms.common import train
from node.learning.aggregation import State
from node.learning.devices import Constants
from node.learning.models import Model
from node.learning.training import MiniBatch, TrainResult
from node.role import Role


@dataclass(frozen=True)
class ProximalTerm:
    """(μ / 2) ‖w − w^t‖² over the trained parameters, as a term of each mini-batch's loss."""

    w_t: State
    mu: float

    def __call__(self, model: Model, batch: MiniBatch) -> Tensor:
        w_t = self._anchors.on(batch.x.device)
        return self.of_weights(model, w_t)

    def of_weights(self, model: Model, arrays: Mapping[str, Tensor]) -> Tensor:
        """The term with w^t in `arrays`, as clients that train together need it."""
        distances = []
        for name, w in model.named_parameters():
            if name in arrays:
                difference = w - arrays[name]
                distances.append(torch.sum(difference**2))
        return self.mu / 2 * torch.stack(distances).sum()

    @property
    def arrays(self) -> State:
        return self.w_t

    @property
    def form(self) -> float:
        return self.mu

    @cached_property
    def _anchors(self) -> Constants:
        return Constants(self.w_t)


class Client(fedavg.Client):
    """Trains near the global model."""

    async def train(self, w: State, t: int) -> TrainResult:
        mu = self.params.mu
        if not mu:
            return await train(self, w, t, self.params)
        proximal = ProximalTerm(w, mu)
        return await train(self, w, t, self.params, proximal)


ROLES: dict[str, type[Role]] = {
    "cloud": fedavg.Cloud,
    "edge": Client,
    "device": Client,
}
