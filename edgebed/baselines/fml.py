"""FML, federated mutual learning. T. Shen, J. Zhang, X. Jia, F. Zhang, Z. Lv, K. Kuang, C. Wu, F. Wu, "Federated mutual
learning: a collaborative machine learning method for heterogeneous data, models, and objectives", Frontiers of
Information Technology & Electronic Engineering 24, 2023; arXiv 2006.16765, Algorithm 1 and its losses of local updates.

θ_k model of client k, of any architecture; φ the meme model, one architecture for all; p_θ, p_φ their predictions; CE
cross-entropy; α, β weights.

    client   φ_k ← φ, then for each mini-batch, both models together (deep mutual learning):
             L_θ = α CE(p_θ, y) + (1 − α) KL(p_φ ‖ p_θ)
             L_φ = β CE(p_φ, y) + (1 − β) KL(p_θ ‖ p_φ)
             sends φ_k
    cloud    φ ← Σ_k (n_k / n) φ_k

α = 1 is local training of θ_k, β = 1 is FedAvg of φ.

Departures: a prediction that the other model learns from is a constant in its loss, as in deep mutual learning (Zhang
et al. 2018). Memes are averaged with FedAvg's weights. All clients take part in each round.
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
        worth = 1 + work.worth_of(self.meme)
        return super().longest_training(work) * worth


def mutual_loss(
    logits: Tensor,
    others: Tensor,
    y: Tensor,
    weight: float,
) -> Tensor:
    """weight · CE(p, y) + (1 − weight) · KL(q ‖ p), the mean over samples. p by `logits`, q by `others`, a constant."""
    log_p = log_softmax(logits, 1)
    log_q = log_softmax(others.detach(), 1)
    divergence = kl_div(log_p, log_q, reduction="batchmean", log_target=True)
    of_labels = cross_entropy(logits, y)
    return weight * of_labels + (1 - weight) * divergence


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
    other = loaded(learner, params.meme, meme)
    other.train()
    own_weights = list(model.parameters())
    own_step = edgebed.optimizer(own_weights, params)
    meme_weights = list(other.parameters())
    meme_step = edgebed.optimizer(meme_weights, params)
    x, y = learner.train_data
    random = learner.random("batches", round)
    losses = []
    objectives = []
    mini_batches = edgebed.batches(learner.samples, params, random, learner.device)
    for _, _, batch in mini_batches:
        inputs = learner.normalise(x[batch])
        labels = y[batch]
        p = model(inputs)
        q = other(inputs)
        own_loss = mutual_loss(p, q, labels, params.own_weight)
        meme_loss = mutual_loss(q, p, labels, params.meme_weight)
        own_step(own_loss)
        meme_step(meme_loss)
        losses.append(cross_entropy(p.detach(), labels))
        objectives.append(own_loss.detach())
    trained_own = learner.get()
    trained_meme = edgebed.state_of(other)
    learned = edgebed.joined(own=trained_own, meme=trained_meme)
    return learned, mean_losses(losses, objectives)


def mean_losses(losses: Sequence[Tensor], objectives: Sequence[Tensor]) -> dict[str, float]:
    """The metrics of a training: the means over steps of the task's loss and of what was minimised."""
    loss = torch.stack(list(losses)).mean()
    objective = torch.stack(list(objectives)).mean()
    return {"loss": float(loss), "objective": float(objective)}


def loaded(learner: edgebed.Learner, name: str, state: edgebed.State) -> edgebed.Model:
    """Another model than the client's own, with these weights."""
    model = learner.build(name)
    return edgebed.load_state(model, state)


class Cloud(personal.Cloud):
    """Averages the memes."""

    def start(self) -> edgebed.State:
        meme = self.learner.build(self.params.meme, "cpu")
        return edgebed.state_of(meme)


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
        own = edgebed.parted(kept, "own")
        meme = self.params.meme
        return await self.train_both(meme, t, learn_mutually, own, common)

    async def train_both(
        self,
        other: str,
        t: int,
        step: Step,
        *states: edgebed.State,
    ) -> edgebed.State:
        """What `step` makes of the `states`. It trains the client's model and an `other` one."""
        model = self.learner.build(other, "cpu")
        both = 1 + self.learner.worth(model)
        work = self.learner.work(self.params) * both
        params = edgebed.params_at(self, self.params, t)
        state, losses = await self.compute(
            self.learner.apply,
            step,
            *states,
            params,
            t,
            samples=round(work),
            mode="train",
        )
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
        own = edgebed.parted(kept, "own")
        return await edgebed.evaluate(self, own, t)


ROLES: dict[str, type[edgebed.Role]] = {
    "cloud": Cloud,
    "edge": Client,
    "device": Client,
}
SUMMARY = "each client trains its own model and a shared one, which learn from each other (FML)"
PLUGIN = plugin("fml", FML, SUMMARY, personal=True, floats=True, classes=True)
