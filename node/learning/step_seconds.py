"""The duration of a step of work on the reference core in seconds, computed in advance from the model's operations.

A simulation takes it for the time of each step, and a plan for the deadlines of rounds.

    seconds = PER_STEP + batches * layers * per_layer + samples * (operations * per_operation + values * per_value)

For one sample's forward pass, ``operations`` are the multiply-adds of convolutions and products of matrices, ``values``
are the numbers that all layers output. ``layers`` are the modules without submodules. Training does the forward and the
backward pass, evaluation only the forward pass. The constants were fitted to measurements of the catalogue's models on
one core of a server of 2023 (`python -m benchmarks.step_seconds`), within a fifth for each model. PER_STEP is what a
node needs to load and return weights, and to read them and the code into caches after it has waited. That core has
speed 1 of hardware classes in a simulation. For emulated nodes, speed 1 is the host's core, which may be faster or
slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from node.catalogue.sizes import EVALUATION, TRAINING
from node.learning.local_training import EVALUATION_BATCH

PER_STEP = 0.7e-3  # s
PER_NUMBER = 5e-9  # s of other work


@dataclass(frozen=True)
class StepCost:
    """The cost of one model. A call with the number of samples and the mode gives the seconds of a step. Other work
    takes time for the numbers that it goes through, as far as its algorithm gives them. ``classifier`` is the cost of
    the classifier alone."""

    operations: int
    values: int
    layers: int
    batch_size: int
    classifier: StepCost | None = None

    def __call__(self, samples: int, mode: str) -> float:
        if mode == "other":
            return samples * PER_NUMBER
        if samples == 0:
            return 0.0
        if mode == "classifier" and self.classifier is not None:
            return self.classifier(samples, "train")
        if mode == "evaluate":
            rates = EVALUATION
            batch_size = EVALUATION_BATCH
        else:
            rates = TRAINING
            batch_size = self.batch_size
        batches = math.ceil(samples / batch_size)
        of_sample = self.operations * rates.per_operation + self.values * rates.per_value
        of_layers = batches * self.layers * rates.per_layer
        return PER_STEP + of_layers + samples * of_sample
