"""FedEDS's parameters, with the symbols of its paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from node.catalogue.datasets import Shape
from node.catalogue.sizes import Layers, Size
from node.learning.local_training import ClientWork, LocalTraining
from node.parameters import flag, number, whole, word

PART_BYTES = 1 << 20  # bytes of pictures in one message
VALUE = 110  # multiply-adds that take as long as one output value, by the rates of simulated training


def _effort(size: Size) -> float:
    return size.operations + VALUE * size.values


def _level(shape: Shape, part: int) -> list[int]:
    """The sides of pictures that were halved to 1 / `part`."""
    _, *sides = shape
    return [side // part for side in sides]


@dataclass(frozen=True, kw_only=True)
class FedEDS(LocalTraining):
    """FedEDS on top of a base algorithm. Local training as in the paper's experiments.

    profile: values of other parameters: paper (the interpretation in node.algorithms.fededs), literal (equation 6,
        Algorithm 4 and the encryptor's optimizer as printed) or fast (a small encryptor, for CPUs)
    base: the algorithm that FedEDS extends
    mu: μ, weight of the proximal term in each mini-batch of a round, with base fedprox; 0 is base fedavg. It has no
        effect with another base, or before round 1
    normalisation: normalisation of base fednova: by steps, or as printed in Algorithm 4
    annealing: S1, whether the number of epochs falls during the run
    epochs_max: E_max, epochs until round turn_start; `epochs` is E_min
    turn_start: T_α, round from which the number of epochs falls
    turn_end: T_β, round from which it is `epochs`
    exchange: S2, whether edges exchange encrypted data
    m: rate at which λ_dis, the weight of exchanged data, falls; 0: it stays 1/2, and data is used in all rounds
    epsilon: ε, λ_dis below which exchanged data is no longer used; 0: it is used until λ_dis is rounded to 0; 0.5: in
        round 1 only, unless m is 0
    distillation: loss on exchanged data: mean or sum over samples
    images: number format of the images that are sent
    layer: θ^l, the stochastic layer between extractor and classifier: a random matrix (gauss, near-identity), new
        noise at each pass, or none
    restore: whether round 1 starts from the initial model θ_0; false: from the model that the encryptor was trained
        against
    model_epochs: E_c, epochs of the model that the encryptor is trained against
    encryptor_epochs: E_g, epochs of the encryptor
    encryptor_width: channels of the encryptor's first level
    encryptor_optimizer: optimizer of the encryptor
    encryptor_learning_rate: learning rate of the encryptor
    """

    own_loop: ClassVar[bool] = True
    profile: str = word("paper", "paper", "literal", "fast")
    base: str = word("fedavg", "fedavg", "fedprox", "fednova")
    mu: float = number(0.1, low=0)
    normalisation: str = word("steps", "steps", "algorithm-4")
    momentum: float = number(0.9, low=0, high=1, below=True)
    weight_decay: float = number(1e-4, low=0)
    batch_size: int = whole(64, low=1)
    annealing: bool = flag(True)
    epochs_max: int = whole(5, low=1)
    turn_start: int = whole(1, low=1)
    turn_end: int = whole(3, low=1)
    exchange: bool = flag(True)
    m: float = number(3.0, low=0)
    epsilon: float = number(0.01, low=0, high=0.5)
    distillation: str = word("mean", "mean", "sum")
    images: str = word("uint8", "uint8", "float32")
    layer: str = word("gauss", "gauss", "near-identity", "noise", "none")
    restore: bool = flag(True)
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
            raise ValueError(f"optimizer: {self.optimizer} is not supported by fededs; take sgd")
        if self.steps is not None and (self.annealing or self.exchange):
            raise ValueError(f"steps: {self.steps} counts steps, but annealing and exchange count epochs; give epochs")
        if self.annealing and self.epochs_max < self.epochs:
            raise ValueError(f"epochs_max: {self.epochs_max} is below epochs, {self.epochs}: annealing goes down")
        if self.annealing and self.turn_end <= self.turn_start:
            raise ValueError(f"turn_end: round {self.turn_end} is not after turn_start, round {self.turn_start}")
        if not self.restore and not self.exchange:
            raise ValueError("restore: false goes with exchange, which trains the first model of round 1")

    @property
    def most_epochs(self) -> int:
        longest = self.epochs
        if self.annealing:
            longest = self.epochs_max
        if self.exchange:
            return 2 * longest  # an epoch sees a peer's pictures and the own
        return longest

    @property
    def smallest_picture(self) -> int:
        return 8 if self.exchange else 0

    def longest_training(self, work: ClientWork) -> float:
        """A round or, before the first one, the training of the model and of its encryptor."""
        alone = super().longest_training(work)
        if not self.exchange:
            return alone
        worth = self.encryptor_worth(work.shape, work.model)
        epochs = self.model_epochs + self.encryptor_epochs * worth
        before_first_round = work.samples * epochs
        return max(alone, before_first_round)

    def encryptor_worth(self, shape: Shape, model: Size) -> float:
        """The cost of one sample in the training of the U-Net (`node.algorithms.fededs.encryptor`), in samples of the
        model's own training. A transposed convolution of stride 2 takes as many multiply-adds as one of 1x1 on its
        output."""
        width = self.encryptor_width
        channels = shape[0]
        network = Layers(shape)
        self._double_convolution(network, shape, 1, channels, width)
        self._double_convolution(network, shape, 2, width, 2 * width)
        self._double_convolution(network, shape, 4, 2 * width, 4 * width)
        self._level_up(network, shape, 2, 4 * width)
        self._level_up(network, shape, 1, 2 * width)
        network.convolution(channels, 1)
        own_effort = max(_effort(model), 1)
        return 1 + _effort(network.size()) / own_effort

    def _level_up(
        self,
        network: Layers,
        shape: Shape,
        part: int,
        inside: int,
    ) -> None:
        """Add a transposed convolution and two convolutions, from `inside` channels to half as many."""
        network.shape = (inside, *_level(shape, part))
        network.convolution(inside // 2, 1)  # the transposed one
        self._double_convolution(network, shape, part, inside, inside // 2)

    @staticmethod
    def _double_convolution(
        network: Layers,
        shape: Shape,
        part: int,
        inside: int,
        width: int,
    ) -> None:
        """Add two convolutions to `width` channels, on pictures with sides of 1 / `part` of those of `shape`."""
        network.shape = (inside, *_level(shape, part))
        for _ in range(2):
            convolution = network.convolution(width, 3, padding=1, bias=False)
            convolution.normalisation().activation()

    def between_clients(self, samples: int, classes: int) -> int:
        if not self.exchange:
            return 0
        outputs = 4 * samples * classes
        return PART_BYTES + outputs

    def training(self, epochs: int, learning_rate: float | None = None) -> LocalTraining:
        """Local training for `epochs` epochs: of the model or, with `learning_rate`, of the encryptor."""
        if learning_rate is None:
            learning_rate = self.learning_rate
        return self.local(epochs=epochs, learning_rate=learning_rate)
