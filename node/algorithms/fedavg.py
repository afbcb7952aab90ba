"""FedAvg. H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, arXiv 1602.05629, Algorithm 1.

w global model, η learning rate, B batch size, E local epochs, C share of the clients in a round, n_k samples of client
k, n their sum.

    cloud    selects a share C of the clients that are available
    client   w_k ← w, then w_k ← w_k − η ∇ℓ(w_k; b) for each mini-batch b, E times over its data
    cloud    w ← Σ_k (n_k / n) w_k

Clients are devices below the cloud, or edges that hold data themselves.

Departures: n is summed over the clients that answered. C is `participation`, 1 by default.
Batch normalisation's running statistics are averaged like weights; its counters take the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.algorithms.common import average, evaluate, participants, round_of, train
from node.learning.aggregation import State
from node.learning.training import TrainResult
from node.messaging.wire import Message
from node.role import Role


class Cloud(Role):
    """Averages its clients. Its model has the final accuracy on the global test set."""

    async def run(self) -> None:
        if self.restored:
            w = self.restored.tensors
        else:
            w = self.learner.initial()
        async for t in self.rounds():
            clients = self.selected(t)
            await self.issue(clients, w, t)
            updates = await self.gather("update", clients, round=t)
            w = await self.aggregate(updates, w, t)
            await self.score(w, t)
            await self.checkpoint(t, w)

    def selected(self, t: int) -> Sequence[str]:
        """The clients of round t: all, those that are away too, or a share of those that are available."""
        share = getattr(self.params, "participation", 1.0)  # the parameters of an algorithm built on this one lack it
        if share == 1:
            return self.children
        available = [child for child in self.children if child in self.present]
        return participants(self, share, t, available or self.children)

    async def issue(self, clients: Sequence[str], w: State, t: int) -> None:
        """Send the global model to the clients of round t."""
        await self.publish(clients, "model", w, owned=True, round=t)

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        """The next global model. `w` itself if no client that answered has samples."""
        return await average(self, updates, w)

    async def score(self, w: State, t: int) -> None:
        await evaluate(self, w, t)


class Client(Role):
    """Trains on its own data. Evaluates the trained model on its own test set, if it has one."""

    async def run(self) -> None:
        while True:
            model = await self.receive("model", sender=self.parent)
            await self.answer(model.tensors, round_of(model))

    async def answer(self, w: State, t: int) -> None:
        """Train from `w`, and send the result to the parent."""
        result = await self.train(w, t)
        self.report(round=t, scope="train", **result.metrics)
        await self.score(result.weights, t)
        update = self.update(result, t)
        fields = self.update_fields(result)
        await self.send(
            self.parent,
            "update",
            update,
            owned=True,
            round=t,
            **fields,
        )

    async def train(self, w: State, t: int) -> TrainResult:
        return await train(self, w, t, self.params)

    async def score(self, w: State, t: int) -> None:
        await evaluate(self, w, t)

    def update(self, result: TrainResult, t: int) -> State:
        """The tensors to send to the cloud."""
        return result.weights

    def update_fields(self, result: TrainResult) -> dict[str, int]:
        """The fields of an update that the cloud needs to weight it."""
        return {"samples": result.samples}


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
