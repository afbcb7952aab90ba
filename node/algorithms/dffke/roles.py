"""DFFKE. "Aggregation-Free Heterogeneous Federated Learning with Data-Free Knowledge Exchange" (anonymous authors,
under review), Algorithm 1 and equations 8 to 15.

θ_k = [θ_k^h, θ_k^l] model of client k, encoder and classifier, of its own architecture; D_k = (X_k, Y_k) its data;
E_k = h(X_k; θ_k^h) its embeddings, Ẽ_k = z(E_k; θ_k^z) the translated embeddings; Dec decoder; D̂_k = Dec(Ẽ_k) synthetic
pictures; Ŷ_k = f(D̂_k; θ_k) the owner's logits on them; B_k^t a sample of those of past rounds, as many as D̂_k has.

    client        trains θ_k on D_k until its accuracy is τ                                                          (9)
                  → coordinator: θ_k, E_k (noised if requested, 15), Y_k
    coordinator   {θ_k^z}, θ_global ← min Σ_k CE(l(z(E_k)), Y_k), θ_global is discarded                         (10, 11)
                  Dec ← min Σ_k MSE(z(h(Dec(Ẽ_k); θ_k^h); θ_k^z), Ẽ_k)                                              (12)
                  → clients: Dec, {Ẽ_k}
    client        D̂_i = Dec(Ẽ_i) for all i; → peers: Ŷ_k on D̂_k and on B_k^t
                  T_FKE times, alternating: θ_k ← min Σ_{i ≠ k} KL[Ŷ_i ‖ f(D̂_i; θ_k)]                           (8, 13)
                                            θ_k ← min Σ_{i ≠ k} KL[Ŷ_i^B ‖ f(B_i^t; θ_k)]                           (14)
                  keeps (Dec, {Ẽ_i}) in its memory

The coordinator is the cloud. Clients are edges that hold data and reach each other. `exchange_epochs: 0` is local
training only: then only accuracies leave a client.

Departures:
- KL is that of equation 8; (13) prints the reverse (`divergence`). Mini-batches mix all owners; (12) to (14) sum over
  them.
- Equation 13 learns from the pictures of others alone, so a client forgets its own labels. `private_steps`
  adds steps on its own data. They also move batch normalisation's running statistics back to it, unless
  `exchange_statistics: running`.
- The first Dec and docking layers are random, later ones continue from the previous round.
- A client shares `embeddings` random samples a round (750 fits the paper's 14.7 MB). τ is measured on mini-batches as
  they are trained.
- With `participation` below 1, clients that are not selected still take Dec and {Ẽ_k} into their memories.
- A client that drops out misses the phases until it is back and takes part in the next one. A client that comes back
  and has not shared its model learns from the others. A restarted client keeps its model and starts with an empty
  memory.
- A restarted coordinator repeats the round, or starts the next one if the exchange has started. It holds the clients'
  models while it trains, and none between rounds, unless `gathering.late` makes it keep late ones.

`inversion` adds the attack of appendix C by a curious coordinator. It keeps the clients' last shared knowledge and
attacks it after all rounds (`node.algorithms.dffke.inversion`). Each client gets its own reconstructions back, and
records them with its private pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from node.algorithms.common import evaluated, joined, means_over_clients, parted, participants, report_mean, round_of
from node.algorithms.dffke.docking import Docked, Embeddings, Labels, dock
from node.algorithms.dffke.embedding_decoder import ClientModel, Pictures, new_decoder, train_decoder
from node.algorithms.dffke.gaussian_mechanism import Release
from node.algorithms.dffke.inversion import invert, judge
from node.algorithms.dffke.knowledge_exchange import embed, exchange, pictures_of, teach, train_epoch
from node.algorithms.dffke.step_samples import StepSamples
from node.algorithms.dffke.synthetic import Auxiliary, Lesson, Synthetic, Transfer, fingerprint, lesson
from node.assignment import derive_seed
from node.errors import NodeError
from node.learning.aggregation import State
from node.learning.class_metrics import of_classes
from node.learning.training import Learner, Scope
from node.messaging.wire import Message, Tensors
from node.role import Role


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The clients' shared knowledge of a round, by client: models θ_k, embeddings E_k, labels Y_k, and their round,
    which is an earlier one if they are late and `gathering.late` keeps them."""

    models: dict[str, ClientModel]
    embeddings: dict[str, Embeddings]
    labels: dict[str, Labels]
    rounds: dict[str, int]


@dataclass(frozen=True, eq=False)
class Seen:
    """The data of a round that a curious coordinator keeps."""

    round: int
    knowledge: Knowledge
    synthetic: Synthetic


class Coordinator(Role):
    """Trains docking layers and the decoder. Reports the mean accuracy of the clients' models."""

    async def run(self) -> None:
        params = self.params
        if params.inversion:
            pictures = self.learner.data.array("x_test")
            if pictures.dtype != np.uint8:
                raise NodeError(f"inversion: {params.inversion} needs pictures of bytes, not of floats: set it to 0")
        kept = self.kept()
        self.seen: Seen | None = None
        async for t in self.rounds():
            requested = participants(self, params.participation, t)
            await self.publish(self.children, "begin", round=t, participants=requested)
            if params.exchange_epochs:
                kept = await self.enable_exchange(kept, requested, t)
            past = list(kept.past)
            await self.checkpoint(t, kept.to_tensors(), past=past)
            # Clients wait for each other, so they may take twice the deadline of each wait.
            deadline = 2 * self.gathering.deadline
            finished = await self.gather(
                "finished",
                requested,
                round=t,
                quorum=0,
                deadline=deadline,
            )
            report_mean(self, finished, t)
        if self.seen is not None:
            await self.invert(self.seen)

    def kept(self) -> Auxiliary:
        """The state after the last finished round, else the initial state."""
        if self.restored is not None:
            past = self.restored.fields["past"]
            return Auxiliary.of_tensors(self.restored.tensors, past)
        pictures = pictures_of(self.learner)
        seed = self.seed("decoder")
        decoder = new_decoder(pictures, self.params, seed)
        return Auxiliary(decoder)

    async def enable_exchange(self, kept: Auxiliary, requested: list[str], t: int) -> Auxiliary:
        """Sections 3.1 and 3.2: make Dec and {Ẽ_k} from the clients' shared knowledge, and publish them."""
        messages = await self.gather("knowledge", requested, round=t)
        knowledge = shared(messages)
        if not knowledge.models:
            return kept
        pictures = pictures_of(self.learner)
        docked, decoder = await self.unify(kept, knowledge, pictures, t)
        synthetic = Synthetic(decoder, docked.translated)
        if self.params.inversion:
            self.seen = Seen(t, knowledge, synthetic)
        tensors = synthetic.to_tensors()
        rounds = len(kept.past)
        reviewed = min(rounds, self.params.memory_rounds)
        first = rounds - reviewed
        await self.publish(
            self.children,
            "exchange",
            tensors,
            owned=True,
            round=t,
            participants=requested,
            past=list(kept.past[first:]),
            identity=fingerprint(tensors),
        )
        layers = kept.layers | docked.layers
        return Auxiliary(decoder, layers, (*kept.past, t))

    async def unify(
        self,
        kept: Auxiliary,
        knowledge: Knowledge,
        pictures: Pictures,
        t: int,
    ) -> tuple[Docked, State]:
        """Equations 11 and 12."""
        params = self.params
        embeddings = knowledge.embeddings
        cost = StepSamples(self.learner.outline, pictures, params, self.learner.known)
        docked: Docked = await self.compute(
            dock,
            embeddings,
            knowledge.labels,
            kept.layers,
            pictures.classes,
            params,
            self.seed("docking", str(t)),
            self.device,
            samples=cost.docking(embeddings),
        )
        decoder, loss = await self.compute(
            self.learner.apply,
            continue_decoder,
            kept.decoder,
            knowledge.models,
            docked.layers,
            docked.translated,
            pictures,
            params,
            self.seed("decoding", str(t)),
            self.device,
            samples=cost.decoding(embeddings, knowledge.models),
        )
        self.report(
            round=t,
            scope="train",
            docking_accuracy=docked.accuracy,
            decoder_loss=loss,
        )
        return docked, decoder

    async def invert(self, seen: Seen) -> None:
        """Appendix C. The attack is no part of the system, so it takes no time under `sim`: mode "other"."""
        guesses = {}
        for owner, model in seen.knowledge.models.items():
            guesses[owner] = await self.compute(
                self.learner.apply,
                invert,
                model,
                seen.knowledge.embeddings[owner],
                seen.synthetic.of([owner]),
                self.params,
                self.seed("inversion", owner),
                mode="other",
            )
        rounds = seen.knowledge.rounds
        await self.publish_each(
            "inverted",
            guesses,
            owned=True,
            round=seen.round,
            shared=rounds,
        )
        clients = list(guesses)
        await self.gather("judged", clients, round=seen.round, quorum=0)


class Client(Role):
    """Keeps its own model, and is teacher and student of its peers."""

    async def run(self) -> None:
        if not self.neighbours and self.params.exchange_epochs:
            raise NodeError(f"{self.name} reaches no other client: give links an edge-edge, or topology mesh: true")
        self.begin()
        while True:
            message = await self.receive("begin", "exchange", "inverted", sender=self.parent)
            t = round_of(message)
            match message.kind:
                case "begin":
                    await self.learn_alone(t, message.fields["participants"])
                case "exchange":
                    await self.learn_together(message, t)
                case "inverted":
                    await self.judge(message, t)

    def begin(self) -> None:
        """Set the first state: the kept one after a restart."""
        self.theta: State
        self.trained = 0  # the last round of local training
        self.exchanged = ""  # the last exchange
        if self.restored is None:
            self.theta = self.learner.initial()
        else:
            fields = self.restored.fields
            self.theta = self.restored.tensors
            self.trained = fields.get("trained", 0)
            self.exchanged = fields.get("exchanged", "")
        self.begun = 0
        self.memory: dict[int, Synthetic] = {}

    async def learn_alone(self, t: int, participants: list[str]) -> None:
        """Lines 3 to 7 of Algorithm 1. A client that was interrupted after the training shares once more."""
        self.begun = t
        if self.name not in participants:
            return
        if t > self.trained and self.learner.samples:
            await self.train_until_accurate(t)
            self.trained = t
            await self.keep(t)
            if "own" in self.learner.tests:
                accuracy = await self.accuracy("own")
                self.report(round=t, scope="own-before-exchange", accuracy=accuracy)
        if self.params.exchange_epochs:
            await self.share(t)
        else:
            await self.conclude(t)

    async def train_until_accurate(self, t: int) -> None:
        """Equation 9."""
        moments: State = {}
        samples = self.learner.samples
        if self.trained:
            limit = self.params.epochs
        else:
            limit = self.params.first_epochs
        for epoch in range(1, limit + 1):
            done = await self.compute(
                self.learner.apply,
                train_epoch,
                self.theta,
                moments,
                self.params,
                self.seed("epoch", str(t), str(epoch)),
                samples=samples,
            )
            self.theta = done.state
            moments = done.moments
            if done.accuracy >= self.params.train_accuracy:
                break
        self.report(
            round=t,
            scope="train",
            loss=done.loss,
            accuracy=done.accuracy,
            epochs=epoch,
        )

    async def share(self, t: int) -> None:
        """Send θ_k, E_k and Y_k to the coordinator. A client without data sends an empty message."""
        samples = self.learner.samples
        if not samples:
            await self.send(self.parent, "knowledge", round=t, samples=0)
            return
        count = min(samples, self.params.embeddings)
        released, labels = await self.compute(
            self.learner.apply,
            embed,
            self.theta,
            self.params,
            self.seed("embeddings", str(t)),
            samples=count,
            mode="evaluate",
        )
        self.report(
            round=t,
            scope="train",
            shared_samples=count,
            unshared_samples=self.learner.samples - count,
        )
        if self.params.privacy != "none":
            self.note_privacy("embeddings", [released], "each embedding, once, given the model", t)
        tensors = joined(model=self.theta)
        tensors["embeddings"] = released.values
        tensors["labels"] = labels
        await self.send(
            self.parent,
            "knowledge",
            tensors,
            owned=True,
            round=t,
            samples=count,
            model=self.model,
            model_params=self.model_params,
        )

    def note_privacy(
        self,
        kind: str,
        released: Sequence[Release],
        guarantee: str,
        t: int,
    ) -> None:
        """Record the noise of what is sent, the largest of several releases, the share of rows that were clipped for
        it, and its ``guarantee`` if there is one."""
        rows = 0
        clipped = []
        for release in released:
            rows += len(release.values)
            clipped.append(release.clipped * len(release.values))
        largest = max(released, key=lambda release: release.sigma)
        if not largest.bounded:
            guarantee = "none"
        self.note(
            "privacy",
            round=t,
            of=kind,
            mechanism=self.params.privacy,
            epsilon=self.params.epsilon,
            delta=largest.delta,
            sensitivity=largest.sensitivity,
            sigma=largest.sigma,
            clipped=sum(clipped) / max(rows, 1),
            guarantee=guarantee,
        )

    async def learn_together(self, message: Message, t: int) -> None:
        """Lines 14 to 21. The exchange of an earlier round is only kept in memory."""
        now = Synthetic.of_tensors(message.tensors)
        participants = message.fields["participants"]
        identity = message.fields["identity"]
        rounds = message.fields["past"]
        past = {}
        for r in rounds:
            if r in self.memory:
                past[r] = self.memory[r]
        self.remember(now, t)
        if self.name not in participants or t < self.begun:
            return
        if identity != self.exchanged:
            share = 1 / max(1, len(rounds))
            reviewed = {}
            for r, synthetic in past.items():
                reviewed[r] = self.reviewed(synthetic, r, t, share)
            await self.exchange_knowledge(now, reviewed, participants, identity, t)
            self.exchanged = identity
            await self.keep(t)
        await self.conclude(t)

    def remember(self, now: Synthetic, t: int) -> None:
        """Keep the exchange of round t and the `memory_rounds` before it."""
        if not self.params.memory_rounds:
            return
        self.memory = self.memory | {t: now}
        kept = self.params.memory_rounds + 1
        oldest = sorted(self.memory)[:-kept]
        for r in oldest:
            del self.memory[r]

    def reviewed(
        self,
        synthetic: Synthetic,
        r: int,
        t: int,
        share: float,
    ) -> Synthetic:
        """B^t of round r: a random share of each owner's embeddings, the same at every client. The shares of all past
        rounds together have the size of one round."""
        chosen = {}
        for owner, values in synthetic.embeddings.items():
            shared = self.shared_seed("review")
            seed = derive_seed(shared, str(t), str(r), owner)
            random = np.random.default_rng(seed)
            count = round(share * len(values))
            count = max(1, count)
            rows = random.choice(len(values), count, replace=False)
            chosen[owner] = values[np.sort(rows)]
        return Synthetic(synthetic.decoder, chosen)

    async def exchange_knowledge(
        self,
        now: Synthetic,
        past: Mapping[int, Synthetic],
        participants: list[str],
        identity: str,
        t: int,
    ) -> None:
        """Lines 16 to 20: send Ŷ_k to the peers, gather theirs, and learn from current and past ones alternately."""
        sets = {t: now, **past}
        peers = [peer for peer in self.neighbours if peer in participants]
        if self.name in now.embeddings:
            own_pictures = self.own_pictures(sets)
            logits = await self.teach(own_pictures, t)
            await self.publish(
                peers,
                "logits",
                logits,
                owned=True,
                round=t,
                identity=identity,
            )
        teachers = await self.gather_logits(peers, now, identity, t)
        lessons: dict[int, Lesson] = {}
        for r, synthetic in sets.items():
            of_round = lesson(synthetic, str(r), teachers)
            if of_round is not None:
                lessons[r] = of_round
        if t not in lessons:
            return
        current = lessons[t]
        reviews = [lessons[r] for r in sorted(lessons) if r != t]
        await self.learn_from(current, reviews, len(teachers), t)

    def own_pictures(self, sets: Mapping[int, Synthetic]) -> dict[int, Transfer]:
        """D̂_k and B_k^t: this client's synthetic pictures in each round that has some."""
        own = {}
        for r, synthetic in sets.items():
            if self.name in synthetic.embeddings:
                own[r] = synthetic.of([self.name])
        return own

    async def gather_logits(
        self,
        peers: Sequence[str],
        now: Synthetic,
        identity: str,
        t: int,
    ) -> dict[str, Tensors]:
        """The logits of the peers that made them on the same synthetic pictures as this client."""
        owners = [peer for peer in peers if peer in now.embeddings]
        answers = await self.gather("logits", owners, round=t, quorum=0)
        teachers: dict[str, Tensors] = {}
        for answer in answers:
            if answer.fields["identity"] == identity:
                teachers[answer.sender] = answer.tensors
        return teachers

    async def learn_from(
        self,
        current: Lesson,
        reviews: list[Lesson],
        teachers: int,
        t: int,
    ) -> None:
        """Lines 19 and 20: minimise equations 13 and 14 in turns."""
        new = len(current.logits)
        old = sum(len(review.logits) for review in reviews)
        done = await self.compute(
            self.learner.apply,
            exchange,
            self.theta,
            [current],
            reviews,
            self.params,
            self.seed("exchange", str(t)),
            samples=self.cost.exchange(new, old),
        )
        self.theta = done.state
        self.report(
            round=t,
            scope="train",
            exchange_loss=done.loss,
            review_loss=done.review_loss,
            teachers=teachers,
        )

    async def teach(self, own: Mapping[int, Transfer], t: int) -> State:
        """Ŷ_k on the client's own synthetic pictures, by round."""
        transfers = list(own.values())
        pictures = sum(len(transfer.embeddings) for transfer in transfers)
        released = await self.compute(
            self.learner.apply,
            teach,
            self.theta,
            transfers,
            self.params,
            self.seed("logits", str(t)),
            samples=self.cost.teaching(pictures),
            mode="evaluate",
        )
        if self.params.noising_of_logits().privacy != "none":
            self.note_privacy("logits", released, "single rows of logits, once", t)
        logits = {}
        for r, release in zip(own, released, strict=True):
            logits[str(r)] = release.values
        return logits

    async def conclude(self, t: int) -> None:
        """Evaluate θ_k on the global and the own test set, and report the accuracies."""
        limit = self.params.evaluate_samples
        accuracies: dict[str, Any] = {}
        for scope in self.learner.tests:
            result = await evaluated(self, self.theta, scope, limit)
            by_class = of_classes(result.metrics)
            accuracy = result.accuracy
            self.report(round=t, scope=scope, accuracy=accuracy, **by_class)
            means = means_over_clients(scope, "accuracy", result)
            accuracies |= means
        samples = self.learner.samples
        await self.send(self.parent, "finished", round=t, samples=samples, **accuracies)

    async def judge(self, inverted: Message, t: int) -> None:
        """Compare the coordinator's reconstructions with this client's private pictures."""
        shared = inverted.fields["shared"][self.name]
        record = await self.compute(
            self.learner.apply,
            judge,
            inverted.tensors,
            self.params,
            self.seed("embeddings", str(shared)),
            mode="other",
        )
        self.note("inversion", round=shared, **record)
        await self.send(self.parent, "judged", round=t)

    @property
    def cost(self) -> StepSamples:
        pictures = pictures_of(self.learner)
        return StepSamples(self.learner.outline, pictures, self.params, self.learner.known)

    async def accuracy(self, scope: Scope) -> float:
        limit = self.params.evaluate_samples
        result = await evaluated(self, self.theta, scope, limit)
        return result.accuracy

    async def keep(self, t: int) -> None:
        await self.checkpoint(t, self.theta, trained=self.trained, exchanged=self.exchanged)


def shared(messages: Sequence[Message]) -> Knowledge:
    """The shared knowledge of the clients that have data."""
    models = {}
    embeddings = {}
    labels = {}
    rounds = {}
    for message in messages:
        if message.fields["samples"]:
            client = message.sender
            models[client] = _model_of(message)
            embeddings[client] = message.tensors["embeddings"]
            labels[client] = message.tensors["labels"]
            rounds[client] = round_of(message)
    return Knowledge(models, embeddings, labels, rounds)


def continue_decoder(learner: Learner, *arguments: Any) -> tuple[State, float]:
    """`train_decoder` with these arguments, at a node that has the models of the run's catalogue."""
    train: Callable[..., tuple[State, float]] = partial(train_decoder, known=learner.known)
    return train(*arguments)


def _model_of(message: Message) -> ClientModel:
    name = message.fields["model"]
    model_params = message.fields["model_params"]
    state = parted(message.tensors, "model")
    return ClientModel(name, model_params, state)


ROLES: dict[str, type[Role]] = {"cloud": Coordinator, "edge": Client}
