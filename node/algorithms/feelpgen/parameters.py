"""The parameters of FEELPGen and its two variants, with the symbols of their paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from node.learning.local_training import LocalTraining
from node.parameters import number, whole, word

PRINTED_LOSS: Mapping[str, Any] = {"generated_factor": 1.0, "agreement_factor": 0.0, "factor_decay": 1.0}


@dataclass(frozen=True, kw_only=True)
class FEELPGenMinus(LocalTraining):
    """FEELPGen⁻: silos with a generator of features. FedGen's loss diverges at learning rates of 0.05 and more.

    profile: values of other parameters: fedgen (the client loss of FedGen, on which the paper builds), paper (only the
        term that the paper prints), literal (all equations as printed) or fast (fedgen with a third of the work)
    inner_rounds: T, rounds inside a silo between two exchanges of silos
    participation: share of its devices that an edge draws for each inner round
    generated_batch: b*, generated samples per mini-batch
    generated_weight: weight of their loss, times generated_factor: b* over the size of the batch, or over that of the
        client's data
    generated_factor: factor of the loss of generated samples
    agreement_factor: weight of the KL divergence between the outputs for a sample and for generated features of its
        label
    factor_decay: both factors are multiplied by this after each inner round
    aggregation: aggregation in a silo: mean, or literal (Algorithm 1 as printed)
    generator_hidden: width of the generator's hidden layer
    generator_steps: steps of the generator per inner round
    generator_learning_rate: learning rate of the generator
    generator_decay: the generator's learning rate is multiplied by this after each inner round
    generator_lambda: λ of equation 9
    generator_distance: distance in equation 9: squared, or its norm
    generator_teacher: what the generator learns from: the mean of the models' logits, or of their probabilities
    latent_noise: standard deviation of the generator's latent noise ε
    diversity: weight of FedGen's diversity loss
    """

    profile: str = word("fedgen", "fedgen", "paper", "literal", "fast")
    steps: int | None = whole(20, low=1, none=True)
    inner_rounds: int = whole(5, low=1)
    participation: float = number(0.5, low=0, above=True, high=1)
    generated_batch: int = whole(32, low=2)
    generated_weight: str = word("batch", "batch", "data")
    generated_factor: float = number(10.0, low=0)
    agreement_factor: float = number(10.0, low=0)
    factor_decay: float = number(0.98, low=0, above=True, high=1)
    aggregation: str = word("mean", "mean", "literal")
    generator_hidden: int = whole(256, low=1)
    generator_steps: int = whole(50, low=1)
    generator_learning_rate: float = number(1e-4, low=0, above=True)
    generator_decay: float = number(0.98, low=0, above=True, high=1)
    generator_lambda: float = number(0.1, low=0)
    generator_distance: str = word("squared", "squared", "norm")
    generator_teacher: str = word("logits", "logits", "probabilities")
    latent_noise: float = number(0.1, low=0)
    diversity: float = number(0.0, low=0)

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PRINTED_LOSS,
        "literal": {
            **PRINTED_LOSS,
            "aggregation": "literal",
            "generated_weight": "data",
            "generator_distance": "norm",
            "latent_noise": 0.0,
        },
        "fast": {"steps": 10, "inner_rounds": 3, "generator_steps": 20},
    }

    @property
    def edge_rounds(self) -> int:
        return self.inner_rounds

    @property
    def coordinator_training(self) -> int:
        return self.generator_steps * self.generated_batch

    def generator_rate(self, r: int) -> float:
        """The learning rate of the generator in inner round r."""
        return self.generator_learning_rate * self.generator_decay ** (r - 1)


@dataclass(frozen=True, kw_only=True)
class FEELPGen(FEELPGenMinus):
    """FEELPGen: silos that also average the models of similar silos.

    features: rows of Z, the generated features that edges compare
    refreshed: K′, peers for which an edge updates Z in each round
    aggregated: 𝒦, peers that an edge requests models from
    patience: longest wait for these models, in seconds
    eta_agg: η, step size towards the models of peers
    gamma: γ, weight of likeness against freshness
    staleness_constant: C, constant of the freshness
    staleness_penalty: φ, penalty of staleness
    max_age: rounds without a new Z after which an absent edge is forgotten; null: never
    likeness: likeness of two edges: similarity, exp(−KL), or literal, KL itself (equation 17 as printed)
    """

    features: int = whole(320, low=1)
    refreshed: int = whole(4, low=1)
    aggregated: int = whole(5, low=1)
    patience: float = number(5.0, low=0, above=True)
    eta_agg: float = number(0.5, low=0, high=1)
    gamma: float = number(0.5, low=0, high=1)
    staleness_constant: float = number(0.1, low=0)
    staleness_penalty: float = number(0.8, low=0)
    max_age: int | None = whole(10, low=1, none=True)
    likeness: str = word("similarity", "similarity", "literal")

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": FEELPGenMinus.profiles["paper"],
        "literal": {**FEELPGenMinus.profiles["literal"], "likeness": "literal", "eta_agg": 0.01},
        "fast": {**FEELPGenMinus.profiles["fast"], "features": 80},
    }


@dataclass(frozen=True, kw_only=True)
class FEELPGenPlus(FEELPGen):
    """FEELPGen⁺: silos that compare a private projection of generated features.

    epsilon: ε, privacy budget of the principal components
    delta: δ, failure probability of the principal components
    components: d′, number of principal components
    released: what an edge sends: the projection of Z on its own components, the basis (the components, Algorithm 3), or
        common: the projection on random directions that all edges share
    """

    epsilon: float = number(1.0, low=0, above=True, high=1)
    delta: float = number(
        0.001,
        low=0,
        above=True,
        high=1,
        below=True,
    )
    components: int = whole(2, low=1)
    released: str = word("projection", "projection", "basis", "common")

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": FEELPGen.profiles["paper"],
        "literal": {**FEELPGen.profiles["literal"], "released": "basis"},
        "fast": FEELPGen.profiles["fast"],
    }
