"""FedGen. Z. Zhu, J. Hong, J. Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021,
arXiv 2105.10056, Algorithm 1 and equations 4 and 5, and the authors' published code.

w model, w_k of client k, h(z; w_k) logits of its classifier for features z, h(x) logits for a sample x, G generator,
z = G(ε, y) features for a label y and uniform noise ε, ℓ cross-entropy, c_k,y samples of client k with label y, n_k all
its samples, p̂(y) = Σ_k c_k,y / n, α_k,y = c_k,y / Σ_j c_j,y, B samples in a mini-batch, b* generated ones, t round.

    client   w_k ← w, then local training with the loss                                            equation 5
             ℓ(h(x), y) + a_t (b* / B) ℓ(h(z*; w_k), y*) + a'_t KL(h(z; w_k) ‖ h(x)),
             y* ~ p̂, z* = G(ε, y*), z = G(ε, y);
             send w_k and c_k
    cloud    steps on G down E_{y ~ p̂} Σ_k α_k,y ℓ(h(G(ε, y); w_k), y) + γ D                       equation 4
             D = exp(−mean_{i,j} ‖ε_i − ε_j‖² |z_i − z_j|), each distance a mean over its dimensions;
             w ← Σ_k (n_k / n) w_k;  p̂ from the c_k

All clients have one model. G is one hidden layer with batch normalisation. a_t = a'_t = 10 · 0.98^(t−1), γ = 1, KL and
α_k,y are the defaults of the published code. `profile: paper` has what the paper prints: a_t = 1, no KL,
γ = 0, and in equation 4 the loss of the mean logits, ℓ(1/K Σ_k h(z; w_k), y). a_t = a'_t = 0 is FedAvg.

Departures:
- The paper was not available: its equations are from memory, compared with the published code.
- y* ~ p̂ as in Algorithm 1. The code draws evenly from the labels that occur. c_k counts all samples of client k.
  The code counts those of the round's mini-batches, from 1 on.
- Clients learn from G once it has been trained, from the second round on, as in the code.
- Every client takes part in every round. The models are weighted by n_k, as in the code; the paper's weights are even.
- Adam starts afresh in each round of G's training. In the code its moments stay.
- KL is between softmaxes, with a constant target h(z). G itself does not learn from the clients' losses.
- On the virtual clock a generated sample of G's training takes as long as a sample of the model's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, one_hot, softmax

import edgebed
from edgebed.baselines import plugin

NOISE = 32  # numbers in ε, as in the published code for MNIST
CLASSIFIER = "classifier."


@dataclass(frozen=True, kw_only=True)
class FedGen(edgebed.LocalTraining):
    """generated_batch b*; generated_factor and agreement_factor: a_1 and a'_1, multiplied by factor_decay after each
    round; generator_hidden: width of G; generator_steps per round, by Adam with generator_learning_rate, multiplied by
    generator_decay after each round, and generator_weight_decay; generator_teacher: the clients' `losses`, weighted by
    α_k,y, or the loss of their mean `logits`; diversity γ.

    profile: `published`, the defaults, or `paper`, the printed losses. Explicit parameters take precedence.
    """

    profile: str = edgebed.word("published", "published", "paper")
    generated_batch: int = edgebed.whole(32, low=2)
    generated_factor: float = edgebed.number(10.0, low=0)
    agreement_factor: float = edgebed.number(10.0, low=0)
    factor_decay: float = edgebed.number(0.98, low=0, above=True, high=1)
    generator_hidden: int = edgebed.whole(256, low=1)
    generator_steps: int = edgebed.whole(50, low=1)
    generator_learning_rate: float = edgebed.number(3e-4, low=0, above=True)
    generator_decay: float = edgebed.number(0.98, low=0, above=True, high=1)
    generator_weight_decay: float = edgebed.number(0.01, low=0)
    generator_teacher: str = edgebed.word("losses", "losses", "logits")
    diversity: float = edgebed.number(1.0, low=0)

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "generated_factor": 1.0,
            "agreement_factor": 0.0,
            "factor_decay": 1.0,
            "generator_teacher": "logits",
            "diversity": 0.0,
        }
    }

    def of_generator(self, t: int) -> edgebed.LocalTraining:
        """The optimizer's parameters for G in round t."""
        decay = self.generator_decay ** (t - 1)
        return self.local(
            optimizer="adam",
            momentum=0.0,
            learning_rate=self.generator_learning_rate * decay,
            weight_decay=self.generator_weight_decay,
        )


class Generator(nn.Module):
    """z = G(ε, y): ε (b, 32), y (b,), z (b, features). Evaluation mode uses the running statistics."""

    def __init__(self, classes: int, features: int, hidden: int) -> None:
        super().__init__()
        self.classes = classes
        self.layers = nn.Sequential(
            nn.Linear(NOISE + classes, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, features),
        )

    def forward(self, noise: Tensor, y: Tensor) -> Tensor:
        labels = one_hot(y, self.classes).to(noise.dtype)
        inputs = torch.cat([noise, labels], dim=1)
        z: Tensor = self.layers(inputs)
        return z


def new_generator(
    classes: int,
    features: int,
    hidden: int,
    seed: int = 0,
) -> Generator:
    """G with initial weights by `seed`. torch's global generator of random numbers stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Generator(classes, features, hidden)


def loaded(state: edgebed.State) -> Generator:
    """G with the weights and the sizes of `state`."""
    hidden, inputs = state["layers.0.weight"].shape
    features = len(state["layers.3.bias"])
    g = new_generator(inputs - NOISE, features, hidden)
    return edgebed.load_state(g, state)


def initial_generator(learner: edgebed.Learner, hidden: int, seed: int) -> edgebed.State:
    """The first state of G for the features of the node's model."""
    classes = learner.data.classes
    g = new_generator(classes, learner.features, hidden, seed)
    return edgebed.state_of(g)


def label_counts(learner: edgebed.Learner) -> NDArray[np.int64]:
    """c_k (classes,)."""
    if learner.samples:
        _, y = learner.train_data
        labels = y.cpu().numpy()
    else:
        labels = np.zeros(0, np.int64)
    counts = np.bincount(labels, minlength=learner.data.classes)
    return counts.astype(np.int64)


def distribution(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """p̂ (classes,) from the c_k (K, classes)."""
    of_labels = counts.sum(axis=0)
    p_hat = of_labels / counts.sum()
    shares: NDArray[np.float32] = p_hat.astype(np.float32)
    return shares


def shares_of_clients(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """α_k,y (K, classes) from the c_k (K, classes). 0 for a label that no client has."""
    of_labels = np.maximum(counts.sum(axis=0), 1)
    alpha = counts / of_labels
    shares: NDArray[np.float32] = alpha.astype(np.float32)
    return shares


def ensemble_loss(logits: Tensor, y: Tensor, shares: Tensor | None) -> Tensor:
    """Mean over y (b,) of Σ_k α_k,y ℓ(logits_k, y), for logits (K, b, classes) and `shares` α (K, classes). Without
    shares, the loss of the mean logits."""
    if shares is None:
        return cross_entropy(logits.mean(dim=0), y)
    clients = len(logits)
    all_logits = logits.flatten(0, 1)
    all_losses = cross_entropy(all_logits, y.repeat(clients), reduction="none")
    losses = all_losses.view(clients, -1)
    weighted = shares[:, y] * losses
    return weighted.sum(dim=0).mean()


def alikeness(noise: Tensor, z: Tensor) -> Tensor:
    """D over all pairs of a batch, for noise (b, 32) and features z (b, features). 1 where all z are equal."""
    noise_differences = noise[:, None] - noise[None]
    noise_apart = noise_differences.square().mean(dim=2)
    feature_differences = z[:, None] - z[None]
    features_apart = feature_differences.abs().mean(dim=2)
    apart = (noise_apart * features_apart).mean()
    return torch.exp(-apart)


def train_generator(
    learner: edgebed.Learner,
    state: edgebed.State,
    models: Sequence[edgebed.State],
    counts: NDArray[np.int64],
    params: FedGen,
    t: int,
) -> edgebed.State:
    """G after the steps of round t against the classifiers of the clients' `models`, of K, with their c_k (K, classes).
    The classifiers are in evaluation mode."""
    device = learner.device
    generator = loaded(state).to(device).train()
    heads = [head_of(learner, model) for model in models]
    p = torch.tensor(distribution(counts))
    shares: Tensor | None = None
    if params.generator_teacher == "losses":
        shares = torch.tensor(shares_of_clients(counts), device=device)
    seeds = learner.random("generator", t)
    seed = int(seeds.integers(2**63))
    random = torch.Generator().manual_seed(seed)
    b = params.generated_batch
    weights = list(generator.parameters())
    step = edgebed.optimizer(weights, params.of_generator(t))
    for _ in range(params.generator_steps):
        y = torch.multinomial(p, b, replacement=True, generator=random)
        noise = torch.rand(b, NOISE, generator=random)
        y = y.to(device)
        noise = noise.to(device)
        z = generator(noise, y)
        logits = torch.stack([head(z) for head in heads])
        loss = ensemble_loss(logits, y, shares)
        if params.diversity:
            loss = loss + params.diversity * alikeness(noise, z)
        step(loss)
    return edgebed.state_of(generator)


def head_of(learner: edgebed.Learner, model: edgebed.State) -> nn.Module:
    """A classifier with the weights of `model`."""
    head = copy.deepcopy(learner.model.classifier)
    head.eval().requires_grad_(False)
    weights: edgebed.State = {}
    for name, values in model.items():
        if name.startswith(CLASSIFIER):
            weights[name.removeprefix(CLASSIFIER)] = values
    return edgebed.load_state(head, weights)


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ softmax of the logits) of (b, classes) each, the mean over samples. A class that both exclude, with
    p = 0 and a logit of minus infinity, counts 0."""
    excluded = (target == 0) & (logits == -torch.inf)
    log_probabilities = log_softmax(logits, dim=1)
    finite = log_probabilities.masked_fill(excluded, 0.0)
    return kl_div(finite, target, reduction="batchmean")


@dataclass(frozen=True, eq=False)
class Distilled:
    """The two terms of a client's loss on generated features: weight · ℓ(h(z*), y*) for `batch` labels y* ~ p̂, and
    agreement · KL(h(z) ‖ h(x)) for the labels of the mini-batch."""

    generator: edgebed.State
    labels: NDArray[np.float32]  # p̂ (classes,)
    weight: float  # a_t b* / B
    agreement: float  # a'_t
    batch: int  # b*
    seed: int

    def __call__(self, model: edgebed.Model, batch: edgebed.MiniBatch) -> Tensor:
        p = torch.tensor(self.labels)
        drawn = torch.multinomial(p, self.batch, replacement=True, generator=self._random)
        drawn = drawn.to(batch.y.device)
        labels = torch.cat([drawn, batch.y])
        z = self.features(labels)
        z_star = z[: self.batch]
        logits = model.classifier(z_star)
        loss = self.weight * cross_entropy(logits, drawn)
        if not self.agreement:
            return loss
        z_batch = z[self.batch :]
        with torch.no_grad():
            target = softmax(model.classifier(z_batch), dim=1)
        return loss + self.agreement * divergence(batch.logits, target)

    def features(self, y: Tensor) -> Tensor:
        """Generated features for the labels y (b,), with new noise."""
        device = y.device
        with torch.no_grad():
            noise = torch.rand(len(y), NOISE, generator=self._random)
            generator = self._generator.to(device)
            z: Tensor = generator(noise.to(device), y)
        return z

    @cached_property
    def _generator(self) -> Generator:
        return loaded(self.generator).eval()

    @cached_property
    def _random(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


def distilled_work(learner: edgebed.Learner, params: FedGen) -> float:
    """The time that `Distilled` takes in a mini-batch, as a multiple of that without it."""
    classes = learner.data.classes
    classifier = learner.outline.classifier
    batch = params.batch_size
    b = params.generated_batch
    g = new_generator(classes, learner.features, params.generator_hidden)
    generator = g.layers
    noise = torch.zeros(1, NOISE + classes)
    z = torch.zeros(1, learner.features)
    logits = torch.zeros(1, classes)
    predicted = nn.Sequential(classifier, nn.LogSoftmax(1))
    passes: list[tuple[nn.Module, Tensor, int, bool]] = []
    passes.append((generator, noise, b + batch, False))
    passes.append((predicted, z, b, True))
    if params.agreement_factor:
        target = nn.Sequential(classifier, nn.Softmax(1))
        passes.append((target, z, batch, False))
        passes.append((nn.LogSoftmax(1), logits, batch, True))
        passes.append((nn.Identity(), logits, batch, True))  # KL
    return learner.beside(passes, batch)


def distilled(
    generator: edgebed.State,
    labels: NDArray[np.float32],
    params: FedGen,
    t: int,
    seed: int,
) -> Distilled | None:
    """A client's terms in round t. None while G is untrained, and if both factors are 0."""
    decay = params.factor_decay ** (t - 1)
    b = params.generated_batch
    weight = params.generated_factor * decay * b / params.batch_size
    agreement = params.agreement_factor * decay
    untrained = not labels.any()
    if untrained or (not weight and not agreement):
        return None
    return Distilled(
        generator,
        labels=labels,
        weight=weight,
        agreement=agreement,
        batch=b,
        seed=seed,
    )


class Cloud(edgebed.Role):
    """Averages the models, and trains G. Its model has the final accuracy on the global test set."""

    async def run(self) -> None:
        w, g, labels = await self.first_state()
        form = edgebed.joined(model=w)
        classes = len(labels)
        form["counts"] = np.zeros(classes, np.int64)
        async for t in self.rounds():
            sent = together(w, g, labels)
            await self.publish(self.children, "model", sent, owned=True, round=t)
            gathered = await self.gather("update", self.children, round=t)
            fit = edgebed.fitting(self, gathered, form)
            updates = edgebed.with_samples(self, fit)
            if updates:
                models = []
                all_counts = []
                samples = []
                for update in updates:
                    models.append(edgebed.parted(update.tensors, "model"))
                    all_counts.append(update.tensors["counts"])
                    samples.append(update.fields["samples"])
                counts = np.stack(all_counts)
                g = await self.train_generator(g, models, counts, t)
                w = await self.compute(edgebed.weighted_mean, models, samples, mode="other")
                labels = distribution(counts)
            await edgebed.evaluate(self, w, t)
            kept = together(w, g, labels)
            await self.checkpoint(t, kept)

    async def first_state(self) -> tuple[edgebed.State, edgebed.State, NDArray[np.float32]]:
        """w, G and p̂."""
        if self.restored is not None:
            tensors = self.restored.tensors
            w = edgebed.parted(tensors, "model")
            g = edgebed.parted(tensors, "generator")
            return w, g, tensors["labels"]
        w = self.learner.initial()
        apply = self.learner.apply
        hidden = self.params.generator_hidden
        seed = self.seed("generator")
        g = await self.compute(apply, initial_generator, hidden, seed, mode="other")
        classes = self.learner.data.classes
        labels = np.zeros(classes, np.float32)
        return w, g, labels

    async def train_generator(
        self,
        g: edgebed.State,
        models: Sequence[edgebed.State],
        counts: NDArray[np.int64],
        t: int,
    ) -> edgebed.State:
        p = self.params
        return await self.compute(
            self.learner.apply,
            train_generator,
            g,
            models,
            counts,
            p,
            t,
            samples=p.generator_steps * p.generated_batch,
        )


def together(
    w: edgebed.State,
    g: edgebed.State,
    labels: NDArray[np.float32],
) -> edgebed.State:
    """w, G and p̂ in one message or checkpoint."""
    tensors = edgebed.joined(model=w, generator=g)
    tensors["labels"] = labels
    return tensors


class Client(edgebed.Role):
    """Trains on its own data and on generated features. Evaluates the trained model on its own test set, if it has
    one."""

    async def run(self) -> None:
        apply = self.learner.apply
        counts = await self.compute(apply, label_counts, mode="other")
        work_of_terms = await self.compute(apply, distilled_work, self.params, mode="other")
        while True:
            message = await self.receive("model", sender=self.parent)
            t = edgebed.round_of(message)
            w = edgebed.parted(message.tensors, "model")
            extra = self.terms(message.tensors, t)
            extra_work = work_of_terms if extra else 0.0
            result = await edgebed.train(
                self,
                w,
                t,
                self.params,
                extra,
                extra_work,
            )
            self.report(round=t, scope="train", **result.metrics)
            await edgebed.evaluate(self, result.weights, t)
            update = edgebed.joined(model=result.weights)
            update["counts"] = counts
            await self.send(
                self.parent,
                "update",
                update,
                owned=True,
                round=t,
                samples=result.samples,
            )

    def terms(self, tensors: Mapping[str, NDArray[Any]], t: int) -> Distilled | None:
        """The two terms of the loss on generated features."""
        g = edgebed.parted(tensors, "generator")
        random = self.learner.random("generated", t)
        seed = int(random.integers(2**63))
        p_hat = tensors["labels"]
        return distilled(g, p_hat, self.params, t, seed)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "FedAvg; clients also learn from features that a generator makes for all labels"
PLUGIN = plugin("fedgen", FedGen, SUMMARY, featured=True, whole=True, classes=True)
