"""Parameters of the algorithms with one file each, with the symbols of their papers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from node.learning.local_training import LABEL_BYTES, ClientWork, LocalTraining
from node.parameters import Between, number, whole, word

SHARING = ("features", "share", "retrain_learning_rate", "retrain_batch_size")
"""The parameters of FedFeat+ that only act on features that are sent."""


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """FedAvg: the cloud averages the models of its clients.

    participation: C, share of the available clients that is selected for each round, rounded up
    """

    participation: float = number(1.0, low=0, above=True, high=1)


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term.

    mu: μ, weight of the proximal term, half the squared distance to the global model; 0 is FedAvg, to the last
        bit
    """

    mu: float = number(0.1, low=0)


@dataclass(frozen=True, kw_only=True)
class FedNova(FedAvg):
    """momentum ρ also determines the weight of each of a client's steps in its update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer != "sgd":
            raise ValueError(f"optimizer: {self.optimizer} does not add up its gradients as fednova needs; take sgd")


@dataclass(frozen=True, kw_only=True)
class HierFAVG(LocalTraining):
    """Hierarchical averaging: in edges, then in the cloud. kappa2 = 1 with PHE-FL's local training is the baseline that
    PHE-FL calls EdgeCloud.

    kappa1: κ₁, mini-batch steps of a device per edge round; default: `epochs` passes over its data
    kappa2: κ₂, edge rounds per cloud round
    participation: share of its devices that an edge draws for each edge round
    statistics: running statistics of batch normalisation: averaged like weights, or left-out, so that the global model
        keeps its initial ones
    """

    kappa1: int | None = whole(None, low=1, none=True)
    kappa2: int = whole(2, low=1)
    participation: float = number(1.0, low=0, above=True, high=1)
    statistics: str = word("averaged", "averaged", "left-out")

    @property
    def edge_rounds(self) -> int:
        return self.kappa2

    @property
    def of_device(self) -> LocalTraining:
        """Local training of κ₁ mini-batch steps, if κ₁ is given."""
        return self.local(steps=self.kappa1 or self.steps)

    def longest_training(self, work: ClientWork) -> float:
        return self.of_device.longest_training(work)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa1 is not None and self.steps is not None:
            raise ValueError(f"kappa1: {self.kappa1} and steps: {self.steps} mean the same; give one of them")


@dataclass(frozen=True, kw_only=True)
class OnlyEdge(LocalTraining):
    """Averaging in edges alone.

    kappa2: κ₂, edge rounds per reported round, so that curves are comparable with those of hierfavg
    """

    kappa2: int = whole(1, low=1)

    @property
    def edge_rounds(self) -> int:
        return self.kappa2


@dataclass(frozen=True, kw_only=True)
class EdgeCloud(HierFAVG):
    """PHE-FL's baseline: PHE-FL's local training and edge rounds, and one cloud model for all edges."""

    kappa2: int = whole(1, low=1)
    learning_rate: float = number(0.1, low=0, above=True)
    epochs: int = whole(5, low=1)


@dataclass(frozen=True, kw_only=True)
class PHEFL(EdgeCloud):
    """A personal model for each edge. Local training as in the paper's experiments.

    alpha: α, weight of an edge's own model against that of the cloud: accuracy (by their accuracies, equation 8) or a
        fixed number; 1 is onlyedge with the same local training and participation 1, while every edge has a model
    """

    alpha: float | str = word("accuracy", "accuracy", number=Between(float, 0, 1))


@dataclass(frozen=True, kw_only=True)
class FedFeat(LocalTraining):
    """FedAvg with shared features. Local training as in the paper's experiments.

    noise: distribution of the noise on features, with a scale from epsilon, delta and sensitivity (equation 5)
    epsilon: ε, privacy budget of the noise
    delta: δ, failure probability of gaussian noise
    sensitivity: Δ, sensitivity; with clip_norm, twice clip_norm is used instead
    noise_in: where the noise acts: in training too, or only on the features that are sent
    clip_norm: largest norm of a feature vector; default: no clipping
    features: extractor of the shared features: the client's own in its last epoch, or the averaged one, which takes one
        more request by the cloud
    share: share of the features that is sent
    retrain_epochs: epochs in which the cloud retrains the classifier; 0: no features are sent, but noise still acts in
        training; 0 with noise none is FedAvg with the same local training
    retrain_learning_rate: learning rate of the retraining
    retrain_batch_size: mini-batch size of the retraining
    """

    own_loop: ClassVar[bool] = True
    optimizer: str = word("adam", "adam", "sgd")
    epochs: int = whole(5, low=1)
    noise: str = word("gaussian", "gaussian", "laplace", "none")
    epsilon: float = number(2.0, low=0, above=True)
    delta: float = number(
        1e-5,
        low=0,
        above=True,
        high=1,
        below=True,
    )
    sensitivity: float = number(1.0, low=0, above=True)
    noise_in: str = word("training", "training", "sent")
    clip_norm: float | None = number(None, low=0, above=True, none=True)
    features: str = word("last-epoch", "last-epoch", "averaged")
    share: float = number(1.0, low=0, above=True, high=1)
    retrain_epochs: int = whole(1, low=0)
    retrain_learning_rate: float = number(1e-4, low=0, above=True)
    retrain_batch_size: int = whole(128, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.features == "last-epoch":
            raise ValueError(
                f"steps: {self.steps} has no last epoch, and the features of that epoch are sent; set epochs instead"
            )
        if self.clip_norm is not None and self.noise == "none":
            raise ValueError("clip_norm: bounds what noise must hide; with noise: none leave it out")

    def notes(self) -> Iterator[str]:
        if self.retrain_epochs:
            return
        yield from self.without_effect(SHARING, "retrain_epochs: 0 sends no features")
        acting = []
        if self.noise != "none":
            if self.noise_in == "training":
                acting.append(f"noise: {self.noise}")
            else:
                yield f"without effect: noise: {self.noise}, since retrain_epochs: 0 sends no features"
        if self.clip_norm is not None:
            acting.append(f"clip_norm: {self.clip_norm}")
        if not acting:
            return
        verb = "acts" if len(acting) == 1 else "act"
        yield (
            f"retrain_epochs: 0 sends no features, but {' and '.join(acting)} {verb} in training, "
            "so this is not FedAvg; noise: none without clip_norm is"
        )

    def beside_model(self, samples: int, features: int) -> int:
        if not self.retrain_epochs:
            return 0
        sent = math.ceil(self.share * samples)
        bytes_each = 4 * features + LABEL_BYTES
        return sent * bytes_each
