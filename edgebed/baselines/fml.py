"""FML, federated mutual learning. T. Shen, J. Zhang, X. Jia, F. Zhang, Z. Lv, K. Kuang, C. Wu, F. Wu, "Federated mutual
learning: a collaborative machine learning method for heterogeneous data, models, and objectives", Frontiers of
Information Technology & Electronic Engineering 24, 2023; arXiv 2006.16765, Algorithm 1 and its losses of local updates.

θ_k model of client k, of any architecture; φ the meme model, one architecture for all; p_θ, p_φ their predictions; CE
cross-entropy; α, β weights.

    client   φ_k ← φ, then for each mini-batch, both models at once (deep mutual learning):
             L_θ = α CE(p_θ, y) + (1 − α) KL(p_φ ‖ p_θ)
             L_φ = β CE(p_φ, y) + (1 − β) KL(p_θ ‖ p_φ)
             sends φ_k
    cloud    φ ← Σ_k (n_k / n) φ_k

α = 1 is local training of θ_k, β = 1 is FedAvg of φ.

Departures: a prediction that the other model learns from is a constant in its loss, as in deep mutual learning (Zhang
et al. 2018). Memes are averaged with FedAvg's weights. All clients are asked in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

import edgebed
from edgebed.baselines import personal, plugin

Step = Callable[..., tuple[edgebed.State, dict[str, float]]]
MEMES = ("cnn", "mlp", "lenet", "tiny-resnet", "separable-cnn")


@dataclass(frozen=True, kw_only=True)
class FML(edgebed.LocalTraining):
    """meme: the model that clients share; own_weight α and meme_weight β: of the labels, against the other model."""

    own_loop: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    meme: str = edgebed.word("cnn", *MEMES)
    own_weight: float = edgebed.number(0.5, low=0, high=1)
    meme_weight: float = edgebed.number(0.5, low=0, high=1)

    def longest_training(self, work: edgebed.ClientWork) -> float:
        return super().longest_training(work) * (1 + work.worth_of(self.meme))


def mutual_loss(
    logits: Tensor,
    others: Tensor,
    y: Tensor,
    weight: float,
) -> Tensor:
    """weight · CE(p, y) + (1 − weight) · KL(q ‖ p), the mean over samples. p by `logits`, q by `others`, a constant."""
    divergence = kl_div(log_softmax(logits, 1), log_softmax(others.detach(), 1), reduction="batchmean", log_target=True)
    return weight * cross_entropy(logits, y) + (1 - weight) * divergence


def learn_mutually(
    learner: edgebed.Learner,
    own: edgebed.State,
    meme: edgebed.State,
    params: FML,
    round: int,
) -> tuple[edgebed.State, dict[str, float]]:
    """θ_k and φ_k after the local update, joined as `own` and `meme`, and θ_k's `mean_losses`."""
    learner.set(own)
    model = learner.model.train()
    other = loaded(learner, params.meme, meme).train()
    steps = [edgebed.optimizer(list(each.parameters()), params) for each in (model, other)]
    x, y = learner.train_data
    losses = []
    objectives = []
    for _, _, chosen in edgebed.batches(learner.samples, params, learner.random("batches", round), learner.device):
        inputs = learner.normalise(x[chosen])
        labels = y[chosen]
        p = model(inputs)
        q = other(inputs)
        loss = mutual_loss(p, q, labels, params.own_weight)
        other_loss = mutual_loss(q, p, labels, params.meme_weight)
        steps[0](loss)
        steps[1](other_loss)
        losses.append(cross_entropy(p.detach(), labels))
        objectives.append(loss.detach())
    learned = edgebed.joined(own=learner.get(), meme=edgebed.state_of(other))
    return learned, mean_losses(losses, objectives)


def mean_losses(losses: Sequence[Tensor], objectives: Sequence[Tensor]) -> dict[str, float]:
    """The metrics of a training: the means over steps of the task's loss and of what was minimised."""
    return {"loss": float(torch.stack(list(losses)).mean()), "objective": float(torch.stack(list(objectives)).mean())}


def loaded(learner: edgebed.Learner, name: str, state: edgebed.State) -> edgebed.Model:
    """Another model than the client's own, with these weights."""
    return edgebed.load_state(learner.build(name), state)


class Cloud(personal.Cloud):
    """Averages the memes."""

    def start(self) -> edgebed.State:
        return edgebed.state_of(self.learner.build(self.params.meme, "cpu"))


class Client(personal.Client):
    """Trains its own model and the meme together, and sends the meme. Its own model has its accuracy."""

    def start(self) -> edgebed.State:
        return edgebed.joined(own=self.learner.initial())

    async def learn(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return await self.train_both(self.params.meme, t, learn_mutually, edgebed.parted(kept, "own"), common)

    async def train_both(
        self,
        other: str,
        t: int,
        step: Step,
        *given: edgebed.State,
    ) -> edgebed.State:
        """What `step` makes of the `given` states. It trains the client's model and an `other` one."""
        both = 1 + self.learner.worth(self.learner.build(other, "cpu"))
        samples = round(self.learner.work(self.params) * both)
        work = (self.learner.apply, step, *given, edgebed.params_at(self, self.params, t), t)
        state, losses = await self.compute(*work, samples=samples, mode="train")
        self.report(round=t, scope="train", **losses)
        learned: edgebed.State = state
        return learned

    async def share(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> edgebed.State:
        return edgebed.parted(kept, "meme")

    async def score(
        self,
        kept: edgebed.State,
        common: edgebed.State,
        t: int,
    ) -> dict[str, float]:
        return await edgebed.evaluate(self, edgebed.parted(kept, "own"), t)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "each client trains its own model and a shared one, which learn from each other (FML)"
PLUGIN = plugin("fml", FML, SUMMARY, personal=True, floats=True, classes=True)
