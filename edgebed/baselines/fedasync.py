"""FedAsync. C. Xie, S. Koyejo, I. Gupta, "Asynchronous Federated Optimization", OPT 2020 (NeurIPS workshop), arXiv
1903.03934, Algorithm 1.

x_t global model after t updates, τ the version a worker started with, t − τ the staleness of its update, α mixing
weight, s(·) staleness function, γ learning rate, H local iterations, ρ weight of the proximal term.

    worker   x_{τ,h} ← x_{τ,h−1} − γ ∇ g(x_{τ,h−1}),  g(x) = f(x) + (ρ / 2) ‖x − x_τ‖²;  push (x_{τ,H}, τ)
    updater  receive (x_new, τ) from any worker;  α_t ← α s(t − τ);  x_t ← (1 − α_t) x_{t−1} + α_t x_new

    s(d) = 1 (constant);  (d + 1)^−a (polynomial);  1 if d ≤ b, else 1 / (a (d − b) + 1) (hinge)

A round of the run is one new version. α = 1, ρ = 0 and one worker are FedAvg with one client.

Departures: staleness is the number of versions made since the worker got its model, which is 0 for a worker that no
other one overtook. The paper counts the new version too. Its α is divided by two at fixed times; here α stays.

In a population the scheduler triggers workers at random, as in the paper: as soon as an update has been mixed, a client
that is online and does not train gets the newest model. Without a population the scheduler gives it to the worker that
sent the update, so all workers train all the time; that is one more departure.

The server waits for updates without a deadline. If all workers are gone, it waits until one comes back. A worker that
got no model for `gathering.deadline` after its update asks for one, `ASKS` times at most: update or model may be lost.

A worker with an update that is not finite gets no other model before there is a new version; of a population, another
client is triggered. If no worker is left that can send an update, the run ends with the reason.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import edgebed
from edgebed.baselines import plugin

if TYPE_CHECKING:
    from torch import Tensor

ASKS = 3  # times that a worker without a model asks for one
NAMED = 5  # workers that a message names


class DivergedError(RuntimeError):
    """No worker is left that can send a finite update."""


@dataclass(frozen=True, kw_only=True)
class FedAsync(edgebed.LocalTraining):
    """mixing α; staleness s(·): `constant`, `polynomial` with exponent a, or `hinge` with slope a behind b; proximal ρ;
    evaluate_every: versions from one evaluation of the global model to the next."""

    mixing: float = edgebed.number(0.6, low=0, above=True, high=1)
    staleness: str = edgebed.word("polynomial", "constant", "polynomial", "hinge")
    exponent: float = edgebed.number(0.5, low=0)
    slope: float = edgebed.number(10.0, low=0)
    behind: int = edgebed.whole(4, low=0)
    proximal: float = edgebed.number(0.005, low=0)
    evaluate_every: int = edgebed.whole(1, low=1)


def weight(d: int, p: FedAsync) -> float:
    """α_t of an update with staleness d."""
    alpha = p.mixing
    if p.staleness == "polynomial":
        return alpha / math.pow(d + 1, p.exponent)
    if p.staleness == "hinge" and d > p.behind:
        late = d - p.behind
        return alpha / (p.slope * late + 1)
    return alpha


def mixed(x: edgebed.State, new: edgebed.State, alpha: float) -> edgebed.State:
    """(1 − α_t) x_{t−1} + α_t x_new. Counters take the maximum."""
    return edgebed.weighted_mean([x, new], [1 - alpha, alpha])


@dataclass(frozen=True)
class Proximal:
    """(ρ / 2) ‖x − x_τ‖² over the trained parameters, as a term of each mini-batch's loss."""

    start: edgebed.State
    rho: float

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        import torch

        device = batch.x.device
        distances = []
        for name, x in model.named_parameters():
            if name in self._starts:
                difference = x - self._starts[name].to(device)
                distances.append(torch.sum(difference**2))
        return self.rho / 2 * torch.stack(distances).sum()

    @cached_property
    def _starts(self) -> dict[str, Tensor]:
        import torch

        starts = {}
        for name, values in self.start.items():
            starts[name] = torch.tensor(values)
        return starts


class Server(edgebed.Role):
    """What asynchronous servers have in common: the model of each worker, and the next update of any worker.

    The round of a model, and of the update that answers it, is the round in which the model was handed out. A worker
    asks for its first model by an update without a round, and for another one if none has come for long. A worker that
    comes back sends its last update again: it may have missed the answer. A client of a population asks for nothing. It
    gets the newest model when it is selected, and answers once.

    ``diverged``: the workers with an update that was not finite, on the last model that they were given.
    """

    async def run(self) -> None:
        self.w: edgebed.State
        self.used: dict[str, int] = {}
        self.handed_out: dict[str, int] = {}
        self.diverged: set[str] = set()
        self.waiting: Collection[str] = ()  # for the version that their update becomes part of
        self.version = 1  # the round that starts from self.w
        if self.restored:
            self.w = self.restored.tensors
            self.used.update(self.restored.fields["used"])
            self.version = self.restored.round + 1
        else:
            self.w = self.learner.initial()
        async with self.beside(self.fill_vacancies()):
            async for t in self.rounds():
                await self.make_version(t)

    async def make_version(self, t: int) -> None:
        """Make a model of the updates that come, and `conclude` the round."""
        raise NotImplementedError

    async def fill_vacancies(self) -> None:
        """Of a population: give the newest model, but not the last one, to a client for each place that is free."""
        while self.selector is not None:
            count = await self.selector.vacancy()
            if self.version > self.last_round:
                return
            clients = self.selector.select(count, self.version)
            await self.hand_out(clients, self.version)

    async def next_update(self, t: int, waiting: Collection[str] = ()) -> edgebed.Message:
        """The next update that was not used before. Workers that ask get the present model, unless they are waiting."""
        self.waiting = waiting
        self.check_hope()
        while True:
            update = await self.receive("update")
            worker = update.sender
            last_used = self.used.get(worker, 0)
            if update.round is not None and update.round > last_used:
                self.used[worker] = min(update.round, t)  # a server that lost rounds in a crash counts them again
                fit = edgebed.fitting(self, [update], self.w)
                if edgebed.with_samples(self, fit):
                    return update
                self.release([worker])
            elif worker not in waiting and not self.diverged_on(worker, t):
                await self.hand_out([worker], t)

    def diverged_on(self, worker: str, t: int) -> bool:
        """Whether the worker had this model and has diverged."""
        return worker in self.diverged and self.handed_out.get(worker) == t

    async def hand_out(self, workers: Sequence[str], t: int) -> None:
        """Send the present model, from which round t starts."""
        self.handed_out |= dict.fromkeys(workers, t)
        self.diverged.difference_update(workers)
        await self.send(workers, "model", self.w, owned=True, round=t)

    def left_out(self, peers: Iterable[str]) -> None:
        peers = list(peers)
        super().left_out(peers)
        self.diverged.update(peers)
        self.check_hope()

    def check_hope(self) -> None:
        """DivergedError if every worker has diverged, or waits for a version that needs the updates of others."""
        diverged = self.diverged
        if self.selector is not None:
            hopeless = len(diverged) >= self.clients
        else:
            without_update = diverged | set(self.waiting)
            hopeless = bool(diverged) and without_update >= set(self.children)
        if not hopeless:
            return
        names = sorted(diverged)
        listed = ", ".join(names[:NAMED])
        if len(names) > NAMED:
            listed += " …"
        raise DivergedError(
            f"no client can make version {self.version}: the updates of {listed} are not finite; "
            "lower algorithm.learning_rate"
        )

    def release(self, workers: Sequence[str]) -> None:
        """Of a population: let others take the places of these clients."""
        if self.selector is not None:
            self.selector.release(workers)
            for worker in workers:
                self.used.pop(worker, None)

    async def conclude(
        self,
        t: int,
        updates: Sequence[edgebed.Message],
        ages: Sequence[int],
    ) -> None:
        """Hand out version t to the workers with updates in it, unless they have a newer model than they answered; of a
        population, to other clients. Report staleness, evaluate, and keep the version."""
        self.version = t + 1
        workers = [update.sender for update in updates]
        if self.selector is None:
            free = self.without_newer_model(updates)
            await self.hand_out(free, t + 1)
        else:
            self.diverged.clear()  # any client may be triggered with the new version
            self.selector.counted(updates, t)
            self.release(workers)
        self.report(
            round=t,
            scope="updates",
            staleness=sum(ages) / len(ages),
            staleness_highest=max(ages),
        )
        age_of = dict(zip(workers, ages, strict=True))
        self.note("updates", round=t, staleness=age_of)
        if t % self.params.evaluate_every == 0:
            await edgebed.evaluate(self, self.w, t)
        await self.checkpoint(t, self.w, used=self.used)

    def without_newer_model(self, updates: Sequence[edgebed.Message]) -> list[str]:
        """The workers that have no newer model than the one that they answered."""
        workers = []
        for update in updates:
            newest = self.handed_out.get(update.sender, 0)
            if newest <= edgebed.round_of(update):
                workers.append(update.sender)
        return workers


def age(update: edgebed.Message, t: int) -> int:
    """The staleness in round t: the versions made since the model of this update was handed out."""
    versions = t - edgebed.round_of(update)
    return max(0, versions)


class Cloud(Server):
    """The updater. Its model has the final accuracy on the global test set."""

    async def make_version(self, t: int) -> None:
        update = await self.next_update(t)
        d = age(update, t)
        alpha_t = weight(d, self.params)
        self.w = await self.compute(
            mixed,
            self.w,
            update.tensors,
            alpha_t,
            mode="other",
        )
        await self.conclude(t, [update], [d])


class Worker(edgebed.Role):
    """Trains on its own data, again and again, from the newest model that the server handed out."""

    answered = 0  # the round of the model that was answered last

    async def run(self) -> None:
        if self.lasting:
            await self.publish(self.parent, "update")
        self.last: Mapping[str, Any] = {}  # the last update
        while True:
            model = await self.next_model()
            x = model.tensors
            t = edgebed.round_of(model)
            term = self.term(x)
            result = await edgebed.train(self, x, t, self.params, term)
            self.report(round=t, scope="train", **result.metrics)
            await edgebed.evaluate(self, result.weights, t)
            update = self.update(x, result.weights)
            self.answered = t
            self.last = {
                "tensors": update,
                "round": t,
                "samples": result.samples,
            }
            await self.publish(self.parent, "update", owned=True, **self.last)

    async def next_model(self) -> edgebed.Message:
        """The next model that was not answered yet. If the server hands out the same model to a worker that has asked,
        it lacks the update."""
        asked = 0
        while True:
            patience = None
            if self.lasting and asked < ASKS:
                patience = self.gathering.deadline
            try:
                async with asyncio.timeout(patience):
                    model = await self.receive("model", sender=self.parent)
            except TimeoutError:
                asked += 1
                await self.send(self.parent, "update")
                continue
            if edgebed.round_of(model) > self.answered:
                return model
            if asked:
                await self.publish(self.parent, "update", owned=True, **self.last)

    def term(self, x: edgebed.State) -> Proximal | None:
        if self.params.proximal:
            return Proximal(x, self.params.proximal)
        return None

    def update(self, x: edgebed.State, trained: edgebed.State) -> edgebed.State:
        """The tensors to send to the server."""
        return trained


ROLES = {"cloud": Cloud, "edge": Worker, "device": Worker}
SUMMARY = "asynchronous: each update is mixed into the model, the less the staler it is"
PLUGIN = plugin("fedasync", FedAsync, SUMMARY, population=True, asynchronous=True)
