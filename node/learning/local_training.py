"""Parameters of a client's training on its own data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from node.catalogue.datasets import Shape
from node.catalogue.models import MODELS, ModelEntry
from node.catalogue.sizes import Size
from node.parameters import Parameters, flag, number, whole, word

LABEL_BYTES = 8  # bytes of a label that is sent with features
EVALUATION_BATCH = 250  # samples
RECOMPUTED = 4 / 3  # the work of a step with checkpointing: forward twice and backward, which is two forward passes


@dataclass(frozen=True)
class ClientWork:
    """A client's round: the numbers of its ``samples`` and of all ``clients``, the form of the data, and the size of
    the client's ``model``. ``known``: the models of the catalogue, by name."""

    samples: int
    clients: int
    shape: Shape
    classes: int
    model: Size
    known: Mapping[str, ModelEntry] = field(default_factory=lambda: MODELS, repr=False, compare=False)

    def worth(self, operations: float) -> float:
        """The number of samples of the client's model that take so many multiply-adds."""
        return operations / max(self.model.operations, 1)

    def worth_of(self, model: str) -> float:
        """The number of samples of the client's model that one sample of another model of the catalogue is worth."""
        size = self.known[model].size(self.shape, self.classes)
        return self.worth(size.operations)


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Parameters):
    """Stochastic gradient descent on a client's own data, and how results are evaluated.

    optimizer: optimizer of a client's training; its state is new in each round
    learning_rate: η, learning rate
    learning_rate_decay: factor of the learning rate from round to round, η decay^⌊(t − 1) / rounds⌋ in round t; not for
        fededs, dffke and fedfeat, which set the rates of their own loops
    learning_rate_decay_rounds: rounds between two such decays: 1 for an exponential, more for a step schedule
    momentum: ρ, momentum of sgd; adam has its own
    weight_decay: weight of an L2 term that is added to the gradient
    batch_size: B, samples per mini-batch
    epochs: E, passes over a client's data per round
    steps: steps per round, instead of epochs
    gradient_clipping: largest norm of a step's gradients, all together; default: no clipping
    gradient_accumulation: mini-batches in a step, which is that of one batch of so many times batch_size, up to
        rounding; batch normalisation still takes the statistics of each mini-batch
    gradient_checkpointing: whether the backward pass computes activations again, so that they take less memory
    evaluate_samples: number of test samples that models are evaluated on, a fixed random subset; default: all

    Parameters of an algorithm that trains in an ``own_loop``, not by `Learner.train`, refuse the three of gradients.
    They refuse the two of the decay too, unless the loop ``decays``: then it uses the values of `at`.
    """

    own_loop: ClassVar[bool] = False
    decays: ClassVar[bool] = False

    optimizer: str = word("sgd", "sgd", "adam")
    learning_rate: float = number(0.01, low=0, above=True)
    learning_rate_decay: float = number(1.0, low=0, above=True, high=1)
    learning_rate_decay_rounds: int = whole(1, low=1)
    momentum: float = number(0.0, low=0, high=1, below=True)
    weight_decay: float = number(0.0, low=0)
    batch_size: int = whole(32, low=1)
    epochs: int = whole(1, low=1)
    steps: int | None = whole(None, low=1, none=True)
    gradient_clipping: float | None = number(None, low=0, above=True, none=True)
    gradient_accumulation: int = whole(1, low=1)
    gradient_checkpointing: bool = flag(False)
    evaluate_samples: int | None = whole(None, low=1, none=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(f"momentum: {self.momentum} is of sgd; adam has its own: leave it out")
        if not self.own_loop:
            return
        if self.decays:
            refused: tuple[str, ...] = ("gradient_",)
        else:
            refused = ("gradient_", "learning_rate_decay")
        for entry in fields(self):
            if not entry.name.startswith(refused):
                continue
            if getattr(self, entry.name) != entry.default:
                raise ValueError(
                    f"{entry.name}: is not for this algorithm, whose clients train in their own way: leave it out"
                )

    def notes(self) -> Iterator[str]:
        """Sentences for plan and record: values that mean something else than one may expect, or nothing."""
        return iter(())

    def without_effect(self, names: Sequence[str], reason: str) -> Iterator[str]:
        """A note on those of the parameters ``names`` that differ from their defaults. ``reason``: why none of them
        acts."""
        defaults = {entry.name: entry.default for entry in fields(self)}
        changed = []
        for name in names:
            value = getattr(self, name)
            if value != defaults[name]:
                changed.append(f"{name}: {value}")
        if changed:
            yield f"without effect: {', '.join(changed)}, since {reason}"

    def local(self, **changes: Any) -> LocalTraining:
        """The values of local training alone, without those that an algorithm adds, and with ``changes``."""
        values = {}
        for entry in fields(LocalTraining):
            values[entry.name] = getattr(self, entry.name)
        return LocalTraining(**values | changes)

    def at(self, t: int) -> Self:
        """The values in round t of the run, which counts from 1."""
        if self.learning_rate_decay == 1.0:
            return self
        decays = (t - 1) // self.learning_rate_decay_rounds
        factor = self.learning_rate_decay**decays
        return replace(self, learning_rate=self.learning_rate * factor, learning_rate_decay=1.0)

    @property
    def most_epochs(self) -> int:
        """The number of passes over its data, with those over a peer's data, in a client's longest round."""
        return self.epochs

    @property
    def smallest_picture(self) -> int:
        """The least width and height of the pictures that clients need, in pixels; 0: any samples will do."""
        return 0

    @property
    def step_size(self) -> int:
        """The samples of a step."""
        return self.batch_size * self.gradient_accumulation

    @property
    def passes(self) -> float:
        """The work of a step, as a multiple of that without checkpointing."""
        if self.gradient_checkpointing:
            return RECOMPUTED
        return 1.0

    def longest_training(self, work: ClientWork) -> float:
        """The most work of a client between a request and its answer. In samples of its own model that are trained,
        as an algorithm gives to `Role.compute`. The evaluation of test sets and of each own sample is not in it."""
        if self.steps is None:
            samples = self.most_epochs * work.samples
        else:
            samples = self.steps * self.step_size
        return samples * self.passes

    @property
    def coordinator_training(self) -> int:
        """The samples that a node above the clients trains on between two rounds."""
        return 0

    def beside_model(self, samples: int, features: int) -> int:
        """Bytes that a client with ``samples`` samples sends with its model, which makes ``features`` of each."""
        return 0

    def between_clients(self, samples: int, classes: int) -> int:
        """The most bytes that a client with ``samples`` samples sends another in a message that the other waits for."""
        return 0
