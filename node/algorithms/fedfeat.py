"""FedFeat+. M. Gain, K. Kim, A. D. Raha, A. Adhikary, E.-N. Huh, Z. Han, C. S. Hong, "FedFeat+: A Robust Federated
Learning Framework Through Federated Aggregation and Differentially Private Feature-Based Classifier Retraining",
Algorithm 1 and equations 2 to 12.

M = (Φ, Ψ) model, feature extractor and classifier; F_i features of client i, F̃_i the noised ones; D_i its samples,
Y_i their labels; σ, λ scales of Gaussian and Laplace noise, Δ sensitivity, (ε, δ) privacy budget.

    client   E times over its mini-batches b:  F̃ ← Φ(b) + N(0, σ²) or Lap(0, λ)                                  (2, 3)
                                               M_i ← M_i − Adam's step on ∇ℓ(Y, Ψ(F̃))                                (7)
             sends M_i, and F̃_i and Y_i of the last epoch
    cloud    M ← Σ_i |D_i| / |D| M_i                                                                                 (8)
             F_p ← F̃_1 ⊕ … ⊕ F̃_N,  Ψ ← argmin ℓ(Y, Ψ(F_p)) by Adam, Φ unchanged                               (10 to 12)

Clients are devices below the cloud, or edges that hold data themselves. `retrain_epochs` 0 and `noise` none is FedAvg
with the same local training. Noise acts in training without retraining, too.

Departures:
- Equation 8 divides by N a second time, which is dropped. Every client takes part in every round.
- Noise acts in training, as the text and Algorithm 1 say. Equation 7 leaves it out: `noise_in: sent` noises only the
  features that are sent.
- σ² = 2Δ² ln(1/δ)/ε² (5), with a δ that the paper does not give. Its Δ = 1 is no bound: features may differ by any
  amount. `clip_norm` C scales each to ‖Φ(x)‖ ≤ C, in training, sending and evaluation, by the L2 norm for Gaussian
  noise, L1 for Laplace's. Then Δ = 2C holds, and `node.learning.privacy` computes the guarantee for features only:
  weights and labels are sent unprotected.
- The paper does not say how the server retrains: here by Adam from the averaged Ψ, in `retrain_epochs` passes.
- Initial weights are the framework's, not N(μ, σ²) (1).
- The paper's F_i come from Φ_i, but Ψ is combined with Φ, with other features. `features: averaged` adds an exchange
  after (8): the cloud sends Φ, and clients answer with F̃_i = Φ(D_i) + noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from node.algorithms import fedavg
from node.algorithms.common import average, evaluate, fitting, round_of, with_samples
from node.algorithms.parameters import FedFeat
from node.learning.aggregation import State
from node.learning.batching import batches
from node.learning.devices import as_array
from node.learning.hidden_information import Hidden, compare_features
from node.learning.local_training import EVALUATION_BATCH
from node.learning.models import Model
from node.learning.optimizers import Adam, optimizer
from node.learning.privacy import draw_noise, noise_scale
from node.learning.training import Learner, TrainResult
from node.messaging.wire import Message
from node.role import Role

SHARED = ("features", "labels")  # tensors of an update besides the model


@dataclass(frozen=True)
class Clipped:
    """Ψ(Φ(x)) with features clipped to ``norm``, in the norm of ``order`` 1 or 2."""

    norm: float
    order: int

    def __call__(self, model: Model, x: Tensor) -> Tensor:
        features = self.clip(model.extractor(x))
        return cast(Tensor, model.classifier(features))

    def clip(self, features: Tensor) -> Tensor:
        """Scale each row with a larger norm to ``norm``."""
        norms = self._norms(features)
        scale = self.norm / norms.clamp(min=self.norm)
        return features * scale

    def count(self, features: Tensor) -> int:
        """The number of rows that `clip` scales."""
        larger = self._norms(features) > self.norm
        return int(larger.sum())

    def _norms(self, features: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(features, self.order, dim=1, keepdim=True)
        return cast(Tensor, norms)


@dataclass(frozen=True, eq=False)
class Shared:
    """F̃_i (n, d) and Y_i (n,). ``hidden``: the information that F̃_i holds about F_i, None without noise. ``clipped``:
    the share of the rows that were clipped, None where `ClientResult` has it, and without clipping."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    hidden: Hidden | None
    clipped: float | None = None


@dataclass(frozen=True, eq=False)
class ClientResult(TrainResult):
    """M_i, how it was trained, and the shared features of the last epoch, if any. ``clipped_features``: the share of
    the feature vectors that were clipped in training, None without clipping."""

    shared: Shared | None
    clipped_features: float | None = field(default=None, kw_only=True)

    @property
    def metrics(self) -> dict[str, float]:
        metrics = super().metrics
        if self.clipped_features is None:
            return metrics
        return {**metrics, "clipped_features": self.clipped_features}


def clipping(params: FedFeat) -> Clipped | None:
    """The clipping of features, None without."""
    if params.clip_norm is None:
        return None
    order = 1 if params.noise == "laplace" else 2
    return Clipped(params.clip_norm, order)


def sensitivity(params: FedFeat) -> float:
    """Δ: the largest difference of two clipped features. Without clipping, the scenario's value."""
    if params.clip_norm is None:
        return params.sensitivity
    return 2 * params.clip_norm


def train_client(
    learner: Learner,
    weights: State,
    params: FedFeat,
    round: int,
) -> ClientResult:
    """Lines 6 to 10 of Algorithm 1: E epochs through noised features. Those of the last epoch are kept."""
    if learner.samples == 0:
        return ClientResult(dict(weights), 0, 0, 0.0, None)
    learner.set(weights)
    x, y = learner.train_data
    model = learner.model.train()
    trained = list(model.parameters())
    step = optimizer(trained, params)
    noising = learner.random("noise", round)
    ordering = learner.random("batches", round)
    clip = clipping(params)
    noised_training = params.noise_in == "training"
    losses = []
    objectives = []
    rows = 0
    clipped_rows = 0
    clean = []
    noised = []
    labels = []
    mini_batches = batches(learner.samples, params, ordering, learner.device)
    for epoch, _, batch in mini_batches:
        y_batch = y[batch]
        inputs = learner.normalise(x[batch])
        features = model.extractor(inputs)
        if clip is not None:
            rows += len(features)
            clipped_rows += clip.count(features.detach())
            features = clip.clip(features)
        if noised_training:
            through = noise(features, params, noising)
        else:
            through = features
        if through is not features:
            with torch.no_grad():  # the task's loss has no noise
                loss = cross_entropy(model.classifier(features), y_batch)
                losses.append(loss)
        objective = cross_entropy(model.classifier(through), y_batch)
        step(objective)
        objectives.append(objective.detach())
        last_epoch = epoch == params.epochs - 1
        if last_epoch and params.features == "last-epoch":
            if noised_training:
                sent = through
            else:
                sent = noise(features, params, noising)
            clean.append(features.detach())
            noised.append(sent.detach())
            labels.append(y_batch)
    shared: Shared | None = None
    if clean:
        shared = share(
            clean=torch.cat(clean),
            noised=torch.cat(noised),
            labels=torch.cat(labels),
            params=params,
        )
    minimised = float(torch.stack(objectives).mean())
    mean_loss = minimised
    mean_objective: float | None = None
    if losses:
        mean_loss = float(torch.stack(losses).mean())
        mean_objective = minimised
    clipped: float | None = None
    if rows:
        clipped = clipped_rows / rows
    return ClientResult(
        learner.get(),
        learner.samples,
        len(objectives),
        mean_loss,
        shared,
        objective=mean_objective,
        clipped_features=clipped,
    )


def extract(
    learner: Learner,
    weights: State,
    params: FedFeat,
    round: int,
) -> Shared:
    """Equations 2 and 3 with the extractor in `weights`, over the node's samples in a random order."""
    learner.set(weights)
    x, y = learner.train_data
    random = learner.random("shared", round)
    clip = clipping(params)
    permutation = random.permutation(learner.samples)
    order = torch.from_numpy(permutation).to(learner.device)
    extractor = learner.model.eval().extractor
    parts = []
    clipped: float | None = None
    with torch.no_grad():
        for batch in torch.split(order, EVALUATION_BATCH):
            inputs = learner.normalise(x[batch])
            parts.append(extractor(inputs))
        clean = torch.cat(parts)
        if clip is not None:
            clipped = clip.count(clean) / len(clean)
            clean = clip.clip(clean)
        noised = noise(clean, params, random)
        shared = share(clean, noised, y[order], params)
    return replace(shared, clipped=clipped)


def noise(features: Tensor, params: FedFeat, random: np.random.Generator) -> Tensor:
    """Equation 3."""
    delta_f = sensitivity(params)
    scale = noise_scale(params.noise, params.epsilon, params.delta, delta_f)
    if not scale:
        return features
    shape = tuple(features.shape)
    values = draw_noise(params.noise, scale, shape, random)
    return features + torch.from_numpy(values).to(features.device)


def share(
    clean: Tensor,
    noised: Tensor,
    labels: Tensor,
    params: FedFeat,
) -> Shared:
    """The first features and labels, as many as the client's share allows."""
    kept = math.ceil(params.share * len(labels))
    before = as_array(clean[:kept])
    after = as_array(noised[:kept])
    hidden: Hidden | None = None
    if params.noise != "none":
        hidden = compare_features(before, after)
    return Shared(after, as_array(labels[:kept]), hidden)


def retrain(
    learner: Learner,
    weights: State,
    features: list[NDArray[Any]],
    labels: list[NDArray[Any]],
    params: FedFeat,
    round: int,
) -> State:
    """Equations 10 to 12: train the classifier on the features of all clients. The extractor stays unchanged."""
    learner.set(weights)
    device = learner.device
    all_features = np.concatenate(features)
    all_labels = np.concatenate(labels)
    f_p = torch.from_numpy(all_features).to(device)
    y = torch.from_numpy(all_labels).to(device)
    psi = learner.model.classifier.train()
    random = learner.random("retrain", round)
    trained = list(psi.parameters())
    step = Adam(trained, params.retrain_learning_rate)
    for _ in range(params.retrain_epochs):
        permutation = random.permutation(len(y))
        order = torch.from_numpy(permutation).to(device)
        for batch in torch.split(order, params.retrain_batch_size):
            logits = psi(f_p[batch])
            step(cross_entropy(logits, y[batch]))
    return learner.get()


def of_models(updates: Sequence[Message]) -> list[Message]:
    """The updates with their models only."""
    without_features = []
    for update in updates:
        model = dict(update.tensors)
        for name in SHARED:
            model.pop(name, None)
        without_features.append(replace(update, tensors=model))
    return without_features


class Cloud(fedavg.Cloud):
    """Averages its clients and retrains the classifier. Its model has the final accuracy on the global test set."""

    async def aggregate(self, updates: Sequence[Message], w: State, t: int) -> State:
        fit = fitting(self, of_models(updates), w)
        counted = with_samples(self, fit)
        w = await average(self, counted, w)
        clients = [update.sender for update in counted]
        if not self.params.retrain_epochs:
            return w
        if self.params.features == "averaged":
            await self.publish(clients, "averaged", w, owned=True, round=t)
            updates = await self.gather("features", clients, round=t)
            self.withdraw("averaged")  # a client that comes back later has no use for it
        sharing = []
        for update in updates:
            shares = "features" in update.tensors
            if shares and update.sender in clients:
                sharing.append(update)
        return await self.retrain(sharing, w, t)

    async def score(self, w: State, t: int) -> None:
        await evaluate(self, w, t, clipping(self.params))

    async def retrain(self, updates: Sequence[Message], w: State, t: int) -> State:
        """`w` with a classifier retrained on the shared features. `w` itself if no update shares features."""
        features = []
        labels = []
        for update in updates:
            features.append(update.tensors["features"])
            labels.append(update.tensors["labels"])
        if not features:
            return w
        samples = sum(map(len, labels))
        work = self.params.retrain_epochs * samples
        return await self.compute(
            self.learner.apply,
            retrain,
            w,
            features,
            labels,
            self.params,
            t,
            samples=work,
            mode="classifier",
        )


class Client(fedavg.Client):
    """Trains on its own data and shares noised features. Evaluates its model on its own test set, if it has one."""

    async def run(self) -> None:
        while True:
            request = await self.receive("model", "averaged", sender=self.parent)
            t = round_of(request)
            if request.kind == "model":
                await self.answer(request.tensors, t)
            else:
                await self.extract(request.tensors, t)

    async def train(self, w: State, t: int) -> ClientResult:
        work = self.learner.work(self.params)
        return await self.compute(
            self.learner.apply,
            train_client,
            w,
            self.params,
            t,
            samples=work,
            mode="train",
        )

    async def score(self, w: State, t: int) -> None:
        await evaluate(self, w, t, clipping(self.params))

    def update(self, result: TrainResult, t: int) -> State:
        """The model, and the shared features of the last epoch."""
        if not isinstance(result, ClientResult) or result.shared is None:
            return result.weights
        if not self.params.retrain_epochs:
            return result.weights
        return result.weights | self.features_of(result.shared, t)

    async def extract(self, w: State, t: int) -> None:
        """Answer with features from the extractor in `w`."""
        shared: Shared = await self.compute(
            self.learner.apply,
            extract,
            w,
            self.params,
            t,
            samples=self.learner.samples,
            mode="evaluate",
        )
        features = self.features_of(shared, t)
        await self.send(self.parent, "features", features, owned=True, round=t)

    def features_of(self, shared: Shared, t: int) -> State:
        """The tensors to send. Reports how much the noise hides, and how many rows were clipped for that."""
        if shared.clipped is not None:
            self.report(round=t, scope="privacy", clipped_features=shared.clipped)
        if shared.hidden is not None:
            hidden = asdict(shared.hidden)
            self.report(round=t, scope="privacy", **hidden)
        return {"features": shared.features, "labels": shared.labels}


ROLES: dict[str, type[Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
