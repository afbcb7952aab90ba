"""Parameters of the five papers' algorithms, in the words of ours and the symbols of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from node.catalogue.baselines import HierFAVG, LocalTraining
from node.parameters import Between, number, switch, whole, word

LABEL_BYTES = 8  # of a label that travels beside features
PART_BYTES = 1 << 20  # of pictures that travel in one message, of FedEDS


@dataclass(frozen=True, kw_only=True)
class FedEDS(LocalTraining):
    """profile: `paper`, our reading; `literal` takes equation 6, Algorithm 4 and the encryptor's optimizer as printed;
    `fast` has a small encryptor, for processors.

    base: what is combined with it, `fedprox` with mu μ. annealing (the paper's S1): epochs_max E_max passes until round
    turn_start T_α, `epochs` (E_min) from round turn_end T_β. exchange (S2) of encrypted sets, whose weight λ_dis falls
    at the rate m until it is below epsilon ε; distillation, their loss's `mean` or `sum` over samples; images travel as
    `uint8` or `float32`. The encryptor, of so many channels (encryptor_width), is trained for encryptor_epochs E_g
    passes against a model that was trained for model_epochs E_c; layer: false leaves the stochastic layer out of it.
    normalisation, of base fednova: by `steps`, or as in `algorithm-4`. Local training as in the paper's experiments.
    """

    profile: str = word("paper", "paper", "literal", "fast")
    base: str = word("fedavg", "fedavg", "fedprox", "fednova")
    mu: float = number(0.1, low=0)
    normalisation: str = word("steps", "steps", "algorithm-4")
    momentum: float = number(0.9, low=0, high=1, below=True)
    weight_decay: float = number(1e-4, low=0)
    batch_size: int = whole(64, low=1)
    annealing: bool = switch(True)
    epochs_max: int = whole(5, low=1)
    turn_start: int = whole(1, low=1)
    turn_end: int = whole(3, low=1)
    exchange: bool = switch(True)
    m: float = number(3.0, low=0)
    epsilon: float = number(0.01, low=0, high=0.5)
    distillation: str = word("mean", "mean", "sum")
    images: str = word("uint8", "uint8", "float32")
    layer: bool = switch(True)
    model_epochs: int = whole(5, low=1)
    encryptor_epochs: int = whole(20, low=1)
    encryptor_width: int = whole(64, low=1)
    encryptor_optimizer: str = word("adamw", "adamw", "sgd")
    encryptor_learning_rate: float = number(1e-3, low=0, above=True)

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "literal": {"normalisation": "algorithm-4", "distillation": "sum", "encryptor_optimizer": "sgd"},
        "fast": {"encryptor_width": 8},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer != "sgd":
            raise ValueError(f"optimizer: {self.optimizer} is not what fededs is made for; take sgd")
        if self.steps is not None and (self.annealing or self.exchange):
            raise ValueError(f"steps: {self.steps} makes no epochs, which annealing and exchange count; give epochs")
        if self.annealing and self.epochs_max < self.epochs:
            raise ValueError(f"epochs_max: {self.epochs_max} is below epochs, {self.epochs}: annealing goes down")
        if self.annealing and self.turn_end <= self.turn_start:
            raise ValueError(f"turn_end: round {self.turn_end} is not after turn_start, round {self.turn_start}")

    @property
    def most_epochs(self) -> int:
        longest = self.epochs_max if self.annealing else self.epochs
        return 2 * longest if self.exchange else longest  # an epoch sees a peer's pictures beside the own

    def between_clients(self, samples: int, classes: int) -> int:
        return PART_BYTES + 4 * samples * classes if self.exchange else 0

    def training(self, epochs: int, learning_rate: float | None = None) -> LocalTraining:
        """So many epochs of local training, of the model or, with a rate of its own, of the encryptor."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(LocalTraining)} | {"epochs": epochs}
        return LocalTraining(**values | ({} if learning_rate is None else {"learning_rate": learning_rate}))


@dataclass(frozen=True, kw_only=True)
class FEELPGenMinus(LocalTraining):
    """Inside a silo: inner_rounds T before silos meet; participation, the share of an edge's devices in each of them;
    generated_batch b*, generated samples per mini-batch, whose loss is weighed by b* over the `batch` or over the
    client's `data` (generated_weight); aggregation `mean`, or `literal` as Algorithm 1 prints it.

    The generator: generator_hidden width; generator_steps per inner round; generator_learning_rate, times
    generator_decay after each inner round; generator_lambda λ of equation 9, on the `squared` distance or its `norm`
    (generator_distance); latent_noise, standard deviation of ε; diversity, weight of FedGen's loss of that name.

    profile: `paper`; `literal` takes the equations as printed; `fast` does a third of the work, for a first look.
    """

    profile: str = word("paper", "paper", "literal", "fast")
    steps: int | None = whole(20, low=1, none=True)
    inner_rounds: int = whole(5, low=1)
    participation: float = number(0.5, low=0, above=True, high=1)
    generated_batch: int = whole(32, low=2)
    generated_weight: str = word("batch", "batch", "data")
    aggregation: str = word("mean", "mean", "literal")
    generator_hidden: int = whole(256, low=1)
    generator_steps: int = whole(50, low=1)
    generator_learning_rate: float = number(1e-4, low=0, above=True)
    generator_decay: float = number(0.98, low=0, above=True, high=1)
    generator_lambda: float = number(0.1, low=0)
    generator_distance: str = word("squared", "squared", "norm")
    latent_noise: float = number(0.1, low=0)
    diversity: float = number(0.0, low=0)

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "literal": {
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


@dataclass(frozen=True, kw_only=True)
class FEELPGen(FEELPGenMinus):
    """Between silos: features, rows of Z; refreshed K′, peers whose Z an edge looks at anew each time; aggregated 𝒦,
    peers whose models it asks for, and patience, how many seconds it waits for them at most; eta_agg η, how far it goes
    towards them; gamma γ, weight of likeness against freshness; staleness_constant C and staleness_penalty φ of the
    latter; max_age, rounds without a word after which an edge that is gone is forgotten; likeness `similarity`,
    exp(−KL), or `literal`, KL itself as equation 17 prints it."""

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
        "literal": {**FEELPGenMinus.profiles["literal"], "likeness": "literal", "eta_agg": 0.01},
        "fast": {**FEELPGenMinus.profiles["fast"], "features": 80},
    }


@dataclass(frozen=True, kw_only=True)
class FEELPGenPlus(FEELPGen):
    """epsilon ε and delta δ of the principal components, so many components d′, and what of them is released: Z seen
    through them (`projection`), or the components themselves (`basis`, Algorithm 3)."""

    epsilon: float = number(1.0, low=0, above=True, high=1)
    delta: float = number(0.001, low=0, above=True, high=1, below=True)
    components: int = whole(2, low=1)
    released: str = word("projection", "projection", "basis")

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "literal": {**FEELPGen.profiles["literal"], "released": "basis"},
        "fast": FEELPGen.profiles["fast"],
    }


@dataclass(frozen=True, kw_only=True)
class PHEFL(HierFAVG):
    """alpha α: `accuracy` weighs an edge's own model by how well it does beside the cloud's (equation 8); a number is
    taken instead, 1 is OnlyEdge. Local training as in the paper's experiments."""

    alpha: float | str = word("accuracy", "accuracy", number=Between(float, 0, 1))
    kappa2: int = whole(1, low=1)
    learning_rate: float = number(0.1, low=0, above=True)
    epochs: int = whole(5, low=1)


@dataclass(frozen=True, kw_only=True)
class DFFKE(LocalTraining):
    """profile `paper` or `fast`, for processors; participation ρ: share of the clients that a round asks.

    Local training, by Adam with learning_rate and batch_size as everything else, lasts until train_accuracy τ, for
    first_epochs in a client's first round and `epochs` later at most. embeddings: of so many samples at most that a
    client shares; dimension and width of the decoder; docking_epochs T_Tran, decoder_epochs T_Dec, exchange_epochs
    T_FKE (0: no exchange, local training alone). memory_rounds R: past rounds that are reviewed. divergence:
    `teacher` KL(teacher ‖ student), `student` KL(student ‖ teacher). exchange_statistics: batch normalisation uses
    those of each `batch` in the exchange, and goes on to learn them, or keeps the `running` ones. privacy of embeddings
    and logits: `none`, `clip` (rows clipped to clip_norm) or `empirical`, at epsilon ε and delta δ (nothing: one by
    the client's samples). inversion: so many pictures of each client, reconstructed from its embeddings by an attack
    after the last round, are shown in the report beside the private ones (0: no attack); the attack's model learns from
    inversion_samples test pictures in inversion_epochs passes.
    """

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "batch_size": 32, "epochs": 3, "first_epochs": 15, "embeddings": 100, "dimension": 64, "width": 16,
            "docking_epochs": 20, "decoder_epochs": 20, "exchange_epochs": 4, "memory_rounds": 10,
            "inversion_samples": 2000, "inversion_epochs": 10,
        },
    }  # fmt: skip

    profile: str = word("paper", "paper", "fast")
    participation: float = number(1.0, low=0, above=True, high=1)
    optimizer: str = word("adam", "adam")
    learning_rate: float = number(0.001, low=0, above=True)
    batch_size: int = whole(100, low=1)
    epochs: int = whole(15, low=1)
    first_epochs: int = whole(80, low=1)
    train_accuracy: float = number(0.98, low=0, above=True, high=1)
    embeddings: int = whole(750, low=1)
    dimension: int = whole(512, low=1)
    width: int = whole(64, low=1)
    docking_epochs: int = whole(100, low=1)
    decoder_epochs: int = whole(6, low=1)
    exchange_epochs: int = whole(4, low=0)
    exchange_statistics: str = word("batch", "batch", "running")
    memory_rounds: int = whole(50, low=0)
    divergence: str = word("teacher", "teacher", "student")
    privacy: str = word("none", "none", "clip", "empirical")
    epsilon: float = number(1.0, low=0, above=True, high=1)
    delta: float | None = number(None, low=0, above=True, high=1, below=True, none=True)
    clip_norm: float = number(1.0, low=0, above=True)
    inversion: int = whole(0, low=0)
    inversion_samples: int = whole(10_000, low=1)
    inversion_epochs: int = whole(20, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inversion and not self.exchange_epochs:
            raise ValueError(f"inversion: {self.inversion} finds no embeddings, since exchange_epochs: 0 shares none")
        if self.steps is not None:
            raise ValueError(
                f"steps: {self.steps} means nothing here: training lasts until train_accuracy; give epochs"
            )
        if self.weight_decay:
            raise ValueError(f"weight_decay: {self.weight_decay} means nothing here: leave it out")

    @property
    def most_epochs(self) -> int:
        return max(self.epochs, self.first_epochs)

    def beside_model(self, samples: int, features: int) -> int:
        return min(samples, self.embeddings) * (4 * features + LABEL_BYTES) if self.exchange_epochs else 0

    def between_clients(self, samples: int, classes: int) -> int:
        logits = 4 * min(samples, self.embeddings) * classes
        return 2 * logits if self.exchange_epochs else 0  # on the current pictures, and on as many of the memory's


@dataclass(frozen=True, kw_only=True)
class FedFeat(LocalTraining):
    """noise on the features, `gaussian`, `laplace` or `none`, of a scale made from epsilon ε, delta δ (of `gaussian`)
    and sensitivity Δ (equation 5); clip_norm: features are scaled to this norm at most, and Δ is twice it; features
    that are shared: of the client's own extractor in its `last-epoch`, or of the `averaged` one, for which the cloud
    asks again, and the share of them that is sent; retrain_epochs of the cloud's classifier (0: FedAvg), with
    retrain_learning_rate and retrain_batch_size. Local training as in the paper's experiments."""

    optimizer: str = word("adam", "adam", "sgd")
    epochs: int = whole(5, low=1)
    noise: str = word("gaussian", "gaussian", "laplace", "none")
    epsilon: float = number(2.0, low=0, above=True)
    delta: float = number(1e-5, low=0, above=True, high=1, below=True)
    sensitivity: float = number(1.0, low=0, above=True)
    clip_norm: float | None = number(None, low=0, above=True, none=True)
    features: str = word("last-epoch", "last-epoch", "averaged")
    share: float = number(1.0, low=0, above=True, high=1)
    retrain_epochs: int = whole(5, low=0)
    retrain_learning_rate: float = number(1e-3, low=0, above=True)
    retrain_batch_size: int = whole(128, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and self.features == "last-epoch":
            raise ValueError(f"steps: {self.steps} makes no last epoch, whose features are sent; give epochs instead")
        if self.clip_norm is not None and self.noise == "none":
            raise ValueError("clip_norm: bounds what noise must hide; with noise: none leave it out")

    def beside_model(self, samples: int, features: int) -> int:
        return math.ceil(self.share * samples) * (4 * features + LABEL_BYTES) if self.retrain_epochs else 0
