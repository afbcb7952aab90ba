"""A generator G of features for labels. It learns the common knowledge of a group of models without their data.

Z. Zhu, J. Hong, J. Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021 (FedGen);
the loss of its training is FEELPGen's equation 9.

ω̂ state of the generator, z ~ G(· | y) a feature vector as long as the model's features, h(z; ω_i) logits of model i's
classifier, b* labels in a batch. G is one hidden layer with batch normalisation; its input is uniform noise and the
label. All functions depend on their arguments only: states are arrays, as in messages, and randomness comes from seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, cross_entropy, linear, log_softmax, nll_loss, one_hot, relu, softmax

from node.algorithms.feelpgen.parameters import FEELPGenMinus
from node.learning.aggregation import State, weighted_mean
from node.learning.devices import PROCESSOR, Constants, as_array
from node.learning.errors import ModelError
from node.learning.metrics import divergence
from node.learning.models import Model
from node.learning.optimizers import Adam
from node.learning.training import Learner, MiniBatch

NOISE = 32  # numbers of noise in the input, as in FedGen for MNIST
TRAINED = ("hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "output.weight", "output.bias")
CLASSIFIER = ("classifier.weight", "classifier.bias")
AHEAD = 20  # batches of features that are generated at once

TorchTensors = dict[str, Tensor]


def dimensions(model: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Classes and features of a model's state. ModelError if its classifier is more than one linear layer."""
    if any(name.startswith("classifier.") and name not in CLASSIFIER for name in model) or CLASSIFIER[0] not in model:
        raise ModelError("generated features need a model with one linear layer as classifier: use cnn or mlp")
    classes, features = model[CLASSIFIER[0]].shape
    return int(classes), int(features)


def new_generator(classes: int, features: int, hidden: int, seed: int) -> State:
    """The initial state of a generator. Layers are initialised as in torch, uniformly within 1 / √inputs."""
    random = torch.Generator().manual_seed(seed)

    def uniform(inputs: int, *shape: int) -> Tensor:
        bound = 1 / math.sqrt(inputs)
        return torch.empty(shape).uniform_(-bound, bound, generator=random)

    state = {
        "hidden.weight": uniform(NOISE + classes, hidden, NOISE + classes),
        "hidden.bias": uniform(NOISE + classes, hidden),
        "norm.weight": torch.ones(hidden),
        "norm.bias": torch.zeros(hidden),
        "norm.running_mean": torch.zeros(hidden),
        "norm.running_var": torch.ones(hidden),
        "output.weight": uniform(hidden, features, hidden),
        "output.bias": uniform(hidden, features),
    }
    return {name: values.numpy() for name, values in state.items()}


def generate(g: TorchTensors, noise: Tensor, labels: Tensor, *, training: bool = False) -> Tensor:
    """Features (b*, features) for `noise` (b*, 32) and `labels` (b*). With `training` the batch's own statistics are
    used and the running ones updated; otherwise the running statistics are used."""
    classes = g["hidden.weight"].shape[1] - NOISE
    inputs = torch.cat([noise, one_hot(labels, classes).to(noise.dtype)], dim=1)
    hidden = linear(inputs, g["hidden.weight"], g["hidden.bias"])
    mean = g["norm.running_mean"]
    variance = g["norm.running_var"]
    hidden = relu(batch_norm(hidden, mean, variance, g["norm.weight"], g["norm.bias"], training=training))
    return linear(hidden, g["output.weight"], g["output.bias"])


def extract(
    generator: State,
    heads: Sequence[Mapping[str, np.ndarray]],
    params: FEELPGenMinus,
    r: int,
    seed: int,
    device: str = PROCESSOR,
) -> State:
    """Train ω̂ on `device` against `heads`, the classifiers of the received models (equations 9 to 11), in inner round
    r, by Adam over `generator_steps` mini-batches of b* labels. Return the new state.

        L(ω̂) = f((1/N) Σ_i h(z; ω_i), y) + λ ‖ω̂ − ω̂_before‖²,   z ~ G(· | y) from noise + ε, y uniform

    The mean of the logits of linear classifiers equals the logits of their mean, so the classifiers are averaged once,
    unless h includes the softmax.
    """
    random = torch.Generator().manual_seed(seed)
    classes, _ = dimensions(heads[0])
    if params.generator_teacher == "probabilities":
        taught = heads
    else:
        taught = [weighted_mean(heads, [1.0] * len(heads))]
    weights, biases = (torch.stack([torch.tensor(head[name]) for head in taught]).to(device) for name in CLASSIFIER)
    g = {name: torch.tensor(values, device=device) for name, values in generator.items()}
    trained = [g[name].requires_grad_() for name in TRAINED]
    before = [values.detach().clone() for values in trained]
    step = Adam(trained, params.generator_rate(r))
    by_norm = params.generator_distance == "norm"
    for _ in range(params.generator_steps):
        y = torch.randint(classes, (params.generated_batch,), generator=random)
        noise = torch.rand(params.generated_batch, NOISE, generator=random)
        if params.latent_noise:
            noise = noise + params.latent_noise * torch.randn(noise.shape, generator=random)
        noise = noise.to(device)
        y = y.to(device)
        z = generate(g, noise, y, training=True)
        loss = ensemble_loss(z, y, weights, biases)
        if params.generator_lambda:
            loss = loss + params.generator_lambda * distance(trained, before, by_norm=by_norm)
        if params.diversity:
            loss = loss + params.diversity * alikeness(noise, z)
        step(loss)
    return {name: as_array(values) for name, values in g.items()}


def ensemble_loss(z: Tensor, y: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    """Cross-entropy of the mean probability that N classifiers, (N, classes, features) and (N, classes), give y."""
    if len(weights) == 1:
        return cross_entropy(linear(z, weights[0], biases[0]), y)
    log_probabilities = log_softmax(torch.einsum("bd,ncd->nbc", z, weights) + biases[:, None], dim=2)
    return nll_loss(torch.logsumexp(log_probabilities, dim=0) - math.log(len(weights)), y)


def distance(w: Sequence[Tensor], before: Sequence[Tensor], *, by_norm: bool) -> Tensor:
    """‖w − before‖² over all tensors, or ‖w − before‖, whose gradient at w = before is set to 0."""
    squared = torch.stack([torch.sum((now - then) ** 2) for now, then in zip(w, before, strict=True)]).sum()
    if not by_norm:
        return squared
    return torch.sqrt(squared) if squared > 0 else squared


def alikeness(noise: Tensor, z: Tensor) -> Tensor:
    """FedGen's diversity loss over all pairs a, b of a batch, exp(−mean((noise_a − noise_b)² · |z_a − z_b|)), each
    factor a mean over its dimensions: 1 where all z are equal, less the more z differ for different noise."""
    apart = ((noise[:, None] - noise[None]) ** 2).mean(dim=2)
    features_apart = (z[:, None] - z[None]).abs().mean(dim=2)
    return torch.exp(-(apart * features_apart).mean())


def sample_features(generator: State, labels: int, seed: int) -> np.ndarray:
    """Z (labels, features): the generator's features for labels and noise drawn from `seed`. Nodes with the same seed
    can compare their generators by it."""
    g = {name: torch.tensor(values) for name, values in generator.items()}
    return _draw(g, labels, torch.Generator().manual_seed(seed))[0].numpy()


def sample_pairs(generator: State, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two samples of the generator's features for the same labels, with different noise."""
    g = {name: torch.tensor(values) for name, values in generator.items()}
    random = torch.Generator().manual_seed(seed)
    first, y = _draw(g, labels, random)
    with torch.no_grad():
        return first.numpy(), generate(g, torch.rand(labels, NOISE, generator=random), y).numpy()


@dataclass(frozen=True)
class Reinforcement:
    """Knowledge reinforcement as a term of each mini-batch's loss, which is FedGen's for a client:

        weight · f(h(z*; ω), y*) + agreement · KL(h(z; ω) ‖ h(x; ω)),   z* ~ G(· | y*), z ~ G(· | y)

    for `batch` uniform labels y* (equations 12 and 13), and for the samples x of the mini-batch with their labels y.
    KL is between softmaxes, and h(z; ω) is a constant target. The generator itself does not learn from the term."""

    generator: State
    weight: float
    batch: int
    seed: int
    agreement: float = 0.0

    def __call__(self, model: Model, batch: MiniBatch) -> Tensor:
        z, labels = next(self._batches_on(batch.x.device))
        loss = self.weight * cross_entropy(model.classifier(z), labels)
        if not self.agreement:
            return loss
        with torch.no_grad():
            target = softmax(model.classifier(self._features_of(batch.y)), dim=1)
        return loss + self.agreement * divergence(batch.logits, target)

    def _features_of(self, labels: Tensor) -> Tensor:
        noise = torch.rand(len(labels), NOISE, generator=self._random).to(labels.device)
        return generate(self._generator.on(labels.device), noise, labels)

    def _batches_on(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        if device not in self._batches:
            self._batches[device] = _endless_batches(self._generator.on(device), self.batch, self.seed)
        return self._batches[device]

    @cached_property
    def _generator(self) -> Constants:
        return Constants(self.generator)

    @cached_property
    def _random(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed + 1)  # not the noise of `_batches`

    @cached_property
    def _batches(self) -> dict[torch.device, Iterator[tuple[Tensor, Tensor]]]:
        return {}


def reinforcement_work(
    learner: Learner,
    hidden: int,
    batch: int,
    samples: int,
    agreement: bool,
) -> float:
    """The time that `Reinforcement` takes in a mini-batch of `samples`, as a multiple of that without it: the passes
    through a generator that is `hidden` wide and through the classifier, and the losses."""
    classes = learner.data.classes
    features = learner.features
    classifier = learner.outline.classifier
    generator = nn.Sequential(
        nn.Linear(NOISE + classes, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, features)
    )
    noise, z, logits = (torch.zeros(1, size) for size in (NOISE + classes, features, classes))
    ahead = learner.beside([(generator, noise, AHEAD * batch, False)], samples) / AHEAD
    passes: list[tuple[nn.Module, Tensor, int, bool]] = [(nn.Sequential(classifier, nn.LogSoftmax(1)), z, batch, True)]
    if agreement:
        target = nn.Sequential(classifier, nn.Softmax(1))
        passes += [(generator, noise, samples, False), (target, z, samples, False)]
        passes += [(nn.LogSoftmax(1), logits, samples, True), (nn.Identity(), logits, samples, True)]  # KL
    return ahead + learner.beside(passes, samples)


def _endless_batches(g: TorchTensors, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of features and labels. Not a method: an object and its Python generator would refer to each other
    and stay in memory after their use."""
    random = torch.Generator().manual_seed(seed)
    while True:
        z, labels = _draw(g, AHEAD * batch, random)
        for start in range(0, len(labels), batch):
            yield z[start : start + batch], labels[start : start + batch]


def _draw(g: TorchTensors, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features for uniform labels, and the labels, on the device of `g`."""
    device = g["hidden.weight"].device
    labels = torch.randint(g["hidden.weight"].shape[1] - NOISE, (count,), generator=random).to(device)
    noise = torch.rand(count, NOISE, generator=random).to(device)
    with torch.no_grad():
        return generate(g, noise, labels), labels
