"""OnlyEdge, the baseline of PHE-FL (its equation 10 and figure 2): each edge runs FedAvg with its own devices.

EAM_k the model of edge k, E_k its devices, DM_c the model of device c, |D_c| its samples, |D_k| those of the edge.

    device   DM_c ← EAM_k, then local training
    edge     EAM_k ← Σ_{c ∈ E_k} (|D_c| / |D_k|) DM_c

The cloud sends the first model and takes no further part. Without a cloud, or if it cannot be reached before the
deadline, edges start from the same seeded model.

Departures: `kappa2` edge rounds make one reported round, so that curves are comparable with HierFAVG's. |D_k| counts
the devices that answered. An edge reports to the cloud when it is done, in a message without a model.
"""

from __future__ import annotations

from node.algorithms import hierfavg
from node.algorithms.common import average, evaluate, train
from node.algorithms.hierfavg import edge_rounds
from node.learning.aggregation import State
from node.learning.training import TrainResult
from node.role import Role


class Cloud(Role):
    """Sends the first model and waits until all edges are done."""

    async def run(self) -> None:
        w = self.learner.initial()
        await self.publish(self.children, "model", w, owned=True, round=0)
        training = set(self.children)
        while training:
            done = await self.receive("done")
            training.discard(done.sender)


class Edge(Role):
    """Averages its own devices. Evaluates its model on every test set of the edge."""

    async def run(self) -> None:
        w = await self.first_model()
        async for t in self.rounds():
            for r in edge_rounds(t, self.params.kappa2):
                await self.publish(self.children, "model", w, owned=True, round=r)
                updates = await self.gather("update", self.children, round=r)
                w = await average(self, updates, w)
            await evaluate(self, w, t)
            await self.checkpoint(t, w)
        if self.parent is not None:
            await self.publish(self.parent, "done")

    async def first_model(self) -> State:
        w: State
        if self.restored is not None:
            w = self.restored.tensors
            return w
        if self.parent is not None:
            models = await self.gather("model", [self.parent], round=0, quorum=0)
            if models:
                w = models[0].tensors
                return w
        w = self.learner.initial()
        return w


class Device(hierfavg.Device):
    """Trains on its own data."""

    async def train(self, w: State, r: int) -> TrainResult:
        return await train(self, w, r, self.params)


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Edge,
    "device": Device,
}
