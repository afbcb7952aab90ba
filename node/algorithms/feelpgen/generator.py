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
AHEAD = 20  # batches of features in one pass of the generator

TorchTensors = dict[str, Tensor]
Classifier = Mapping[str, np.ndarray]
Pass = tuple[nn.Module, Tensor, int, bool]
"""Of `Learner.beside`: a module, a sample of its input, the number of samples, and whether it is trained."""


def dimensions(model: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Classes and features of a model's state. ModelError if its classifier is more than one linear layer."""
    layers = set()
    for name in model:
        if name.startswith("classifier."):
            layers.add(name)
    one_linear_layer = CLASSIFIER[0] in layers and layers.issubset(CLASSIFIER)
    if not one_linear_layer:
        raise ModelError("generated features need a model with one linear layer as classifier: use cnn or mlp")
    classes, features = model[CLASSIFIER[0]].shape
    return int(classes), int(features)


def new_generator(
    classes: int,
    features: int,
    hidden: int,
    seed: int,
) -> State:
    """The initial state of a generator. Layers are initialised as in torch, uniformly within 1 / √inputs."""
    random = torch.Generator().manual_seed(seed)
    inputs = NOISE + classes

    def uniform(fan_in: int, *shape: int) -> Tensor:
        bound = 1 / math.sqrt(fan_in)
        values = torch.empty(shape)
        return values.uniform_(-bound, bound, generator=random)

    state = {
        "hidden.weight": uniform(inputs, hidden, inputs),
        "hidden.bias": uniform(inputs, hidden),
        "norm.weight": torch.ones(hidden),
        "norm.bias": torch.zeros(hidden),
        "norm.running_mean": torch.zeros(hidden),
        "norm.running_var": torch.ones(hidden),
        "output.weight": uniform(hidden, features, hidden),
        "output.bias": uniform(hidden, features),
    }
    return {name: values.numpy() for name, values in state.items()}


def generate(
    g: TorchTensors,
    noise: Tensor,
    labels: Tensor,
    *,
    training: bool = False,
) -> Tensor:
    """Features (b*, features) for `noise` (b*, 32) and `labels` (b*). With `training` the batch's own statistics are
    used and the running ones updated; otherwise the running statistics are used."""
    classes = _classes_of(g)
    one_hot_labels = one_hot(labels, classes).to(noise.dtype)
    inputs = torch.cat([noise, one_hot_labels], dim=1)
    hidden = linear(inputs, g["hidden.weight"], g["hidden.bias"])
    normalised = batch_norm(
        hidden,
        running_mean=g["norm.running_mean"],
        running_var=g["norm.running_var"],
        weight=g["norm.weight"],
        bias=g["norm.bias"],
        training=training,
    )
    activated = relu(normalised)
    return linear(activated, g["output.weight"], g["output.bias"])


def extract(
    generator: State,
    heads: Sequence[Classifier],
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
    b = params.generated_batch
    teachers = _teachers(heads, params)
    weights, biases = _stacked(teachers, device)
    g = _tensors(generator, device)
    w = [g[name].requires_grad_() for name in TRAINED]
    w_before = [values.detach().clone() for values in w]
    step = Adam(w, params.generator_rate(r))
    by_norm = params.generator_distance == "norm"
    for _ in range(params.generator_steps):
        y = torch.randint(classes, (b,), generator=random)
        noise = torch.rand(b, NOISE, generator=random)
        if params.latent_noise:
            epsilon = torch.randn(noise.shape, generator=random)
            noise = noise + params.latent_noise * epsilon
        noise = noise.to(device)
        y = y.to(device)
        z = generate(g, noise, y, training=True)
        loss = ensemble_loss(z, y, weights, biases)
        if params.generator_lambda:
            moved = distance(w, w_before, by_norm=by_norm)
            loss = loss + params.generator_lambda * moved
        if params.diversity:
            loss = loss + params.diversity * alikeness(noise, z)
        step(loss)
    return {name: as_array(values) for name, values in g.items()}


def _teachers(heads: Sequence[Classifier], params: FEELPGenMinus) -> Sequence[Classifier]:
    """The classifiers that the generator learns from: each of `heads`, or only their mean."""
    if params.generator_teacher == "probabilities":
        return heads
    equal_weights = [1.0] * len(heads)
    return [weighted_mean(heads, equal_weights)]


def _stacked(heads: Sequence[Classifier], device: str) -> tuple[Tensor, Tensor]:
    """Weights (N, classes, features) and biases (N, classes) of N classifiers, on `device`."""
    weight, bias = CLASSIFIER
    weights = []
    biases = []
    for head in heads:
        weights.append(torch.tensor(head[weight]))
        biases.append(torch.tensor(head[bias]))
    stacked_weights = torch.stack(weights)
    stacked_biases = torch.stack(biases)
    return stacked_weights.to(device), stacked_biases.to(device)


def ensemble_loss(
    z: Tensor,
    y: Tensor,
    weights: Tensor,
    biases: Tensor,
) -> Tensor:
    """Cross-entropy of the mean probability that N classifiers, (N, classes, features) and (N, classes), give y."""
    if len(weights) == 1:
        logits = linear(z, weights[0], biases[0])
        return cross_entropy(logits, y)
    products = torch.einsum("bd,ncd->nbc", z, weights)
    logits = products + biases[:, None]
    log_probabilities = log_softmax(logits, dim=2)
    log_sum = torch.logsumexp(log_probabilities, dim=0)
    log_mean = log_sum - math.log(len(weights))
    return nll_loss(log_mean, y)


def distance(w: Sequence[Tensor], before: Sequence[Tensor], *, by_norm: bool) -> Tensor:
    """‖w − before‖² over all tensors, or ‖w − before‖, with a gradient of 0 at w = before."""
    squares = []
    for now, then in zip(w, before, strict=True):
        difference = now - then
        squares.append(torch.sum(difference**2))
    squared = torch.stack(squares).sum()
    if by_norm and squared > 0:
        return torch.sqrt(squared)
    return squared


def alikeness(noise: Tensor, z: Tensor) -> Tensor:
    """FedGen's diversity loss over all pairs a, b of a batch, exp(−mean((noise_a − noise_b)² · |z_a − z_b|)), each
    factor a mean over its dimensions: 1 where all z are equal, less the more z differ for different noise."""
    noise_differences = noise[:, None] - noise[None]
    noise_apart = (noise_differences**2).mean(dim=2)
    feature_differences = z[:, None] - z[None]
    features_apart = feature_differences.abs().mean(dim=2)
    apart = (noise_apart * features_apart).mean()
    return torch.exp(-apart)


def sample_features(generator: State, labels: int, seed: int) -> np.ndarray:
    """Z (labels, features): the generator's features for labels and noise drawn from `seed`. Nodes with the same seed
    can compare their generators by it."""
    g = _tensors(generator)
    random = torch.Generator().manual_seed(seed)
    z, _ = _draw(g, labels, random)
    return z.numpy()


def sample_pairs(
    generator: State,
    labels: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Two samples of the generator's features for the same labels, with different noise."""
    g = _tensors(generator)
    random = torch.Generator().manual_seed(seed)
    first, y = _draw(g, labels, random)
    noise = torch.rand(labels, NOISE, generator=random)
    with torch.no_grad():
        second = generate(g, noise, y)
    return first.numpy(), second.numpy()


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
        batches = self._batches_on(batch.x.device)
        z, y = next(batches)
        logits = model.classifier(z)
        loss = self.weight * cross_entropy(logits, y)
        if not self.agreement:
            return loss
        with torch.no_grad():
            generated = self._features_of(batch.y)
            target = softmax(model.classifier(generated), dim=1)
        kl = divergence(batch.logits, target)
        return loss + self.agreement * kl

    def _features_of(self, labels: Tensor) -> Tensor:
        device = labels.device
        noise = torch.rand(len(labels), NOISE, generator=self._random)
        g = self._generator.on(device)
        return generate(g, noise.to(device), labels)

    def _batches_on(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        if device not in self._batches:
            g = self._generator.on(device)
            batches = _endless_batches(g, self.batch, self.seed)
            self._batches[device] = batches
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
    inputs = NOISE + classes
    generator = nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, features),
    )
    noise = torch.zeros(1, inputs)
    z = torch.zeros(1, features)
    logits = torch.zeros(1, classes)
    generation = (generator, noise, AHEAD * batch, False)
    ahead = learner.beside([generation], samples) / AHEAD
    predicted = nn.Sequential(classifier, nn.LogSoftmax(1))
    passes: list[Pass] = [(predicted, z, batch, True)]
    if agreement:
        target = nn.Sequential(classifier, nn.Softmax(1))
        passes.append((generator, noise, samples, False))
        passes.append((target, z, samples, False))
        passes.append((nn.LogSoftmax(1), logits, samples, True))
        passes.append((nn.Identity(), logits, samples, True))  # KL
    return ahead + learner.beside(passes, samples)


def _endless_batches(g: TorchTensors, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of features and labels. Not a method: an object and its Python generator would refer to each other
    and stay in memory after their use."""
    random = torch.Generator().manual_seed(seed)
    while True:
        z, labels = _draw(g, AHEAD * batch, random)
        for start in range(0, len(labels), batch):
            end = start + batch
            yield z[start:end], labels[start:end]


def _draw(g: TorchTensors, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features for uniform labels, and the labels, on the device of `g`."""
    device = g["hidden.weight"].device
    classes = _classes_of(g)
    labels = torch.randint(classes, (count,), generator=random)
    labels = labels.to(device)
    noise = torch.rand(count, NOISE, generator=random)
    noise = noise.to(device)
    with torch.no_grad():
        z = generate(g, noise, labels)
    return z, labels


def _classes_of(g: TorchTensors) -> int:
    inputs = g["hidden.weight"].shape[1]
    return inputs - NOISE


def _tensors(state: State, device: str = PROCESSOR) -> TorchTensors:
    tensors = {}
    for name, values in state.items():
        tensors[name] = torch.tensor(values, device=device)
    return tensors
