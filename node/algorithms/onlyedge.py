"""OnlyEdge, the baseline of PHE-FL (its equation 10 and figure 2): each edge runs FedAvg with its own devices.

EAM_k the model of edge k, E_k its devices, DM_c the model of device c, |D_c| its samples, |D_k| those of the edge.

    device   DM_c ← EAM_k, then local training
    edge     EAM_k ← Σ_{c ∈ E_k} (|D_c| / |D_k|) DM_c

The cloud gives the first model and is not met again; without a cloud, or where it cannot be reached before the
deadline, edges start from the same seeded model.

Departures: `kappa2` edge rounds make one reported round, so that curves line up with HierFAVG's; |D_k| counts the
devices that answered. An edge tells the cloud when it is done, in a message without a model.
"""

from __future__ import annotations

from node.algorithms.common import average, evaluate, round_of, train
from node.learning.aggregation import State
from node.role import Role


class Cloud(Role):
    """Gives the first model and waits until all edges are done."""

    async def run(self) -> None:
        await self.publish(self.children, "model", self.learner.initial(), round=0)
        training = set(self.children)
        while training:
            training.discard((await self.receive("done")).sender)


class Edge(Role):
    """Averages its own devices; its model is evaluated on every test set that the edge was given."""

    async def run(self) -> None:
        w = await self.first_model()
        async for t in self.rounds():
            for r in range((t - 1) * self.params.kappa2 + 1, t * self.params.kappa2 + 1):
                await self.publish(self.children, "model", w, round=r)
                updates = await self.gather("update", self.children, round=r)
                w = await average(self, updates, w)
            await evaluate(self, w, t)
            await self.checkpoint(t, w)
        if self.parent is not None:
            await self.publish(self.parent, "done")

    async def first_model(self) -> State:
        if self.restored is not None:
            return self.restored.tensors
        models = [] if self.parent is None else await self.gather("model", [self.parent], round=0, quorum=0)
        state: State = models[0].tensors if models else self.learner.initial()
        return state


class Device(Role):
    """Trains on its own data."""

    async def run(self) -> None:
        assert self.parent is not None
        while True:
            model = await self.receive("model", sender=self.parent)
            r = round_of(model)
            result = await train(self, model.tensors, r, self.params)
            t, more = divmod(r, self.params.kappa2)
            if not more:  # the last edge round of round t
                self.report(round=t, scope="train", loss=result.loss)
                await evaluate(self, result.weights, t)
            await self.send(self.parent, "update", result.weights, round=r, samples=result.samples)


ROLES: dict[str, type[Role]] = {"cloud": Cloud, "edge": Edge, "device": Device}
