"""The algorithms, each with its parameters and the tiers it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from node.parameters import Parameters, number, whole

Need = Literal["required", "optional", "none"]


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Parameters):
    """Stochastic gradient descent on a client's own data, and how results are evaluated.

    learning_rate η; momentum ρ; weight_decay, an L2 term added to the gradient; batch_size B; epochs E, passes over the
    data per round; steps, mini-batch steps per round, instead of epochs; evaluate_samples, evaluate on a fixed seeded
    subset of so many test samples instead of all, to save processor time.
    """

    learning_rate: float = number(0.01, low=0, above=True)
    momentum: float = number(0.0, low=0, high=1, below=True)
    weight_decay: float = number(0.0, low=0)
    batch_size: int = whole(32, low=1)
    epochs: int = whole(1, low=1)
    steps: int | None = whole(None, low=1, none=True)
    evaluate_samples: int | None = whole(None, low=1, none=True)


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """FedAvg has no parameters beyond those of local training."""


@dataclass(frozen=True, kw_only=True)
class FedProx(LocalTraining):
    """mu μ: the weight of the proximal term, half the squared distance to the round's global model; 0 is FedAvg."""

    mu: float = number(0.1, low=0)


@dataclass(frozen=True, kw_only=True)
class HierFAVG(LocalTraining):
    """kappa1 κ₁: mini-batch steps of a device per edge round (nothing: `epochs` passes); kappa2 κ₂: edge rounds per
    cloud round. kappa2 = 1 is the baseline that PHE-FL calls EdgeCloud."""

    kappa1: int | None = whole(None, low=1, none=True)
    kappa2: int = whole(2, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa1 is not None and self.steps is not None:
            raise ValueError(f"kappa1: {self.kappa1} and steps: {self.steps} mean the same; give one of them")


@dataclass(frozen=True, kw_only=True)
class OnlyEdge(LocalTraining):
    """kappa2 κ₂: edge rounds per reported round, so that curves line up with HierFAVG's."""

    kappa2: int = whole(1, low=1)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its module under `node.algorithms`, its parameters, and the tiers it needs.

    `leader` is the tier whose rounds count as the rounds of the run; where it has several nodes, the first leads.
    `flat`: one layer of clients, edges that hold data or devices without edges.
    """

    name: str
    module: str
    params: type[LocalTraining]
    summary: str
    cloud: Need
    edges: Need
    devices: Need
    leader: Literal["cloud", "edge"]
    flat: bool = False

    def problem(self, *, cloud: bool, edges: int, devices: int) -> str | None:
        """Say why the algorithm cannot run on a topology with so many nodes of each tier, or None if it can."""
        for tier, need, count in (("cloud", self.cloud, int(cloud)), ("edges", self.edges, edges),
                                  ("devices", self.devices, devices)):  # fmt: skip
            if need == "required" and count == 0:
                return f"{self.name} needs {tier}: the topology has none"
            if need == "none" and count:
                return f"{self.name} has no use for {tier}: the topology has {count}; set it to 0"
        if edges == 0 and devices == 0:
            return f"{self.name} needs nodes that hold data: the topology has neither edges nor devices"
        if self.flat and edges and devices:
            return f"{self.name} knows one layer of clients: give edges or devices, not both, or take hierfavg"
        return None


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("fedavg", "node.algorithms.fedavg", FedAvg,
                  "the cloud averages the models its clients trained",
                  "required", "optional", "optional", "cloud", flat=True),
        Algorithm("fedprox", "node.algorithms.fedprox", FedProx,
                  "FedAvg whose clients are held near the global model",
                  "required", "optional", "optional", "cloud", flat=True),
        Algorithm("hierfavg", "node.algorithms.hierfavg", HierFAVG,
                  "edges average their devices several times before the cloud averages the edges",
                  "required", "required", "required", "cloud"),
        Algorithm("onlyedge", "node.algorithms.onlyedge", OnlyEdge,
                  "each edge averages its own devices and never meets the cloud again after the first model",
                  "optional", "required", "required", "edge"),
    )
}  # fmt: skip
