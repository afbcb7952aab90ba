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
    copies = 1 + bool(params.weight_decay) + (3 if params.optimizer == "adam" else bool(params.momentum))
    saved = min(params.batch_size, samples) * (size.saved or size.values)
    step = NUMBER * (copies * size.parameters + saved)
    evaluation = NUMBER * 3 * size.widest * min(EVALUATION_BATCH, tests, params.evaluate_samples or tests)
    model = state + NUMBER * size.fixed
    return samples * sample_bytes + model + state + max(step, state + max(state, evaluation))
