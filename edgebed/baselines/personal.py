"""What the baselines with a model at each client have in common: in each round the cloud publishes what is common to
all, each client learns with it, and sends what it shares.

    cloud    common ← aggregate({shared_k}, common)
    client   kept_k ← learn(kept_k, common),  shared_k ← share(kept_k)

A client keeps its model, and what else an algorithm needs, from round to round. After a restart it continues from its
last checkpoint. Its accuracies travel with what it shares, and the cloud reports their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

import edgebed

Extra = Callable[[edgebed.Model, edgebed.MiniBatch], Tensor]


class Cloud(edgebed.Role):
    """Makes common knowledge of what clients share."""

    async def run(self) -> None:
        if self.restored:
            common = self.restored.tensors
        else:
            common = self.start()
        async for t in self.rounds():
            await self.issue(common, t)
            updates = await self.gather("shared", self.children, round=t)
            usable = self.usable(updates, common)
            if usable:
                common = await self.aggregate(usable, common, t)
            edgebed.report_mean(self, updates, t)
            await self.checkpoint(t, common)

    def start(self) -> edgebed.State:
        """What is common before the first round."""
        raise NotImplementedError

    async def issue(self, common: edgebed.State, t: int) -> None:
        """Publish what is common."""
        await self.publish(self.children, "common", common, owned=True, round=t)

    def usable(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
    ) -> list[edgebed.Message]:
        """The updates of clients with samples. Those that do not have the form are left out and reported."""
        fit = edgebed.fitting(self, updates, self.form(common))
        return edgebed.with_samples(self, fit)

    def form(self, common: edgebed.State) -> edgebed.State:
        """Arrays with the names, types and shapes of what each client shares."""
        return common

    async def aggregate(
        self,
        updates: Sequence[edgebed.Message],
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        """The next common knowledge, from the clients with samples that have answered: by default their mean."""
        return await edgebed.average(self, updates, common)


class Client(edgebed.Role):
    """Keeps a model of its own. Evaluates it on the global test set, and on its own if it has one."""

    async def run(self) -> None:
        learned = 0
        if self.restored:
            kept = self.restored.tensors
            learned = self.restored.round
        else:
            kept = self.start()
        while True:
            message = await self.receive("common", sender=self.parent)
            samples = self.learner.samples
            common = message.tensors
            t = edgebed.round_of(message)
            if t > learned and samples:
                kept = await self.learn(kept, common, t)
                learned = t
                await self.checkpoint(t, kept)
            shared: edgebed.State = {}
            if samples:
                shared = await self.share(kept, common, t)
            accuracies = await self.score(kept, common, t)
            await self.send(
                self.parent,
                "shared",
                shared,
                owned=True,
                round=t,
                samples=samples,
                **accuracies,
            )

    def start(self) -> edgebed.State:
        """What the client keeps before the first round: its model."""
        state: edgebed.State = self.learner.initial()
        return state

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        """What the client keeps after the round."""
        raise NotImplementedError

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        """What the client sends to the cloud."""
        raise NotImplementedError

    async def score(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> dict[str, float]:
        """Report the accuracies of the client's model, and return them by test set."""
        return await edgebed.evaluate(self, kept, t)

    async def train(
        self,
        w: edgebed.State,
        t: int,
        extra: Extra | None = None,
    ) -> edgebed.State:
        """Local training from `w`, with a term `extra` of each mini-batch's loss, and a report of its loss."""
        result = await edgebed.train(self, w, t, self.params, extra)
        self.report(round=t, scope="train", **result.metrics)
        return result.weights
