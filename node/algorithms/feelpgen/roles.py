"""FEELPGen⁻, FEELPGen, FEELPGen⁺. X. Jiang, H. Zhong, D. Chen, J. Zhang, Q. Zhang, J. Cui, "FEELPGen: Data-Free
Knowledge Distillation for Personalized Federated Learning Across Heterogeneous Edge Silos", IEEE Internet of Things
Journal 2025, doi 10.1109/JIOT.2025.3619561, Algorithms 1 to 3. There is no cloud: a silo is an edge and its devices.

ω_k model of silo k, ω_k^i of its device i, |D_k^i| samples of that, G_k generator with state ω̂_k, Z_k what it gives for
labels Y that all edges share, v_k version of (ω_k, Z_k), M queue of the (Z_j, v_j) that an edge keeps, t round.

    device   ω_k^i ← ω_k − η′ ∇(CE(own) + a (b*/B) CE(h(G_k(·|y*)), y*)                 knowledge reinforcement
                                + a KL(h(G_k(·|y)) ‖ h(x))),   a = 10 · 0.98^(inner rounds before)
    edge     train ω̂_k on the mean of the logits of the ω_k^i (equation 9);             knowledge extraction
             ω_k ← Σ_i |D_k^i| ω_k^i / |D_k|, T times
    edges    publish (Z_k, v_k); refresh K′ entries of M; σ_j = γ s_j + C (1 − γ) (1 + age_j)^−φ,
             s_j = exp(−KL(Z_k ‖ Z_j)) over their sum in M; pull the models of the 𝒦 largest σ_j;
             ω_k ← ω_k + η Σ_j (σ_j / Σσ) (ω_j − ω_k)

Inside a silo rounds are synchronous. Between silos they are asynchronous: an edge answers requests for its model while
it trains, ranks the edges that it has a Z of, and takes the models that arrive within `patience`. FEELPGen⁻: instead
each edge averages its model with those of all others. FEELPGen⁺: edges send the private projection of Z.

Departures (`profile: literal` takes the printed text if it can be executed):
- Equation 4, Algorithm 1 line 17 and Algorithm 2 line 19 subtract models from models: ω shrinks and learns nothing.
- Equation 17 adds KL and takes the largest weights, but the text requires small KL.
- Equation 13 weights by b*/|D|. The factor a, b*/B and the KL term are those of FedGen's published code, on which the
  paper builds: without a and KL the generator hardly changes the training (`profile: paper`).
- Equation 16 is infinite at age 0. Equation 3 divides by N twice.
- Equation 9's second term has no gradient in ω̂_k: ε is added to the generator's noise instead. Its third term is
  squared, since a norm has no gradient where training starts. The paper does not say how long a generator trains; Adam
  starts afresh each time.
- KL is that of softmaxes over a row's features, averaged over rows. Age counts the receiver's rounds since it first
  received this version of Z.
- Algorithm 3 releases the components (32 x 2). The paper's bytes are those of the projection (320 x 2). The projection
  is the default, but the privacy of the components does not extend to it.
- Each edge projects on components of its own, so KL compares coordinates that mean different things at each edge.
  `released: common` projects on random directions that all edges share.
- s_j is divided by its sum in M, which equation 17 does not do: age then usually counts more than likeness.
- The generator has FedGen's width, and twice the paper's bytes. FedGen's client loss acts from the first round on, in
  FedGen from the second.
- E = 20 are mini-batches, as in FedGen. An edge receives all published Z (Algorithm 2, line 6) and uses K′ of them.
  An absent edge is not asked, and is forgotten `max_age` rounds after its newest Z was received.
- An edge that is done continues to serve until the others are done. FEELPGen⁻ weights edges by the samples that took
  part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.algorithms import hierfavg
from node.algorithms.common import (
    average,
    drawn,
    evaluate,
    evaluated,
    fitting,
    joined,
    models,
    parted,
    participants,
    round_of,
    train,
    with_samples,
)
from node.algorithms.feelpgen.generator import (
    CLASSIFIER,
    Reinforcement,
    dimensions,
    extract,
    new_generator,
    reinforcement_work,
    sample_features,
    sample_pairs,
)
from node.algorithms.feelpgen.parameters import FEELPGen, FEELPGenMinus, FEELPGenPlus
from node.algorithms.feelpgen.private_projection import clipped_share, common_basis, private_basis, project
from node.algorithms.hierfavg import edge_rounds
from node.learning.aggregation import State, weighted_mean
from node.learning.training import TrainResult
from node.messaging.wire import Message
from node.role import Role

EPSILON = 1e-8  # keeps the logarithm of equation 15 finite
ROWS = 320  # pairs of features, for the KL that an edge reports


@dataclass(frozen=True)
class KnownEdge:
    """An edge's knowledge of another edge: its Z, the version of Z, and the own round ``at`` which this version was
    first received."""

    z: NDArray[np.float32]
    version: int
    at: int


@dataclass(frozen=True)
class Ranked:
    """An entry of the queue with its age, KL and weight."""

    peer: str
    version: int
    age: int
    kl: float
    weight: float


def divergence(z_i: NDArray[Any], z_j: NDArray[Any]) -> float:
    """KL(Z_i ‖ Z_j) of equation 15: of softmaxes over the features of each row, mean over rows."""
    p = _softmax(z_i)
    q = _softmax(z_j)
    ratio = (p + EPSILON) / (q + EPSILON)
    log_ratio = np.log(ratio)
    of_rows = np.sum(p * log_ratio, axis=1)
    return float(of_rows.mean())


def _softmax(z: NDArray[Any]) -> NDArray[np.float64]:
    largest = z.max(axis=1, keepdims=True)
    exponents = np.asarray(z, np.float64) - largest
    e = np.exp(exponents)
    total = e.sum(axis=1, keepdims=True)
    softmax: NDArray[np.float64] = e / total
    return softmax


def weights(
    kl: Sequence[float],
    ages: Sequence[int],
    p: FEELPGen,
) -> list[float]:
    """σ_j of equation 17 from KL and age (equation 16) of each entry of the queue."""
    gamma = p.gamma
    constant = p.staleness_constant
    s = np.asarray(kl, np.float64)
    if p.likeness == "similarity" and len(kl):
        s = np.exp(s.min() - s)
        s = s / s.sum()
    age = np.asarray(ages)
    freshness = (1.0 + age) ** -p.staleness_penalty
    sigma = gamma * s + constant * (1 - gamma) * freshness
    return [float(sigma_j) for sigma_j in sigma]


def rank(
    z: NDArray[Any],
    queue: Mapping[str, KnownEdge],
    t: int,
    p: FEELPGen,
) -> list[Ranked]:
    """The queue sorted by weight, the largest first. Equal weights are in the order of names."""
    peers = sorted(queue)
    kl = []
    ages = []
    for j in peers:
        entry = queue[j]
        kl.append(divergence(z, entry.z))
        ages.append(t - entry.at)
    sigma = weights(kl, ages, p)
    rows = []
    for place, peer in enumerate(peers):
        row = Ranked(
            peer=peer,
            version=queue[peer].version,
            age=ages[place],
            kl=kl[place],
            weight=sigma[place],
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.weight)


def aggregate(
    w: State,
    others: Sequence[Mapping[str, Any]],
    sigma: Sequence[float],
    p: FEELPGen,
) -> State:
    """ω + η Σ_j σ̂_j (ω_j − ω); `literal` is equation 4 as printed."""
    eta = p.eta_agg
    if not others or eta == 0:
        return w
    sigma_hat = normalised(sigma)
    if p.aggregation == "literal":
        mean = weighted_mean(others, sigma_hat)
        return subtracted(w, mean, eta)
    # ω + η Σ_j σ̂_j (ω_j − ω) as a weighted mean: ω counts 1 − η, ω_j counts η σ̂_j
    shares = [eta * sigma_j for sigma_j in sigma_hat]
    return weighted_mean([w, *others], [1 - eta, *shares])


def normalised(sigma: Sequence[float]) -> list[float]:
    """σ̂ = σ / Σσ; equal shares if all are 0."""
    total = sum(sigma)
    if not total:
        return [1 / len(sigma) for _ in sigma]
    return [sigma_j / total for sigma_j in sigma]


def subtracted(w: State, mean: State, eta: float) -> State:
    """ω − η · mean, of floats: Algorithm 1 line 17 and Algorithm 2 line 19 as printed."""
    result: State = {}
    for name, values in w.items():
        if values.dtype.kind == "f":
            step_size = values.dtype.type(eta)
            result[name] = values - step_size * mean[name]
        else:
            result[name] = mean[name]
    return result


def published(
    generator: State,
    p: FEELPGen,
    labels: int,
    noise: int,
) -> NDArray[np.float32]:
    """Z of a generator, or FEELPGen⁺'s release of it (Algorithm 3, lines 16 to 18). `labels`, `noise` are seeds."""
    z = sample_features(generator, p.features, labels)
    if not isinstance(p, FEELPGenPlus):
        return z
    if p.released == "common":
        shared = np.random.default_rng(labels)
        directions = common_basis(z.shape[1], p.components, shared)
        return project(z, directions)
    basis = private_basis(
        z,
        components=p.components,
        epsilon=p.epsilon,
        delta=p.delta,
        random=np.random.default_rng(noise),
    )
    if p.released == "basis":
        return basis.T.astype(np.float32)
    return project(z, basis)


def clipped_rows(generator: State, p: FEELPGen, labels: int) -> float:
    """The share of the rows of Z that FEELPGen⁺ scales to norm 1 before it projects them."""
    z = sample_features(generator, p.features, labels)
    return clipped_share(z)


def guarantee(p: FEELPGenPlus) -> str:
    """The privacy guarantee of FEELPGen⁺'s messages, as text for the record."""
    if p.released == "common":
        return "Z projected on random directions travels, for which no guarantee holds"
    budget = f"({p.epsilon:g}, {p.delta:g})-differentially private for one row of Z"
    if p.released == "basis":
        return f"each release of principal components is {budget}; releases add up, generators learn without privacy"
    return f"principal components are {budget}, but Z projected on them travels, for which no guarantee holds"


def reinforcement(
    p: FEELPGenMinus,
    generator: State,
    r: int,
    samples: int,
    seed: int,
) -> Reinforcement:
    """Knowledge reinforcement in inner round r, for a client with `samples` samples."""
    b = p.generated_batch
    if p.generated_weight == "batch":
        total = p.batch_size
    else:
        total = max(samples, 1)
    decay = p.factor_decay ** (r - 1)
    return Reinforcement(
        generator,
        weight=p.generated_factor * decay * b / total,
        batch=b,
        seed=seed,
        agreement=p.agreement_factor * decay,
    )


class Edge(Role):
    """A silo's edge. It publishes and serves its model as after the inner rounds, before aggregation."""

    t = 0  # the own round
    samples = 0  # samples that took part in it

    async def run(self) -> None:
        self.begin()
        if isinstance(self.params, FEELPGen):
            meet = self.personalise
        else:
            meet = self.average_all
        async with self.beside(self.serve()):
            self.note_guarantee()
            restarted = self.restored is not None
            if restarted and isinstance(self.params, FEELPGen):
                await self.announce(self.t)
            async for t in self.rounds():
                self.t = t
                self.samples = 0
                for r in edge_rounds(t, self.params.inner_rounds):
                    await self.inner_round(r)
                await self.evaluate_trained(t)
                await meet(t)
                await evaluate(self, self.w, t)
                await self.keep(t)
            await self.publish(self.neighbours, "done")
            await self.gather(
                "done",
                self.neighbours,
                round=self.t,
                quorum=0,
                deadline=math.inf,
            )

    def note_guarantee(self) -> None:
        """Record the privacy guarantee of FEELPGen⁺, once for all edges: by the first of them."""
        first = min([self.name, *self.neighbours])
        if isinstance(self.params, FEELPGenPlus) and self.name == first:
            self.note("note", text=f"FEELPGen⁺: {guarantee(self.params)}")

    def begin(self) -> None:
        """Set the first state: model, generator, queue M, and received Z that are not in the queue yet."""
        self.known: dict[str, KnownEdge] = {}
        self.queue: dict[str, KnownEdge] = {}
        kept_served: State = {}
        if self.restored is None:
            self.w: State = self.learner.initial()
            classes, features = dimensions(self.w)
            hidden = self.params.generator_hidden
            seed = self.shared_seed("generator")
            self.g = new_generator(classes, features, hidden, seed)
        else:
            tensors = self.restored.tensors
            self.t = self.restored.round
            self.w = parted(tensors, "model")
            self.g = parted(tensors, "generator")
            kept_served = parted(tensors, "served")
            z = parted(tensors, "queue")
            entries = self.restored.fields["queue"]
            for peer, (version, at) in entries.items():
                self.queue[peer] = KnownEdge(z[peer], version, at)
        self.served = kept_served or self.w

    async def evaluate_trained(self, t: int) -> None:
        """Report the accuracy before silos exchange models, to show the gain of the exchange, and how much features of
        a label differ (Table IV)."""
        seed = self.shared_seed("pairs")
        first, second = await self.compute(
            sample_pairs,
            self.g,
            ROWS,
            seed,
            mode="other",
        )
        kl = divergence(first, second)
        self.report(round=t, scope="generator", divergence=kl)
        if "own" in self.learner.tests:
            limit = self.params.evaluate_samples
            result = await evaluated(self, self.w, "own", limit)
            self.report(round=t, scope="own", accuracy_before_meeting=result.accuracy)

    async def keep(self, t: int) -> None:
        queue = {}
        z = {}
        for peer, entry in self.queue.items():
            queue[peer] = [entry.version, entry.at]
            z[peer] = entry.z
        tensors = joined(model=self.w, generator=self.g, queue=z)
        if isinstance(self.params, FEELPGen):
            tensors |= joined(served=self.served)  # the model of the version that the other edges know
        await self.checkpoint(t, tensors, queue=queue)

    # Algorithm 1: inside the silo

    async def inner_round(self, r: int) -> None:
        p = self.params
        devices = participants(self, p.participation, r)
        state = joined(model=self.w, generator=self.g)
        await self.publish(devices, "model", state, owned=True, round=r)
        answers = await self.gather("update", devices, round=r)
        fit = fitting(self, answers, self.w)
        updates = with_samples(self, fit)
        if not updates:
            return
        await self.extract_knowledge(updates, r)
        mean = await average(self, updates, self.w)
        if p.aggregation == "literal":
            learning_rate = p.at(self.t).learning_rate
            self.w = subtracted(self.w, mean, learning_rate)
        else:
            self.w = mean
        for update in updates:
            self.samples += update.fields["samples"]

    async def extract_knowledge(self, updates: Sequence[Message], r: int) -> None:
        """Train the generator on the classifiers of the devices' models (equation 9)."""
        p = self.params
        heads = []
        for update in updates:
            head = {name: update.tensors[name] for name in CLASSIFIER}
            heads.append(head)
        random = self.learner.random("extraction", r)
        seed = int(random.integers(2**63))
        self.g = await self.compute(
            extract,
            self.g,
            heads,
            p,
            r,
            seed,
            self.device,
            samples=p.coordinator_training,
            mode="train",
        )

    # Algorithm 2: between silos

    async def serve(self) -> None:
        """Take in what other edges publish, and answer requests for this edge's model. Runs concurrently with `run`."""
        while True:
            message = await self.receive("features", "request")
            if message.kind == "request":
                requested = message.round
                await self.send(
                    message.sender,
                    "silo",
                    self.served,
                    owned=True,
                    round=requested,
                )
            else:
                self.take_published(message)

    def take_published(self, message: Message) -> None:
        """Note a published Z. A version that is known keeps its age: it comes again after a break of the link."""
        peer = message.sender
        version = round_of(message)
        entry = self.known.get(peer) or self.queue.get(peer)
        if entry is not None and entry.version == version:
            at = entry.at
        else:
            at = self.t
        z = message.tensors["z"]
        self.known[peer] = KnownEdge(z, version, at)

    async def announce(self, t: int) -> NDArray[np.float32]:
        """Publish (Z, version), and serve the model of this version. A version is the round in which it was made."""
        labels = self.shared_seed("labels")
        random = self.learner.random("projection", t)
        noise = int(random.integers(2**63))
        z: NDArray[np.float32]
        z = await self.compute(
            published,
            self.g,
            self.params,
            labels,
            noise,
            mode="other",
        )
        if isinstance(self.params, FEELPGenPlus):
            share = await self.compute(
                clipped_rows,
                self.g,
                self.params,
                labels,
                mode="other",
            )
            self.report(round=t, scope="generator", clipped_rows=share)
        self.served = self.w
        tensors = {"z": z}
        await self.publish(self.neighbours, "features", tensors, owned=True, round=t)
        return z

    async def personalise(self, t: int) -> None:
        p = self.params
        z = await self.announce(t)
        self.refresh(t)
        ranked = await self.compute(
            rank,
            z,
            self.queue,
            t,
            p,
            mode="other",
        )
        count = p.aggregated if p.eta_agg else 0
        available = [row for row in ranked if row.peer in self.present]
        sigma = {}
        for row in available[:count]:
            sigma[row.peer] = row.weight
        requested = list(sigma)
        await self.send(requested, "request", round=t)
        received = await self.gather(
            "silo",
            requested,
            round=t,
            quorum=0,
            deadline=p.patience,
        )
        senders = []
        states = []
        weights_of_senders = []
        for answer in models(self, received, self.w):
            senders.append(answer.sender)
            states.append(answer.tensors)
            weights_of_senders.append(sigma[answer.sender])
        self.w = await self.compute(
            aggregate,
            self.w,
            states,
            weights_of_senders,
            p,
            mode="other",
        )
        sigma_hat = normalised(weights_of_senders)
        shares = {}
        for j, sigma_j in zip(senders, sigma_hat, strict=True):
            shares[j] = p.eta_agg * sigma_j
        self.record_peers(t, ranked, requested, shares)

    def refresh(self, t: int) -> None:
        """Lines 8 to 12: take the published Z of K′ random peers into the queue; forget peers absent for long."""
        p = self.params
        candidates = sorted(self.known.keys() & self.present)
        refreshed = drawn(self, candidates, p.refreshed, "refresh", t)
        for peer in refreshed:
            self.queue[peer] = self.known[peer]
        if p.max_age is not None:
            self.forget(before=t - p.max_age)

    def forget(self, before: int) -> None:
        """Remove absent edges from the queue if their newest Z was received before this round."""
        present = self.present
        for peer, entry in list(self.queue.items()):
            outdated = entry.at < before
            if outdated and peer not in present:
                del self.queue[peer]

    async def average_all(self, t: int) -> None:
        """FEELPGen⁻: every edge sends its model to all others, and takes the mean of the models it has."""
        model = self.w if self.samples else None
        await self.publish(
            self.neighbours,
            "silo",
            model,
            owned=True,
            round=t,
            samples=self.samples,
        )
        patience = (self.params.inner_rounds + 1) * self.gathering.deadline  # others may need theirs T times
        received = await self.gather("silo", self.neighbours, round=t, deadline=patience)
        answers = fitting(self, received, self.w)
        fields = {"samples": self.samples}
        own = Message("silo", self.name, t, fields, self.w)
        everybody = [*answers, own]
        everybody.sort(key=lambda message: message.sender)
        total = sum(message.fields["samples"] for message in everybody)
        shares = {}
        if total:
            self.w = await average(self, everybody, self.w)
            for answer in answers:
                shares[answer.sender] = answer.fields["samples"] / total
        senders = [answer.sender for answer in answers]
        self.record_peers(t, [], senders, shares)

    def record_peers(
        self,
        t: int,
        ranked: Sequence[Ranked],
        requested: Sequence[str],
        shares: Mapping[str, float],
    ) -> None:
        """Record the ranked queue, the edges that this edge asked, and their shares of its new model."""
        queue = {}
        for row in ranked:
            queue[row.peer] = [
                row.version,
                row.age,
                row.kl,
                row.weight,
            ]
        self.note(
            "peers",
            round=t,
            queue=queue,
            asked=list(requested),
            shares=dict(shares),
        )


class Device(hierfavg.Device):
    """Trains on its own data and on features of the silo's generator."""

    async def run(self) -> None:
        p = self.params
        agreement = bool(p.agreement_factor)
        self.extra_work = await self.compute(
            self.learner.apply,
            reinforcement_work,
            p.generator_hidden,
            p.generated_batch,
            p.batch_size,
            agreement,
            mode="other",
        )
        await super().run()

    async def train(self, received: State, r: int) -> TrainResult:
        w = parted(received, "model")
        generator = parted(received, "generator")
        random = self.learner.random("generated", r)
        seed = int(random.integers(2**63))
        samples = self.learner.samples
        extra = reinforcement(self.params, generator, r, samples, seed)
        return await train(self, w, r, self.params, extra, self.extra_work)


ROLES: dict[str, type[Role]] = {"edge": Edge, "device": Device}
