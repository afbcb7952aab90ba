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
it trains, ranks the edges it has heard of, and takes the models that arrive within `patience`. FEELPGen⁻: instead each
edge averages its model with those of all others. FEELPGen⁺: edges send the private projection of Z.

Departures (`profile: literal` takes the printed text if it can be executed):
- Equation 4, Algorithm 1 line 17 and Algorithm 2 line 19 subtract models from models: ω shrinks and learns nothing.
- Equation 17 adds KL and takes the largest weights, but the text requires small KL.
- Equation 13 weights by b*/|D|. The factor a, b*/B and the KL term are those of FedGen's published code, on which the
  paper builds: without a and KL the generator hardly changes the training (`profile: paper`).
- Equation 16 is infinite at age 0. Equation 3 divides by N twice.
- Equation 9's second term has no gradient in ω̂_k: ε is added to the generator's noise instead. Its third term is
  squared, since a norm has no gradient where training begins. The paper does not say how long a generator trains; Adam
  starts afresh each time.
- KL is that of softmaxes over a row's features, averaged over rows. Age counts the receiver's rounds since it first
  heard this version of Z.
- Algorithm 3 releases the components (32 x 2). The paper's bytes are those of the projection (320 x 2). The projection
  is the default, but the privacy of the components does not extend to it.
- Each edge projects on components of its own, so KL compares coordinates that mean different things at each edge.
  `released: common` projects on random directions that all edges share.
- s_j is divided by its sum in M, which equation 17 does not do: age then usually counts more than likeness.
- The generator has FedGen's width, and twice the paper's bytes. FedGen's client loss acts from the first round on, in
  FedGen from the second.
- E = 20 are mini-batches, as in FedGen. An edge receives all published Z (Algorithm 2, line 6) and uses K′ of them.
  An absent edge is not asked, and is forgotten `max_age` rounds after its newest Z was heard.
- An edge that is done serves on until the others are done. FEELPGen⁻ weights edges by the samples that took part.
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
class Heard:
    """An edge's knowledge of another edge: its Z, the version of Z, and the own round ``at`` which this version was
    first heard."""

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
    return float(np.sum(p * np.log((p + EPSILON) / (q + EPSILON)), axis=1).mean())


def _softmax(z: NDArray[Any]) -> NDArray[np.float64]:
    e = np.exp(np.asarray(z, np.float64) - z.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = e / e.sum(axis=1, keepdims=True)
    return result


def weights(kl: Sequence[float], ages: Sequence[int], p: FEELPGen) -> list[float]:
    """σ_j of equation 17 from KL and age (equation 16) of each entry of the queue."""
    likeness = np.asarray(kl, np.float64)
    if p.likeness == "similarity" and len(kl):
        likeness = np.exp(likeness.min() - likeness)
        likeness = likeness / likeness.sum()
    freshness = (1.0 + np.asarray(ages)) ** -p.staleness_penalty
    return [float(sigma) for sigma in p.gamma * likeness + p.staleness_constant * (1 - p.gamma) * freshness]


def rank(z: NDArray[Any], queue: Mapping[str, Heard], t: int, p: FEELPGen) -> list[Ranked]:
    """The queue sorted by weight, the largest first. Equal weights are in the order of names."""
    peers = sorted(queue)
    kl = [divergence(z, queue[j].z) for j in peers]
    ages = [t - queue[j].at for j in peers]
    versions = [queue[j].version for j in peers]
    rows = [Ranked(*row) for row in zip(peers, versions, ages, kl, weights(kl, ages, p), strict=True)]
    return sorted(rows, key=lambda row: -row.weight)


def aggregate(w: State, others: Sequence[Mapping[str, Any]], sigma: Sequence[float], p: FEELPGen) -> State:
    """ω + η Σ_j σ̂_j (ω_j − ω); `literal` is equation 4 as printed."""
    if not others or p.eta_agg == 0:
        return w
    if p.aggregation == "literal":
        return subtracted(w, weighted_mean(others, normalised(sigma)), p.eta_agg)
    return weighted_mean([w, *others], [1 - p.eta_agg, *(p.eta_agg * share for share in normalised(sigma))])


def normalised(sigma: Sequence[float]) -> list[float]:
    """σ̂ = σ / Σσ; equal shares if all are 0."""
    total = sum(sigma)
    return [each / total if total else 1 / len(sigma) for each in sigma]


def subtracted(w: State, mean: State, eta: float) -> State:
    """ω − η · mean, of floats: Algorithm 1 line 17 and Algorithm 2 line 19 as printed."""
    return {name: v - v.dtype.type(eta) * mean[name] if v.dtype.kind == "f" else mean[name] for name, v in w.items()}


def published(generator: State, p: FEELPGen, labels: int, noise: int) -> NDArray[np.float32]:
    """Z of a generator, or FEELPGen⁺'s release of it (Algorithm 3, lines 16 to 18). `labels`, `noise` are seeds."""
    z = sample_features(generator, p.features, labels)
    if not isinstance(p, FEELPGenPlus):
        return z
    if p.released == "common":
        return project(z, common_basis(z.shape[1], p.components, np.random.default_rng(labels)))
    basis = private_basis(z, p.components, p.epsilon, p.delta, np.random.default_rng(noise))
    if p.released == "basis":
        return basis.T.astype(np.float32)
    return project(z, basis)


def clipped_rows(generator: State, p: FEELPGen, labels: int) -> float:
    """The share of the rows of Z that FEELPGen⁺ scales to norm 1 before it projects them."""
    return clipped_share(sample_features(generator, p.features, labels))


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
        beside = p.batch_size
    else:
        beside = max(samples, 1)
    decay = p.factor_decay ** (r - 1)
    return Reinforcement(generator, p.generated_factor * decay * b / beside, b, seed, p.agreement_factor * decay)


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
            if isinstance(self.params, FEELPGenPlus) and self.name == min([self.name, *self.neighbours]):
                self.note("note", text=f"FEELPGen⁺: {guarantee(self.params)}")
            if isinstance(self.params, FEELPGen) and self.restored is not None:
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
            await self.gather("done", self.neighbours, round=self.t, quorum=0, deadline=math.inf)

    def begin(self) -> None:
        """Set the first state: model, generator, queue M, and heard Z that are not in the queue yet."""
        self.heard: dict[str, Heard] = {}
        self.queue: dict[str, Heard] = {}
        kept_served: State = {}
        if self.restored is None:
            self.w: State = self.learner.initial()
            hidden = self.params.generator_hidden
            seed = self.shared_seed("generator")
            self.g = new_generator(*dimensions(self.w), hidden, seed)
        else:
            self.t = self.restored.round
            self.w, self.g = (parted(self.restored.tensors, part) for part in ("model", "generator"))
            kept_served = parted(self.restored.tensors, "served")
            z = parted(self.restored.tensors, "queue")
            self.queue = {peer: Heard(z[peer], *numbers) for peer, numbers in self.restored.fields["queue"].items()}
        self.served = kept_served or self.w

    async def evaluate_trained(self, t: int) -> None:
        """Report the accuracy before silos exchange models, to show the gain of the exchange, and how much features of
        a label differ (Table IV)."""
        pairs = await self.compute(sample_pairs, self.g, ROWS, self.shared_seed("pairs"), mode="other")
        self.report(round=t, scope="generator", divergence=divergence(*pairs))
        if "own" in self.learner.tests:
            result = await evaluated(self, self.w, "own", self.params.evaluate_samples)
            self.report(round=t, scope="own", accuracy_before_meeting=result.accuracy)

    async def keep(self, t: int) -> None:
        queue = {peer: [entry.version, entry.at] for peer, entry in self.queue.items()}
        z = {peer: entry.z for peer, entry in self.queue.items()}
        tensors = joined(model=self.w, generator=self.g, queue=z)
        if isinstance(self.params, FEELPGen):
            tensors |= joined(served=self.served)  # the model of the version that the other edges know
        await self.checkpoint(t, tensors, queue=queue)

    # Algorithm 1: inside the silo

    async def inner_round(self, r: int) -> None:
        p = self.params
        devices = participants(self, p.participation, r)
        await self.publish(devices, "model", joined(model=self.w, generator=self.g), owned=True, round=r)
        updates = with_samples(self, fitting(self, await self.gather("update", devices, round=r), self.w))
        if not updates:
            return
        heads = [{name: update.tensors[name] for name in CLASSIFIER} for update in updates]
        seed = int(self.learner.random("extraction", r).integers(2**63))
        self.g = await self.compute(
            extract, self.g, heads, p, r, seed, self.device, samples=p.coordinator_training, mode="train"
        )
        mean = await average(self, updates, self.w)
        if p.aggregation == "literal":
            self.w = subtracted(self.w, mean, p.at(self.t).learning_rate)
        else:
            self.w = mean
        self.samples += sum(update.fields["samples"] for update in updates)

    # Algorithm 2: between silos

    async def serve(self) -> None:
        """Take in what other edges publish, and answer requests for this edge's model. Runs concurrently with `run`."""
        while True:
            message = await self.receive("features", "request")
            if message.kind == "request":
                await self.send(message.sender, "silo", self.served, owned=True, round=message.round)
            else:
                self.hear(message)

    def hear(self, message: Message) -> None:
        """Note a published Z. A version that is known keeps its age: it comes again after a break of the link."""
        peer = message.sender
        version = round_of(message)
        known = self.heard.get(peer) or self.queue.get(peer)
        if known is not None and known.version == version:
            at = known.at
        else:
            at = self.t
        self.heard[peer] = Heard(message.tensors["z"], version, at)

    async def announce(self, t: int) -> NDArray[np.float32]:
        """Publish (Z, version), and serve the model of this version. A version is the round in which it was made."""
        labels = self.shared_seed("labels")
        noise = int(self.learner.random("projection", t).integers(2**63))
        z: NDArray[np.float32] = await self.compute(published, self.g, self.params, labels, noise, mode="other")
        if isinstance(self.params, FEELPGenPlus):
            share = await self.compute(clipped_rows, self.g, self.params, labels, mode="other")
            self.report(round=t, scope="generator", clipped_rows=share)
        self.served = self.w
        await self.publish(self.neighbours, "features", {"z": z}, owned=True, round=t)
        return z

    async def personalise(self, t: int) -> None:
        p = self.params
        z = await self.announce(t)
        self.refresh(t)
        ranked = await self.compute(rank, z, self.queue, t, p, mode="other")
        there = [row for row in ranked if row.peer in self.present][: p.aggregated if p.eta_agg else 0]
        requested = [row.peer for row in there]
        await self.send(requested, "request", round=t)
        answers = await self.gather("silo", requested, round=t, quorum=0, deadline=p.patience)
        answers = models(self, answers, self.w)
        sigma = {row.peer: row.weight for row in there}
        senders = [answer.sender for answer in answers]
        states = [answer.tensors for answer in answers]
        taken = [sigma[sender] for sender in senders]
        self.w = await self.compute(aggregate, self.w, states, taken, p, mode="other")
        shares = {j: p.eta_agg * share for j, share in zip(senders, normalised(taken), strict=True)}
        self.tell(t, ranked, requested, shares)

    def refresh(self, t: int) -> None:
        """Lines 8 to 12: take the published Z of K′ random peers into the queue; forget peers absent for long."""
        p = self.params
        for peer in drawn(self, sorted(self.heard.keys() & self.present), p.refreshed, "refresh", t):
            self.queue[peer] = self.heard[peer]
        if p.max_age is not None:
            there = self.present
            oldest = t - p.max_age
            self.queue = {peer: each for peer, each in self.queue.items() if peer in there or each.at >= oldest}

    async def average_all(self, t: int) -> None:
        """FEELPGen⁻: every edge sends its model to all others, and takes the mean of the models it has."""
        mine = self.w if self.samples else None
        await self.publish(self.neighbours, "silo", mine, owned=True, round=t, samples=self.samples)
        patience = (self.params.inner_rounds + 1) * self.gathering.deadline  # others may need theirs T times
        answers = fitting(self, await self.gather("silo", self.neighbours, round=t, deadline=patience), self.w)
        own = Message("silo", self.name, t, {"samples": self.samples}, self.w)
        everybody = sorted([*answers, own], key=lambda each: each.sender)
        total = sum(each.fields["samples"] for each in everybody)
        if total:
            self.w = await average(self, everybody, self.w)
        else:
            self.w = self.w
        shares = {each.sender: each.fields["samples"] / total for each in answers if total}
        self.tell(t, [], [each.sender for each in answers], shares)

    def tell(self, t: int, ranked: Sequence[Ranked], requested: Sequence[str], shares: Mapping[str, float]) -> None:
        """Record the ranked queue, the edges that this edge asked, and their shares of its new model."""
        queue = {row.peer: [row.version, row.age, row.kl, row.weight] for row in ranked}
        self.note("peers", round=t, queue=queue, asked=list(requested), shares=dict(shares))


class Device(hierfavg.Device):
    """Trains on its own data and on features of the silo's generator."""

    async def run(self) -> None:
        p = self.params
        sizes = (p.generator_hidden, p.generated_batch, p.batch_size, bool(p.agreement_factor))
        self.extra_work = await self.compute(self.learner.apply, reinforcement_work, *sizes, mode="other")
        await super().run()

    async def train(self, received: State, r: int) -> TrainResult:
        w, generator = (parted(received, part) for part in ("model", "generator"))
        seed = int(self.learner.random("generated", r).integers(2**63))
        extra = reinforcement(self.params, generator, r, self.learner.samples, seed)
        return await train(self, w, r, self.params, extra, self.extra_work)


ROLES: dict[str, type[Role]] = {"edge": Edge, "device": Device}
