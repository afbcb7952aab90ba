"""HierFAVG. L. Liu, J. Zhang, S. H. Song, K. B. Letaief, "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020,
arXiv 1905.06641, Algorithm 1.

w_i device i's model, w^ℓ edge ℓ's model, w the cloud's, η learning rate, κ₁ mini-batch steps of a device between two
edge rounds, κ₂ edge rounds between two cloud rounds, |D_i| samples of device i, |D^ℓ| of the devices below edge ℓ.

    device   w_i ← w_i − η ∇F_i(w_i), κ₁ times
    edge     w^ℓ ← Σ_i |D_i| w_i / |D^ℓ|, κ₂ times
    cloud    w ← Σ_ℓ |D^ℓ| w^ℓ / |D|, as FedAvg's over the edges

κ₂ = 1 is the baseline that PHE-FL calls EdgeCloud, and FedAvg up to rounding. One edge is FedAvg with κ₂ times the
rounds.

Departures: |D^ℓ| and |D| count the samples of the devices that took part, summed over the edge rounds. The authors'
code counts all devices of an edge, sampled or not. Every device takes part in every edge round, unless `participation`
asks for fewer. Without κ₁ a device trains for `epochs` passes. Batch normalisation's running statistics are averaged
like weights; `statistics: left-out` reproduces the common mistake of averaging parameters only. A restarted edge
repeats its current cloud round.
"""

from __future__ import annotations

from node.algorithms.common import average_of_devices, evaluate, fitting, participants, round_of, train
from node.algorithms.fedavg import Cloud
from node.learning.aggregation import State
from node.learning.training import TrainResult
from node.role import Role


def edge_rounds(t: int, kappa2: int) -> range:
    """Numbers of the edge rounds in cloud round t. Each is unique in the run, so that late updates are recognised."""
    first = (t - 1) * kappa2 + 1
    last = t * kappa2
    return range(first, last + 1)


class Edge(Role):
    """Averages its devices that answer, κ₂ times between two models of the cloud.

    Its own model is evaluated on the edge's own test set before the cloud averages it with others. An edge that
    received nothing from its devices answers without a model, so that the cloud does not wait for it.
    """

    async def run(self) -> None:
        while True:
            model = await self.receive("model", sender=self.parent)
            t = round_of(model)
            w, samples = await self.aggregate(model.tensors, t)
            await evaluate(self, w, t)
            update = w if samples else None
            await self.send(
                self.parent,
                "update",
                update,
                owned=True,
                round=t,
                samples=samples,
            )

    async def aggregate(self, w: State, t: int) -> tuple[State, int]:
        """The edge's model after κ₂ edge rounds that start from `w`, and |D^ℓ|."""
        samples = 0
        for r in edge_rounds(t, self.params.edge_rounds):
            with self.in_round(t, edge_round=r):
                devices = participants(self, self.params.participation, r)
                await self.publish(devices, "model", w, owned=True, round=r)
                answers = await self.gather("update", devices, round=r)
                updates = fitting(self, answers, w)
                w = await average_of_devices(self, updates, w)
                for update in updates:
                    samples += update.fields["samples"]
        return w, samples


class Device(Role):
    """Trains on its own data."""

    async def run(self) -> None:
        while True:
            model = await self.receive("model", sender=self.parent)
            r = round_of(model)
            result = await self.train(model.tensors, r)
            t, further = divmod(r, self.params.edge_rounds)
            if not further:  # the last edge round of cloud round t
                self.report(round=t, scope="train", **result.metrics)
                await self.score(result.weights, t)
            await self.send(
                self.parent,
                "update",
                result.weights,
                owned=True,
                round=r,
                samples=result.samples,
            )

    async def train(self, w: State, r: int) -> TrainResult:
        return await train(self, w, r, self.params.of_device)

    async def score(self, w: State, t: int) -> None:
        await evaluate(self, w, t)


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Edge,
    "device": Device,
}
