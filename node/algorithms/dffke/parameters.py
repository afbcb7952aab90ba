"""DFFKE's parameters, with the symbols of its paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from node.catalogue.datasets import Shape
from node.catalogue.sizes import Layers
from node.learning.local_training import LABEL_BYTES, ClientWork, LocalTraining
from node.parameters import number, whole, word


@dataclass(frozen=True, kw_only=True)
class DFFKE(LocalTraining):
    """DFFKE: clients with different models. All training is by Adam with learning_rate and batch_size.

    profile: values of other parameters: paper, or fast for CPUs
    participation: ρ, share of the clients that is selected for each round
    epochs: maximum number of epochs of local training in a client's later rounds
    first_epochs: maximum number of epochs of local training in a client's first round
    train_accuracy: τ, training accuracy at which local training ends early, from 0 to 1
    embeddings: largest number of embeddings that a client shares, one for each sample
    dimension: dimension of the decoder's input
    width: width of the decoder
    docking_epochs: T_Tran, epochs of the docking of embeddings
    decoder_epochs: T_Dec, epochs of the decoder
    exchange_epochs: T_FKE, epochs of the knowledge exchange; 0: local training only
    private_steps: steps on a client's own data after each step of the exchange
    exchange_statistics: statistics of batch normalisation in the exchange: those of each batch, which also update the
        running ones, or the running ones unchanged
    memory_rounds: R, past rounds that are reviewed
    divergence: loss of the exchange: teacher, KL(teacher ‖ student), or student, KL(student ‖ teacher)
    privacy: noise on embeddings and logits: none, clip (clipped to clip_norm), or empirical (not clipped)
    epsilon: ε, privacy budget of the noise; its standard deviation is proportional to 1 / ε; 1 is the least noise
    delta: δ, failure probability of the noise; default: 1 / the client's number of samples, which guarantees nothing
        to a client with one sample
    clip_norm: largest norm of an embedding, for clip; noise grows with it, also beyond the largest norm there is
    logits_clip_norm: largest norm of logits, for clip with noised both; default: clip_norm
    noised: what privacy applies to: both embeddings and logits, or embeddings alone (Algorithm 1)
    inversion: pictures per client that an attack reconstructs from embeddings after the last round, for the report; 0:
        no attack
    inversion_samples: test pictures that the attack's model learns from
    inversion_epochs: epochs of the attack's model
    """

    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "batch_size": 32,
            "epochs": 3,
            "first_epochs": 15,
            "embeddings": 100,
            "dimension": 64,
            "width": 16,
            "docking_epochs": 20,
            "decoder_epochs": 20,
            "exchange_epochs": 4,
            "memory_rounds": 10,
            "inversion_samples": 2000,
            "inversion_epochs": 10,
        },
    }

    own_loop: ClassVar[bool] = True
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
    private_steps: int = whole(0, low=0)
    exchange_statistics: str = word("batch", "batch", "running")
    memory_rounds: int = whole(50, low=0)
    divergence: str = word("teacher", "teacher", "student")
    privacy: str = word("none", "none", "clip", "empirical")
    epsilon: float = number(1.0, low=0, above=True, high=1)
    delta: float | None = number(
        None,
        low=0,
        above=True,
        high=1,
        below=True,
        none=True,
    )
    clip_norm: float = number(1.0, low=0, above=True)
    logits_clip_norm: float | None = number(None, low=0, above=True, none=True)
    noised: str = word("both", "both", "embeddings")
    inversion: int = whole(0, low=0)
    inversion_samples: int = whole(10_000, low=1)
    inversion_epochs: int = whole(20, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inversion and not self.exchange_epochs:
            raise ValueError(f"inversion: {self.inversion} finds no embeddings, since exchange_epochs: 0 shares none")
        if self.steps is not None:
            raise ValueError(
                f"steps: {self.steps} has no effect here: training lasts until train_accuracy; give epochs"
            )
        if self.weight_decay:
            raise ValueError(f"weight_decay: {self.weight_decay} has no effect here: leave it out")

    def noising_of_logits(self) -> DFFKE:
        """These parameters, with the privacy that applies to logits."""
        norm = self.clip_norm
        if self.logits_clip_norm is not None:
            norm = self.logits_clip_norm
        privacy = self.privacy
        if self.noised == "embeddings":
            privacy = "none"
        return replace(self, clip_norm=norm, privacy=privacy)

    @property
    def most_epochs(self) -> int:
        return max(self.epochs, self.first_epochs)

    @property
    def smallest_picture(self) -> int:
        return 1 if self.exchange_epochs else 0

    def longest_training(self, work: ClientWork) -> float:
        """Local training, or the exchange: the client's own pictures, which it teaches, and those of all others, of
        which the memory has as many. Making a picture takes a third of learning from it
        (`node.algorithms.dffke.step_samples`).
        """
        alone = super().longest_training(work)
        if not self.exchange_epochs:
            return alone
        own = min(work.samples, self.embeddings)
        new = own * (work.clients - 1)
        operations = self.decoder_operations(work.shape)
        decoding = work.worth(operations)
        batches = math.ceil(new / self.batch_size)
        private = batches * self.private_steps * self.batch_size
        current_and_past = 2 * new
        learning = self.exchange_epochs * (current_and_past + private)
        learning_with_decoding = learning + decoding * 2 * new / 3
        teaching = 2 * own * (1 + decoding)
        return max(alone, learning_with_decoding + teaching)

    def decoder_operations(self, shape: Shape) -> int:
        """Multiply-adds of the decoder for one picture."""
        channels, *sides = shape
        quarters = [math.ceil(side / 4) for side in sides]
        halves = [2 * side for side in quarters]
        full = [4 * side for side in quarters]
        wide = 2 * self.width
        start = wide * math.prod(quarters)
        network = Layers((self.dimension,)).linear(start)
        network.shape = (wide, *halves)
        network.convolution(wide, 3, padding=1)
        network.shape = (wide, *full)
        network.convolution(self.width, 3, padding=1)
        network.convolution(channels, 3, padding=1)
        return network.size().operations

    def beside_model(self, samples: int, features: int) -> int:
        if not self.exchange_epochs:
            return 0
        bytes_each = 4 * features + LABEL_BYTES
        return min(samples, self.embeddings) * bytes_each

    def between_clients(self, samples: int, classes: int) -> int:
        if not self.exchange_epochs:
            return 0
        pictures = min(samples, self.embeddings)
        logits = 4 * pictures * classes
        return 2 * logits  # on the current pictures, and on as many of the memory's
