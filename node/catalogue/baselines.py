"""Parameters of local training, and of the algorithms that others are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from node.parameters import Parameters, number, whole, word


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Parameters):
    """Stochastic gradient descent on a client's own data, and how results are evaluated.

    optimizer, `sgd` or `adam`, new in each round; learning_rate η; momentum ρ of `sgd`; weight_decay, an L2 term added
    to the gradient; batch_size B; epochs E, passes over the data per round; steps, mini-batch steps per round, instead
    of epochs; evaluate_samples, evaluate on a fixed seeded subset of so many test samples instead of all, to save
    processor time.
    """

    optimizer: str = word("sgd", "sgd", "adam")
    learning_rate: float = number(0.01, low=0, above=True)
    momentum: float = number(0.0, low=0, high=1, below=True)
    weight_decay: float = number(0.0, low=0)
    batch_size: int = whole(32, low=1)
    epochs: int = whole(1, low=1)
    steps: int | None = whole(None, low=1, none=True)
    evaluate_samples: int | None = whole(None, low=1, none=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum: {self.momentum} is of sgd; adam has its own: leave it out")

    @property
    def most_epochs(self) -> int:
        """As many passes over its data, a peer's beside it included, as a client's longest round takes."""
        return self.epochs

    def beside_model(self, samples: int, features: int) -> int:
        """Bytes that a client of so many samples sends beside its model, which makes so many features of each."""
        return 0

    def between_clients(self, samples: int, classes: int) -> int:
        """Bytes at most that a client of so many samples sends to another in one message and is waited for."""
        return 0


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """FedAvg has no parameters beyond those of local training."""


@dataclass(frozen=True, kw_only=True)
class FedProx(LocalTraining):
    """mu μ: the weight of the proximal term, half the squared distance to the round's global model; 0 is FedAvg."""

    mu: float = number(0.1, low=0)


@dataclass(frozen=True, kw_only=True)
class FedNova(LocalTraining):
    """momentum ρ also says how much each of a client's steps weighs in its update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer != "sgd":
            raise ValueError(f"optimizer: {self.optimizer} does not add up its gradients as fednova needs; take sgd")


@dataclass(frozen=True, kw_only=True)
class HierFAVG(LocalTraining):
    """kappa1 κ₁: mini-batch steps of a device per edge round (nothing: `epochs` passes); kappa2 κ₂: edge rounds per
    cloud round. kappa2 = 1 is the baseline that PHE-FL calls EdgeCloud. participation: the share of an edge's devices
    that it draws for each edge round. statistics, batch normalisation's running ones: `averaged` as weights are, or
    `left-out` of averages, as where only parameters are sent: the model of all keeps those it began with."""

    kappa1: int | None = whole(None, low=1, none=True)
    kappa2: int = whole(2, low=1)
    participation: float = number(1.0, low=0, above=True, high=1)
    statistics: str = word("averaged", "averaged", "left-out")

    @property
    def edge_rounds(self) -> int:
        return self.kappa2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa1 is not None and self.steps is not None:
            raise ValueError(f"kappa1: {self.kappa1} and steps: {self.steps} mean the same; give one of them")


@dataclass(frozen=True, kw_only=True)
class OnlyEdge(LocalTraining):
    """kappa2 κ₂: edge rounds per reported round, so that curves line up with HierFAVG's."""

    kappa2: int = whole(1, low=1)

    @property
    def edge_rounds(self) -> int:
        return self.kappa2


@dataclass(frozen=True, kw_only=True)
class EdgeCloud(HierFAVG):
    """PHE-FL's baseline: its local training and edge rounds, and one model of the cloud for all."""

    kappa2: int = whole(1, low=1)
    learning_rate: float = number(0.1, low=0, above=True)
    epochs: int = whole(5, low=1)
