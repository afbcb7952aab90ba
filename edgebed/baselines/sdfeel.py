"""SD-FEEL. Y. Sun, J. Shao, Y. Mao, J. H. Wang, J. Zhang, "Semi-Decentralized Federated Edge Learning with Data and
Device Heterogeneity", IEEE Transactions on Network and Service Management 2023, arXiv 2112.10313, the synchronous
algorithm. There is no cloud: a cluster is an edge and its devices.

w_i model of device i, y_d that of edge d, m̂_i the share of device i in its cluster's samples, m̃_d the share of cluster
d in all samples, G the graph of the edges, τ₁ mini-batches between two aggregations in a cluster, τ₂ of these between
two aggregations of clusters, α times that edges exchange models in each of them.

    device   w_i ← w_i − η ∇F_i(w_i), τ₁ times
    edge     y_d ← Σ_i m̂_i w_i, τ₂ times                                                       intra-cluster aggregation
    edges    y_d ← Σ_j p_jd y_j over d and its neighbours in G, α times                        inter-cluster aggregation
             P = I − 2 / (λ₁(L̃) + λ_{D−1}(L̃)) L̃,  L̃ = L Ω⁻¹,  Ω = diag(m̃_1, …, m̃_D)

L is the Laplacian of G, λ₁ the largest and λ_{D−1} the smallest but one of D eigenvalues. Columns of P sum to 1, and
P m̃ = m̃ keeps the mean of all clusters. Clusters of one size in a complete graph, or two of any size, have that mean
after one exchange: HierFAVG's with κ₂ = τ₂. One edge is FedAvg with τ₂ times the rounds.

Departures: m̂ and m̃ count the samples that took part in the round. Edges send one another their samples before they
exchange models, so that each computes P. Clusters that are away are not in the graph of that round. A model that does
not arrive counts as the edge's own. The paper's graph is given; here it is a ring in the order of names, or complete.
The paper evaluates one model, the mean over all clusters at the end; here each edge evaluates its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import edgebed


@dataclass(frozen=True, kw_only=True)
class Clusters(edgebed.LocalTraining):
    """intra τ₂; participation: the share of devices in each intra-cluster aggregation. τ₁ is `steps`, or without it
    `epochs` passes."""

    intra: int = edgebed.whole(2, low=1)
    participation: float = edgebed.number(1.0, low=0, above=True, high=1)

    @property
    def edge_rounds(self) -> int:
        return self.intra


@dataclass(frozen=True, kw_only=True)
class SDFEEL(Clusters):
    """inter α; graph of the edges."""

    inter: int = edgebed.whole(1, low=1)
    graph: str = edgebed.word("ring", "ring", "complete")


def adjacency(clusters: int, graph: str) -> NDArray[np.float64]:
    """Which clusters are neighbours: D x D, ones and zeros."""
    identity = np.eye(clusters)
    if graph == "complete":
        return np.ones((clusters, clusters)) - identity
    next_one = np.roll(identity, 1, axis=1)
    both_sides = np.clip(next_one + next_one.T, 0, 1)
    ring: NDArray[np.float64] = both_sides * (1 - identity)
    return ring


def mixing(
    neighbours: NDArray[np.float64],
    sizes: Sequence[float],
) -> NDArray[np.float64]:
    """P of clusters with these numbers of samples, D x D. L̃ has the eigenvalues of the symmetric Ω^-½ L Ω^-½."""
    clusters = len(sizes)
    if clusters == 1:
        return np.eye(1)
    omega = np.asarray(sizes, np.float64) / sum(sizes)
    degrees = np.diag(neighbours.sum(axis=0))
    laplacian = degrees - neighbours
    geometric_means = np.sqrt(np.outer(omega, omega))
    symmetric = laplacian / geometric_means
    eigenvalues = np.linalg.eigvalsh(symmetric)  # ascending, the first is 0
    scale = 2 / (eigenvalues[-1] + eigenvalues[1])
    scaled = scale * laplacian / omega
    p: NDArray[np.float64] = np.eye(clusters) - scaled
    return p


def mixed(
    y: edgebed.State,
    others: Sequence[edgebed.State],
    weights: Sequence[float],
) -> edgebed.State:
    """y + Σ_j p_j (y_j − y). Weights may be negative, which a mean does not allow. Integers are rounded."""
    result: edgebed.State = {}
    for name, own in y.items():
        changes = []
        for p_j, y_j in zip(weights, others, strict=True):
            difference = y_j[name].astype(np.float64) - own
            changes.append(p_j * difference)
        exact = own + sum(changes, 0.0)
        if own.dtype.kind != "f":
            exact = np.rint(exact)
        result[name] = np.asarray(exact, own.dtype)
    return result


def shares(
    name: str,
    sizes: Mapping[str, int],
    graph: str,
) -> dict[str, float]:
    """The column of P of one cluster: p_jd by neighbour, of the clusters with samples."""
    members = []
    for cluster in sorted(sizes):
        if sizes[cluster]:
            members.append(cluster)
    if name not in members:
        return {}
    neighbours = adjacency(len(members), graph)
    d = members.index(name)
    samples_of_members = [sizes[cluster] for cluster in members]
    p = mixing(neighbours, samples_of_members)
    column = {}
    for j, cluster in enumerate(members):
        if neighbours[j, d]:
            column[cluster] = float(p[j, d])
    return column


class Edge(edgebed.Role):
    """Aggregates its devices τ₂ times, then exchanges models with its neighbours α times. Its model is evaluated after
    that."""

    async def run(self) -> None:
        if self.restored:
            w = self.restored.tensors
        else:
            w = self.learner.initial()
        async for t in self.rounds():
            w, samples = await self.aggregate(w, t)
            sizes = await self.sizes(t, samples)
            column = shares(self.name, sizes, self.params.graph)
            if column:
                for hop in range(self.params.inter):
                    w = await self.exchange(w, t, hop, column)
            await edgebed.evaluate(self, w, t)
            await self.checkpoint(t, w)

    async def aggregate(self, w: edgebed.State, t: int) -> tuple[edgebed.State, int]:
        """The edge's model after τ₂ intra-cluster aggregations, and the samples that took part in them."""
        p = self.params
        samples = 0
        for r in intra_rounds(t, p.intra):
            with self.in_round(t, edge_round=r):
                devices = edgebed.participants(self, p.participation, r)
                await self.publish(devices, "model", w, owned=True, round=r)
                answers = await self.gather("update", devices, round=r)
                updates = edgebed.fitting(self, answers, w)
                w = await edgebed.average(self, updates, w)
                for update in updates:
                    samples += update.fields["samples"]
        return w, samples

    async def sizes(self, t: int, samples: int) -> dict[str, int]:
        """The samples of this cluster and of those that answer. Others may need a deadline for each aggregation."""
        neighbours = self.neighbours
        await self.send(neighbours, "size", round=t, samples=samples)
        patience = (self.params.intra + 1) * self.gathering.deadline
        answers = await self.gather(
            "size",
            neighbours,
            round=t,
            quorum=0,
            deadline=patience,
        )
        sizes = {self.name: samples}
        for answer in answers:
            sizes[answer.sender] = answer.fields["samples"]
        return sizes

    async def exchange(
        self,
        w: edgebed.State,
        t: int,
        hop: int,
        column: Mapping[str, float],
    ) -> edgebed.State:
        """One exchange of models with the neighbours in the graph."""
        kind = f"cluster-{hop}"
        neighbours = list(column)
        await self.send(neighbours, kind, w, round=t, samples=1)
        gathered = await self.gather(kind, neighbours, round=t, quorum=0)
        states = []
        weights = []
        for answer in edgebed.fitting(self, gathered, w):
            states.append(answer.tensors)
            weights.append(column[answer.sender])
        return await self.compute(mixed, w, states, weights, mode="other")


def intra_rounds(t: int, intra: int) -> range:
    """The numbers of the intra-cluster aggregations in round t."""
    first = (t - 1) * intra + 1
    last = t * intra
    return range(first, last + 1)


class Device(edgebed.Role):
    """Trains on its own data."""

    async def run(self) -> None:
        while True:
            model = await self.receive("model", sender=self.parent)
            r = edgebed.round_of(model)
            w, losses = await self.learn(model.tensors, r)
            t, further = divmod(r, self.params.intra)
            if not further:  # the last intra-cluster aggregation of round t
                self.report(round=t, scope="train", **losses)
                await self.score(w, r, t)
            await self.send(
                self.parent,
                "update",
                w,
                owned=True,
                round=r,
                samples=self.learner.samples,
            )

    async def learn(
        self,
        w: edgebed.State,
        r: int,
    ) -> tuple[edgebed.State, dict[str, float]]:
        """The model after local training from `w`, and the metrics of the training."""
        result = await edgebed.train(self, w, r, self.params)
        return result.weights, result.metrics

    async def score(self, w: edgebed.State, r: int, t: int) -> None:
        """Report the accuracy of the device's model."""
        await edgebed.evaluate(self, w, t)


ROLES = {"edge": Edge, "device": Device}
PLUGIN = edgebed.Plugin(
    algorithms=[
        edgebed.Algorithm(
            "sdfeel",
            params=SDFEEL,
            summary="edges average their devices, and mix their models with those of neighbours, without a cloud",
            cloud="none",
            edges="required",
            devices="required",
            leader="edge",
            meshed=True,
            levels=True,
        )
    ]
)
