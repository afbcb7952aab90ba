"""The memory of a client that trains, computed in advance, to compare it with that of its hardware.

    samples + model + received state + max(step, trained state + max(message, evaluation))

samples: the client's own, as stored. model: parameters, statistics and frozen weights. step: gradients, the optimizer's
state and working copies, and what a mini-batch's forward pass keeps for its backward pass. evaluation: input and
output of the widest layer, and a copy that a convolution or product of matrices makes, for a batch of test samples. All
numbers have four bytes, also in bfloat16.

Python and torch (`FRAMEWORK`) and further state of an algorithm are not in it. Gradient checkpointing needs less.
`python -m benchmarks.memory` compares it with measurements.
"""

from __future__ import annotations

from node.catalogue.sizes import Size
from node.learning.local_training import EVALUATION_BATCH, LocalTraining

NUMBER = 4  # bytes
FRAMEWORK = 170_000_000
"""Bytes of a process with Python and torch on x86_64, without the files that it maps (RssAnon of proc(5))."""


def training_bytes(
    size: Size,
    params: LocalTraining,
    samples: int,
    sample_bytes: int,
    tests: int,
) -> int:
    """The most bytes of a client with ``samples`` of ``sample_bytes`` each, which evaluates on ``tests`` samples."""
    state = NUMBER * (size.parameters + size.buffers) + 8 * size.counters
    model = state + NUMBER * size.fixed
    saved = min(params.batch_size, samples) * (size.saved or size.values)
    step = NUMBER * (_copies(params) * size.parameters + saved)
    tested = params.evaluate_samples or tests
    batch = min(EVALUATION_BATCH, tests, tested)
    evaluation = NUMBER * 3 * size.widest * batch
    after_training = state + max(state, evaluation)
    return samples * sample_bytes + model + state + max(step, after_training)


def _copies(params: LocalTraining) -> int:
    """How many numbers a step keeps for each parameter: its gradient, and what the optimizer needs."""
    copies = 1
    if params.weight_decay:
        copies += 1
    if params.optimizer == "adam":
        copies += 3
    elif params.momentum:
        copies += 1
    return copies
