"""FlexLoRA. J. Bai, D. Chen, B. Qian, L. Yao, Y. Li, "Federated Fine-tuning of Large Language Models under
Heterogeneous Tasks and Client Resources", NeurIPS 2024, arXiv 2402.11505, section 3.

B_k (d_out, r_k) and A_k (r_k, d_in) are the adapter of client k for a layer, r_k its rank, s_k = α / r_k the scale of
its output, n_k samples of client k, n their sum, R the largest rank.

    client   trains B_k and A_k as FedAvg's client trains its model
    cloud    W ← Σ_k (n_k / n) s_k B_k A_k
             U Σ Vᵀ ← SVD(W)
             B_k ← U[:, :r_k] Σ[:r_k] / s_k,  A_k ← Vᵀ[:r_k], sent to client k

The mean of products is not the product of means: even with one rank for all, results differ from those of FedAvg with
adapters. They are equal, up to the split into factors, if all clients have the same A_k.

Departures: the cloud keeps the factors of rank R, of which a client's are the first r_k columns and rows. Its model
with rank R has the final accuracy. Other entries of a state, such as running statistics, are averaged as by FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from node.algorithms import fedavg
from node.algorithms.common import fitting, with_samples
from node.learning.aggregation import State, weighted_mean
from node.messaging.wire import Message
from node.role import Role

Matrix = NDArray[np.float64]
UP, DOWN = ".up.weight", ".down.weight"  # of an adapter: B and A


def layers(w: State) -> list[str]:
    """The names of the layers with adapters."""
    return [name.removesuffix(UP) for name in w if name.endswith(UP)]


def cut(w: State, rank: int) -> State:
    """The adapters of a lower rank: the first columns of B and rows of A. B is scaled by r / R, so that s B stays."""
    made = dict(w)
    for layer in layers(w):
        up = w[layer + UP]
        down = w[layer + DOWN]
        made[layer + UP] = np.ascontiguousarray(up[:, :rank]) * up.dtype.type(rank / len(down))
        made[layer + DOWN] = down[:rank]
    return made


def mean_product(
    states: Sequence[State],
    shares: Sequence[float],
    layer: str,
    alpha: float,
) -> Matrix:
    """W = Σ_k (n_k / n) s_k B_k A_k (d_out, d_in) of a layer, in double precision."""
    products = [
        share * alpha / len(state[layer + DOWN]) * (state[layer + UP].astype(np.float64) @ state[layer + DOWN])
        for state, share in zip(states, shares, strict=True)
    ]
    return np.asarray(sum(products))


def split(product: Matrix, rank: int, alpha: float) -> tuple[Matrix, Matrix]:
    """B = U[:, :r] Σ[:r] / s and A = Vᵀ[:r] of W = U Σ Vᵀ, s = α / r: s B A is the nearest matrix of rank r."""
    u, sigma, v = np.linalg.svd(product, full_matrices=False)
    return u[:, :rank] * sigma[:rank] * (rank / alpha), v[:rank]


def merged(
    w: State,
    states: Sequence[State],
    samples: Sequence[int],
    alpha: float,
) -> State:
    """The next global state, of the ranks of `w`, from states of any ranks."""
    adapters = {layer + part for layer in layers(w) for part in (UP, DOWN)}
    others = [{name: each for name, each in state.items() if name not in adapters} for state in states]
    made = weighted_mean(others, samples)
    shares = [count / sum(samples) for count in samples]
    for layer in layers(w):
        parts = split(mean_product(states, shares, layer, alpha), len(w[layer + DOWN]), alpha)
        made |= {layer + name: part.astype(w[layer + name].dtype) for name, part in zip((UP, DOWN), parts, strict=True)}
    return {name: made[name] for name in w}


def truncated(
    made: State,
    states: Sequence[State],
    samples: Sequence[int],
    alpha: float,
) -> float:
    """The share of ‖W‖², summed over the layers, that the rank of `made` cannot hold, where `made` is `merged` of the
    other arguments: its product s B A has the norm of B scaled by s, since the rows of A are orthonormal."""
    shares = [count / sum(samples) for count in samples]
    whole = 0.0
    kept = 0.0
    for layer in layers(made):
        whole += float(np.sum(mean_product(states, shares, layer, alpha) ** 2))
        scale = alpha / len(made[layer + DOWN])
        kept += float(np.sum((scale * made[layer + UP].astype(np.float64)) ** 2))
    return max(0.0, 1 - kept / whole) if whole else 0.0


class Cloud(fedavg.Cloud):
    """Averages the products of its clients' adapters, and reports what their largest rank cannot hold."""

    def adapted(self, w: State, client: str) -> State:
        return cut(w, self.model_params["lora"]["ranks"][client])

    async def issue(self, clients: Sequence[str], w: State, t: int) -> None:
        await self.publish_each("model", {client: self.adapted(w, client) for client in clients}, owned=True, round=t)

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        fit = [each for update in updates for each in fitting(self, [update], self.adapted(w, update.sender))]
        holding = with_samples(self, fit)
        if not holding:
            return w
        states = [update.tensors for update in holding]
        samples = [update.fields["samples"] for update in holding]
        sides = ((len(w[layer + UP]), w[layer + DOWN].shape[1]) for layer in layers(w))
        numbers = sum(out * inside * min(out, inside) for out, inside in sides)  # of the decompositions
        alpha = self.model_params["lora"]["alpha"]
        made = await self.compute(merged, w, states, samples, alpha, samples=numbers, mode="other")
        lost = await self.compute(truncated, made, states, samples, alpha, mode="other")
        self.report(round=t, scope="average", truncated=lost)
        return made


ROLES: dict[str, type[Role]] = {"cloud": Cloud, "edge": fedavg.Client, "device": fedavg.Client}
