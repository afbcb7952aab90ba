"""LG-FedAvg. P. P. Liang, T. Liu, L. Ziyin, N. B. Allen, R. P. Auerbach, D. Brent, R. Salakhutdinov, L.-P. Morency,
"Think Locally, Act Globally: Federated Learning with Local and Global Representations", 2020, arXiv 2001.01523,
Algorithm 1.

θ_k^ℓ local layers of client k, which make its representation, θ^g global layers above them, n_k samples of client k.

    client   (θ_k^ℓ, θ_k^g) ← (θ_k^ℓ, θ^g), then local training of both, sends θ_k^g
    cloud    θ^g ← Σ_k (n_k / n) θ_k^g

Models may differ below the global layers. With all layers global it is FedAvg.

Departures: the local layers are trained by the task's loss only, without the paper's unsupervised or adversarial terms.
All clients take part in each round. Each client is evaluated with its own layers after its training; the paper tests a
new device's data with all local models together.
"""

from __future__ import annotations

from dataclasses import dataclass

import edgebed
from edgebed.baselines import personal, plugin
from edgebed.baselines.fedala import upper


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(edgebed.LocalTraining):
    """global_layers: the number of layers with weights, counted from the output, that are global."""

    global_layers: int = edgebed.whole(1, low=1)


def global_part(state: edgebed.State, layers: int) -> edgebed.State:
    """θ^g: the entries of the last `layers` layers."""
    names = upper(list(state), layers)
    return {name: state[name] for name in names}


def assembled(own: edgebed.State, shared: edgebed.State) -> edgebed.State:
    """(θ_k^ℓ, θ^g). Raises ValueError if the model has other layers."""
    for name, values in shared.items():
        fits = name in own and own[name].shape == values.shape
        if not fits:
            raise ValueError(
                f"a client's model has another {name} than the cloud's: lower global_layers, or give model.features"
            )
    return own | shared


class Cloud(personal.Cloud):
    """Averages the global layers."""

    def start(self) -> edgebed.State:
        w = self.learner.initial()
        return global_part(w, self.params.global_layers)


class Client(personal.Client):
    """Trains its own layers below the global ones."""

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        start = assembled(kept, common)
        return await self.train(start, t)

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return global_part(kept, self.params.global_layers)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "clients keep their lower layers, and the cloud averages the upper ones (LG-FedAvg)"
PLUGIN = plugin("lgfedavg", LGFedAvg, SUMMARY, personal=True, aligned=True)
