"""FedEDS. H. Li, H. Wu, G. Fan, Z. Zhang, S. Chen, Z. Feng, "Efficient Federated Learning with Encrypted Data Sharing
for Data-Heterogeneous Edge Devices", Algorithms 1 to 4 and equations 2 to 12.

K clients, which are edges with data; θ = (θ^g, θ^c) extractor and classifier, θ^l_k the frozen stochastic layer of
client k between them, φ_k its encryptor g, D_k its data, D_k^F its encrypted set, E_t local epochs of round t.

    cloud    makes θ_0 and every θ^l_k
    edge     θ_k ← θ_0, E_c epochs on D_k                                                                           (2)
             φ_k ← E_g epochs of CE(y, f(g(x; φ_k); θ_k, θ^l_k))                                                    (3)
             D_k^F = {(x' = g(x; φ_k), f(x'; θ_k, θ^l_k))}, which it shares with all others, edge to edge           (4)
    then, in each round t
    edge     θ_k ← θ, E_t epochs (5) of λ_c CE(D_k) + λ_dis KL(D_i^F through θ^l_i), i drawn for each epoch    (6 to 10)
             with μ/2 ‖θ_k − θ‖² if the base is FedProx                                                            (11)
    cloud    θ ← the base's average: FedAvg's, FedProx' or FedNova's

Without annealing (`annealing: false`, E_t = E_min) and exchange (`exchange: false`) it equals its base with the same
local training, unless `normalisation: algorithm-4` changes base fednova.

Exchange of sets: an edge that has made its set *offers* it with its layer to its neighbours. They *request* one part
after another. So after a break only missing parts are sent, and late edges are served, too. Round 1 starts when all
present edges have made their sets, or the scenario's deadline after the first edge has. An edge trains when it has the
sets of all present neighbours, or has waited for them until the deadline.

Departures (profile `literal` takes equation 6, Algorithm 4 and SGD as printed):
- Equation 6's factor |D|/|D| is read as a mean over samples (`distillation: sum` has none), and KL as KL(peer's output
  ‖ own output).
- FedNova counts optimizer steps and takes its own average. Algorithm 4 counts epochs, weights clients equally and steps
  in the wrong direction (`normalisation: algorithm-4`).
- The encryptor learns with AdamW, as section VI-A3 says first, not SGD.
- The paper does not give θ^l. The caption of its Fig. 2 says that the layer adds noise to features that remain
  consistent. `layer` has four readings.
- E_c is not given. Algorithm 1 restores θ_0 (line 9); `restore: false` does not.
- D_k^F holds the model's outputs on the pictures as sent, that is rounded to bytes.
- An epoch sees |D_k| samples of D_i^F in random order, and repeats them if there are fewer.
- Batch normalisation, which the paper's model does not have, keeps no statistics of encrypted pictures. An owner makes
  its set with running statistics, its peers learn from it with those of each batch.
- An edge without any peer's set trains with λ_c = 1.
- θ_0 is the run's first model. Every node can make it, so it is sent once, in round 1.
- An edge that joins after the start of the first round learns from the others' sets and makes none. A set that arrives
  later is used from the next round on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from node.algorithms import fednova
from node.algorithms.common import average, evaluate, fitting, joined, parted, round_of, with_samples
from node.algorithms.fededs.encrypted import (
    NOTHING,
    Distillation,
    EncryptedSet,
    Floats,
    Incoming,
    Part,
    stochastic_layer,
)
from node.algorithms.fededs.encryptor import encrypt, recognised, worth
from node.algorithms.fededs.parameters import FedEDS
from node.algorithms.fedprox import ProximalTerm
from node.errors import NodeError
from node.learning.aggregation import State, weighted_mean
from node.learning.models import Model
from node.learning.training import ExtraLoss, MiniBatch, TrainResult
from node.messaging.wire import Message
from node.role import Role


def local_epochs(t: int, p: FedEDS) -> int:
    """E_t, equation 5."""
    if not p.annealing or t > p.turn_end:
        return p.epochs
    if t <= p.turn_start:
        return p.epochs_max
    fall = p.epochs_max - p.epochs
    passed = t - p.turn_start
    duration = p.turn_end - p.turn_start
    return p.epochs_max - fall * passed // duration


def scaling_factors(t: int, p: FedEDS) -> tuple[float, float]:
    """λ_c and λ_dis, equations 9 and 10: one half each at first, 1 and 0 as soon as λ_dis is below ε."""
    decay = math.exp(-p.m * (t - 1))
    logistic = 1 / (1 + decay)
    lambda_dis = 1 - logistic
    if lambda_dis < p.epsilon:
        return (1.0, 0.0)
    return (1 - lambda_dis, lambda_dis)


def algorithm_4(
    w: State,
    states: Sequence[State],
    a: Sequence[float],
    eta: float,
) -> State:
    """Lines 21 and 22 as printed: θ − (Σ_k ‖a_k‖₁ / K) (Σ_k Δθ_k / K) with Δθ_k = (θ_k − θ) / (η ‖a_k‖₁). This steps
    away from the clients' models, 1/η times as far. Integer counters take the maximum."""
    equal_weights = [1.0] * len(states)
    result = weighted_mean(states, equal_weights)
    mean_a = sum(a) / len(a)
    for name, values in w.items():
        if values.dtype.kind == "f":
            theta = values.astype(np.float64)
            deltas = []
            for theta_k, a_k in zip(states, a, strict=True):
                difference = theta_k[name] - theta
                deltas.append(difference / (eta * a_k))
            mean_delta = np.mean(deltas, axis=0)
            stepped = theta - mean_a * mean_delta
            result[name] = stepped.astype(values.dtype)
    return result


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of several terms of a loss."""

    terms: tuple[ExtraLoss, ...]

    def __call__(self, model: Model, batch: MiniBatch) -> Tensor:
        values = [term(model, batch) for term in self.terms]
        return torch.stack(values).sum()


class Cloud(fednova.Cloud):
    """Makes the stochastic layers, waits for the exchange (Algorithm 3, lines 1 to 7), then averages like its base."""

    async def run(self) -> None:
        if self.params.exchange and self.restored is None:
            await self.start_exchange()
        await super().run()

    async def start_exchange(self) -> None:
        """Send the layers, and wait until the edges have offered their sets."""
        layers = {}
        for edge in self.children:
            layers[edge] = {"layer": self.layer(edge)}
        await self.publish_each("layer", layers, owned=True)
        first = await self.receive("ready")
        others = set(self.children) - {first.sender}
        await self.gather("ready", others, round=0, quorum=0)
        self.withdraw("layer")  # edges that join from now on make no set

    def layer(self, edge: str) -> Floats:
        """The matrix θ^l of an edge."""
        seed = self.shared_seed(f"stochastic layer of {edge}")
        return stochastic_layer(self.learner.features, seed, self.params.layer)

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        if self.params.base != "fednova":
            return await average(self, updates, w)
        if self.params.normalisation == "steps":
            return await super().aggregate(updates, w, t)
        fit = fitting(self, updates, w, "epochs")
        counted = with_samples(self, fit)
        if not counted:
            return w
        states = []
        a = []
        for update in counted:
            epochs = update.fields["epochs"]
            states.append(update.tensors)
            a.append(fednova.accumulated(epochs, self.params.momentum))
        return algorithm_4(w, states, a, self.params.learning_rate)


class Edge(Role):
    """Shares an encrypted set with its neighbours, then trains on its own data and learns from their sets."""

    theta_k: State | None = None  # the model of Algorithm 1, if round 1 starts from it

    async def run(self) -> None:
        if not self.params.exchange:
            return await self.learn()
        if not self.neighbours:
            raise NodeError(
                f"{self.name}: fededs shares sets with other edges, and there are none: set topology.edges "
                "to 2 or more, or algorithm.exchange to false"
            )
        self.own: list[Part] = []
        self.sets: dict[str, Incoming] = {}
        self.collected = False
        async with self.beside(self.serve()):
            model = await self.prepare()
            await self.learn(model)

    async def learn(self, model: Message | None = None) -> None:
        """Take part in rounds without end. `model` is the message of the first round, if it has arrived already."""
        while True:
            if model is None:
                model = await self.receive("model", sender=self.parent)
            t = round_of(model)
            result = await self.transfer_knowledge(model.tensors, t)
            self.report(round=t, scope="train", **result.metrics)
            await evaluate(self, result.weights, t)
            await self.send(
                self.parent,
                "update",
                result.weights,
                owned=True,
                round=t,
                samples=result.samples,
                steps=result.steps,
                epochs=local_epochs(t, self.params),
            )
            model = None

    async def transfer_knowledge(self, w: State, t: int) -> TrainResult:
        """Algorithm 2."""
        p = self.params
        epochs = local_epochs(t, p)
        lambda_c, lambda_dis = scaling_factors(t, p)
        lessons: tuple[EncryptedSet, ...] = ()
        if p.exchange and lambda_dis > 0:
            lessons = await self.lessons(t, epochs)
        elif p.exchange:
            self.sets.clear()  # they are not used any more
        terms: list[ExtraLoss] = []
        if p.base == "fedprox" and p.mu:
            terms.append(ProximalTerm(w, p.mu))
        if lessons:
            terms.append(self.distillation(lessons, lambda_dis, t))
        else:
            lambda_c = 1.0
        start = w
        if t == 1 and self.theta_k is not None:
            start = self.theta_k
        training = p.training(epochs)
        samples = self.learner.work(training)
        for lesson in lessons:
            samples += len(lesson)
        return await self.compute(
            self.learner.train,
            start,
            training,
            t,
            _total(terms),
            lambda_c,
            samples=samples,
            mode="train",
        )

    def distillation(
        self,
        lessons: tuple[EncryptedSet, ...],
        lambda_dis: float,
        t: int,
    ) -> Distillation:
        p = self.params
        noise_seed: int | None = None
        if p.layer == "noise":
            random = self.learner.random("layer noise", t)
            noise_seed = int(random.integers(2**63))
        return Distillation(lessons, lambda_dis, p.batch_size, p.distillation, noise_seed)

    async def lessons(self, t: int, epochs: int) -> tuple[EncryptedSet, ...]:
        """For each local epoch, |D_k| samples of the set of i* ~ U({1, …, K} \\ {k}), among the sets received."""
        await self.collect()
        samples = self.learner.samples
        complete = []
        for i in self.neighbours:
            incoming = self.sets.get(i)
            if incoming is not None and incoming.complete and incoming.parts:
                complete.append(incoming)
        if not complete or not samples:
            return ()
        random = self.learner.random("lessons", t)
        drawn = []
        for _ in range(epochs):
            i_star = random.integers(len(complete))
            drawn.append(complete[i_star].set())
        lessons = []
        for encrypted in drawn:
            order = random.permutation(len(encrypted))
            repeated = np.resize(order, samples)
            lessons.append(encrypted.taken(repeated))
        return tuple(lessons)

    # Before the first round

    async def prepare(self) -> Message | None:
        """Algorithm 1, and the exchange. Returns a round's model message if rounds started without this edge."""
        if self.restored is not None:
            tensors = self.restored.tensors
            self.theta_k = parted(tensors, "model") or None
            own = EncryptedSet(
                tensors["images"],
                tensors["outputs"],
                tensors["layer"],
                **self.restored.fields,
            )
            await self.offer(own)
            return None
        first = await self.receive("layer", "model", sender=self.parent)
        if first.kind == "model":
            await self.offer(NOTHING)
            return first
        layer = np.array(first.tensors["layer"])
        own = await self.generate(layer)
        await self.offer(own)
        await self.collect()
        return None

    async def generate(self, layer: Floats) -> EncryptedSet:
        """FedEncryptedDataGenerate, Algorithm 1: D_k^F, saved for a restart."""
        p = self.params
        samples = self.learner.samples
        if not samples:
            return NOTHING
        training = p.training(p.model_epochs)
        theta_k = await self.compute(
            self.learner.train,
            self.learner.initial(),
            training,
            0,
            samples=self.learner.work(training),
            mode="train",
        )
        worth_of_sample = await self.compute(self.learner.apply, worth, p, mode="other")
        work = samples * p.encryptor_epochs * worth_of_sample
        encrypted: EncryptedSet = await self.compute(
            self.learner.apply,
            encrypt,
            theta_k.weights,
            layer,
            p,
            samples=round(work),
        )
        apply = self.learner.apply
        accuracy, correlation = await self.compute(apply, recognised, encrypted, mode="other")
        step = (encrypted.high - encrypted.low) / 255  # of the numbers that travel as bytes; 0 as floats
        self.note(
            "encrypted",
            round=0,
            samples=samples,
            accuracy=accuracy,
            resemblance=correlation,
            step=step,
        )
        kept: State = {}
        self.theta_k = None
        if not p.restore:
            self.theta_k = theta_k.weights
            kept = theta_k.weights
        tensors = {
            "images": encrypted.images,
            "outputs": encrypted.outputs,
            "layer": encrypted.layer,
        }
        tensors |= joined(model=kept)
        await self.checkpoint(0, tensors, low=encrypted.low, high=encrypted.high)
        return encrypted

    async def offer(self, encrypted: EncryptedSet) -> None:
        """Announce to the neighbours that the set can be requested, or that there is none; and report to the cloud."""
        self.own = encrypted.parts()
        await self.publish(
            self.neighbours,
            "offer",
            {"layer": encrypted.layer},
            owned=True,
            round=None,
            parts=len(self.own),
            low=encrypted.low,
            high=encrypted.high,
        )
        await self.publish(self.parent, "ready")

    async def collect(self) -> None:
        """Fetch the missing parts of the neighbours' sets, one part of each set at a time.

        The first call waits for the offers of all present neighbours until the scenario's deadline. Each part has the
        same deadline. A neighbour that misses the deadline is not asked again in this call.
        """
        patience = 0.0 if self.collected else None
        lacking = self.lacking()
        offers = await self.gather(
            "offer",
            lacking,
            round=0,
            quorum=0,
            deadline=patience,
        )
        for offer in offers:
            self.take_offer(offer)
        silent: set[str] = set()
        parts_of_sets = [incoming.parts for incoming in self.sets.values()]
        most_parts = max(parts_of_sets, default=0)
        for part in range(most_parts):
            online = self.present - silent
            requested = {i for i in self.without(part) if i in online}
            if requested:
                await self.fetch(part, requested)
                silent |= requested.intersection(self.without(part))
        if not self.collected:
            lacking = self.lacking()
            complete = len(self.neighbours) - len(lacking)
            self.note("exchanged", round=0, sets=complete, missing=lacking)
        self.collected = True

    def lacking(self) -> list[str]:
        """The neighbours with sets that have not arrived completely."""
        lacking = []
        for i in self.neighbours:
            incoming = self.sets.get(i)
            if incoming is None or not incoming.complete:
                lacking.append(i)
        return lacking

    def without(self, part: int) -> list[str]:
        """The neighbours with sets that lack this part."""
        without = []
        for i, incoming in self.sets.items():
            if incoming.lacks(part):
                without.append(i)
        return without

    async def fetch(self, part: int, requested: set[str]) -> None:
        """Request one part of several neighbours' sets, and wait for the answers."""
        await self.send(sorted(requested), "request", round=part)
        async with self.beside(self.ask_again(part, requested)):
            answers = await self.gather("encrypted", requested, round=part, quorum=0)
            for answer in answers:
                if answer.tensors:
                    incoming = self.sets[answer.sender]
                    incoming.received[part] = answer.tensors

    async def ask_again(self, part: int, requested: set[str]) -> None:
        """Repeat the request to neighbours that offer their set again: they were away and may have missed it."""
        while True:
            offer = await self.receive("offer")
            self.take_offer(offer)
            if offer.sender in requested:
                await self.send(offer.sender, "request", round=part)

    def take_offer(self, offer: Message) -> None:
        """Note an offer. Parts that have arrived stay: a restarted edge offers the same set, since it is seeded."""
        known = self.sets.get(offer.sender)
        parts = offer.fields["parts"]
        if known is not None:
            replaceable = not known.complete and known.parts != parts
        else:
            replaceable = True
        if replaceable:
            self.sets[offer.sender] = Incoming(
                np.array(offer.tensors["layer"]),
                parts=parts,
                low=offer.fields["low"],
                high=offer.fields["high"],
            )

    async def serve(self) -> None:
        """Answer the neighbours' requests for parts, with nothing if the part does not exist."""
        while True:
            request = await self.receive("request")
            part = round_of(request)
            tensors = None
            if part < len(self.own):
                tensors = self.own[part]
            await self.send(request.sender, "encrypted", tensors, owned=True, round=part)


def _total(terms: Sequence[ExtraLoss]) -> ExtraLoss | None:
    if not terms:
        return None
    if len(terms) == 1:
        return terms[0]
    return Sum(tuple(terms))


ROLES: dict[str, type[Role]] = {"cloud": Cloud, "edge": Edge}
