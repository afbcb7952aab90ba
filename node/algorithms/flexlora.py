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

Departures: the cloud keeps the factors of rank R. Their first r_k columns and rows are those of client k. Its model
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
    names = []
    for name in w:
        if name.endswith(UP):
            names.append(name.removesuffix(UP))
    return names


def cut(w: State, rank: int) -> State:
    """The adapters of a lower rank: the first columns of B and rows of A. B is scaled by r / R, so that s B stays."""
    state = dict(w)
    for layer in layers(w):
        up = w[layer + UP]
        down = w[layer + DOWN]
        scale = up.dtype.type(rank / len(down))
        columns = np.ascontiguousarray(up[:, :rank])
        state[layer + UP] = columns * scale
        state[layer + DOWN] = down[:rank]
    return state


def mean_product(
    states: Sequence[State],
    shares: Sequence[float],
    layer: str,
    alpha: float,
) -> Matrix:
    """W = Σ_k (n_k / n) s_k B_k A_k (d_out, d_in) of a layer, in double precision."""
    products = []
    for state, share in zip(states, shares, strict=True):
        a_k = state[layer + DOWN]
        b_k = state[layer + UP].astype(np.float64)
        r_k = len(a_k)
        scale = share * alpha / r_k
        products.append(scale * (b_k @ a_k))
    return np.asarray(sum(products))


def split(product: Matrix, rank: int, alpha: float) -> tuple[Matrix, Matrix]:
    """B = U[:, :r] Σ[:r] / s and A = Vᵀ[:r] of W = U Σ Vᵀ, s = α / r: s B A is the nearest matrix of rank r."""
    u, sigma, v = np.linalg.svd(product, full_matrices=False)
    b = u[:, :rank] * sigma[:rank]
    a = v[:rank]
    return b * (rank / alpha), a


def merged(
    w: State,
    states: Sequence[State],
    samples: Sequence[int],
    alpha: float,
) -> State:
    """The next global state, of the ranks of `w`, from states of any ranks."""
    others = [without_adapters(state, w) for state in states]
    mean = weighted_mean(others, samples)
    n = sum(samples)
    shares = [n_k / n for n_k in samples]
    for layer in layers(w):
        up = layer + UP
        down = layer + DOWN
        product = mean_product(states, shares, layer, alpha)
        rank = len(w[down])
        b, a = split(product, rank, alpha)
        form = w[up].dtype
        mean[up] = b.astype(form)
        form = w[down].dtype
        mean[down] = a.astype(form)
    return {name: mean[name] for name in w}


def without_adapters(state: State, w: State) -> State:
    """The entries of a state that are no adapters of `w`."""
    others = dict(state)
    for layer in layers(w):
        others.pop(layer + UP, None)
        others.pop(layer + DOWN, None)
    return others


def truncated(
    averaged: State,
    states: Sequence[State],
    samples: Sequence[int],
    alpha: float,
) -> float:
    """The share of ‖W‖², summed over the layers, that the rank of `averaged` cannot hold. `averaged` is `merged` of
    the other arguments: its product s B A has the norm of B scaled by s, since the rows of A are orthonormal."""
    n = sum(samples)
    shares = [n_k / n for n_k in samples]
    whole = 0.0
    kept = 0.0
    for layer in layers(averaged):
        product = mean_product(states, shares, layer, alpha)
        whole += float(np.sum(product**2))
        scale = alpha / len(averaged[layer + DOWN])
        b = scale * averaged[layer + UP].astype(np.float64)
        kept += float(np.sum(b**2))
    if not whole:
        return 0.0
    return max(0.0, 1 - kept / whole)


class Cloud(fedavg.Cloud):
    """Averages the products of its clients' adapters, and reports what their largest rank cannot hold."""

    def adapted(self, w: State, client: str) -> State:
        ranks = self.model_params["lora"]["ranks"]
        return cut(w, ranks[client])

    async def issue(self, clients: Sequence[str], w: State, t: int) -> None:
        adapted = {client: self.adapted(w, client) for client in clients}
        await self.publish_each("model", adapted, owned=True, round=t)

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        fit: list[Message] = []
        for update in updates:
            adapted = self.adapted(w, update.sender)
            fit.extend(fitting(self, [update], adapted))
        counted = with_samples(self, fit)
        if not counted:
            return w
        states = []
        samples = []
        for update in counted:
            states.append(update.tensors)
            samples.append(update.fields["samples"])
        operations = decompositions(w)
        alpha = self.model_params["lora"]["alpha"]
        averaged = await self.compute(
            merged,
            w,
            states,
            samples,
            alpha,
            samples=operations,
            mode="other",
        )
        lost = await self.compute(truncated, averaged, states, samples, alpha, mode="other")
        self.report(round=t, scope="average", truncated=lost)
        return averaged


def decompositions(w: State) -> int:
    """The multiply-adds of the singular value decompositions of all layers, roughly."""
    operations = 0
    for layer in layers(w):
        d_out = len(w[layer + UP])
        d_in = w[layer + DOWN].shape[1]
        operations += d_out * d_in * min(d_out, d_in)
    return operations


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": fedavg.Client,
    "device": fedavg.Client,
}
