"""Parameters of the algorithms with one file each, with the symbols of their papers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from node.learning.local_training import LABEL_BYTES, ClientWork, LocalTraining
from node.parameters import Between, number, whole, word


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """participation C: the share of the available clients, rounded up, that the cloud selects for each round."""

    participation: float = number(1.0, low=0, above=True, high=1)


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """mu μ: the weight of the proximal term, half the squared distance to the round's global model. 0 is FedAvg."""

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
    """kappa1 κ₁: mini-batch steps of a device per edge round (nothing: `epochs` passes); kappa2 κ₂: edge rounds per
    cloud round. kappa2 = 1 is the baseline that PHE-FL calls EdgeCloud. participation: the share of an edge's devices
    that it draws for each edge round. statistics: batch normalisation's running statistics are `averaged` like weights,
    or `left-out` of averages, as if only parameters were sent: the global model keeps its initial statistics."""

    kappa1: int | None = whole(None, low=1, none=True)
    kappa2: int = whole(2, low=1)
    participation: float = number(1.0, low=0, above=True, high=1)
    statistics: str = word("averaged", "averaged", "left-out")

    @property
    def edge_rounds(self) -> int:
        return self.kappa2

    def longest_training(self, work: ClientWork) -> float:
        return super().longest_training(work) if self.kappa1 is None else self.kappa1 * self.batch_size

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa1 is not None and self.steps is not None:
            raise ValueError(f"kappa1: {self.kappa1} and steps: {self.steps} mean the same; give one of them")


@dataclass(frozen=True, kw_only=True)
class OnlyEdge(LocalTraining):
    """kappa2 κ₂: edge rounds per reported round, so that curves are comparable with HierFAVG's."""

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
class PHEFL(HierFAVG):
    """alpha α: `accuracy` weights an edge's own model by its accuracy relative to the cloud's (equation 8). A number is
    a fixed α; 1 is OnlyEdge. Local training as in the paper's experiments."""

    alpha: float | str = word("accuracy", "accuracy", number=Between(float, 0, 1))
    kappa2: int = whole(1, low=1)
    learning_rate: float = number(0.1, low=0, above=True)
    epochs: int = whole(5, low=1)


@dataclass(frozen=True, kw_only=True)
class FedFeat(LocalTraining):
    """noise on the features: `gaussian`, `laplace` or `none`, with a scale from epsilon ε, delta δ (for `gaussian`) and
    sensitivity Δ (equation 5); noise_in: the noise acts in `training` too, or only on what is `sent`; clip_norm: the
    largest norm of features, and Δ is twice it; features: the shared ones come from the client's own extractor in its
    `last-epoch`, or from the `averaged` extractor, which takes one more request by the cloud; share: the fraction of
    the features that is sent; retrain_epochs of the cloud's classifier (0: FedAvg), with retrain_learning_rate and
    retrain_batch_size. Local training as in the paper's experiments."""

    optimizer: str = word("adam", "adam", "sgd")
    epochs: int = whole(5, low=1)
    noise: str = word("gaussian", "gaussian", "laplace", "none")
    epsilon: float = number(2.0, low=0, above=True)
    delta: float = number(1e-5, low=0, above=True, high=1, below=True)
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
            raise ValueError(f"steps: {self.steps} makes no last epoch, whose features are sent; give epochs instead")
        if self.clip_norm is not None and self.noise == "none":
            raise ValueError("clip_norm: bounds what noise must hide; with noise: none leave it out")

    def beside_model(self, samples: int, features: int) -> int:
        return math.ceil(self.share * samples) * (4 * features + LABEL_BYTES) if self.retrain_epochs else 0
