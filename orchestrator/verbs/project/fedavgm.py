"""FedAvg with server momentum. T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification", 2019, arXiv 1909.06335.

    cloud    Δ ← w − Σ_k (n_k / n) w_k,  v ← β v + Δ,  w ← w − v
"""

from dataclasses import dataclass

import edgebed


@dataclass(frozen=True, kw_only=True)
class FedAvgM(edgebed.LocalTraining):
    """server_momentum β."""

    server_momentum: float = edgebed.number(0.9, low=0, high=1, below=True)


def moved(w, v, mean, beta):
    """The next model and its velocity."""
    v = {name: beta * v[name] + w[name] - mean[name] for name in v}
    return {name: w[name] - v[name] if name in v else mean[name] for name in w}, v


class Cloud(edgebed.Role):
    async def run(self):
        w = self.learner.initial()
        v = {name: 0 * values for name, values in w.items() if values.dtype.kind == "f"}
        async for t in self.rounds():
            await self.publish(self.children, "model", w, round=t)
            updates = await self.gather("update", self.children, round=t)
            mean = await edgebed.average(self, updates, w)
            w, v = await self.compute(moved, w, v, mean, self.params.server_momentum)
            await edgebed.evaluate(self, w, t)


class Device(edgebed.Role):
    async def run(self):
        while True:
            model = await self.receive("model", sender=self.parent)
            result = await edgebed.train(self, model.tensors, model.round, self.params)
            await edgebed.evaluate(self, result.weights, model.round)
            await self.send(self.parent, "update", result.weights, round=model.round, samples=result.samples)


ROLES = {"cloud": Cloud, "device": Device}
PLUGIN = edgebed.Plugin(
    algorithms=[edgebed.Algorithm("fedavgm", params=FedAvgM, summary="FedAvg with server momentum", flat=True)]
)
