"""The mini-batches of a client's training: which samples each has, and which mini-batches make a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from node.learning.devices import PROCESSOR
from node.learning.local_training import LocalTraining

Batch = tuple[int, int, Tensor]  # local epoch, place of the mini-batch in it, and indices of samples


def batches(
    samples: int,
    params: LocalTraining,
    random: np.random.Generator,
    device: torch.device | str = PROCESSOR,
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield epoch, place in the epoch and sample indices, on `device`, of each mini-batch: `epochs` passes, each in a
    new random order, or `steps` steps."""
    if samples == 0:
        return
    epochs: Iterable[int]
    if params.steps is None:
        epochs = range(params.epochs)
    else:
        epochs = itertools.count()
    starts = range(0, samples, params.batch_size)
    steps = 0
    for epoch in epochs:
        order = torch.from_numpy(random.permutation(samples)).to(device)
        for place, start in enumerate(starts):
            end = start + params.batch_size
            yield epoch, place, order[start:end]
            step_is_full = end % params.step_size == 0
            if step_is_full or end >= samples:
                steps += 1
            if steps == params.steps:
                return


def steps_of(
    mini_batches: Iterable[Batch],
    params: LocalTraining,
) -> Iterator[list[Batch]]:
    """The mini-batches of each step, those of one epoch."""

    def epoch_and_step(batch: Batch) -> tuple[int, int]:
        epoch, place, _ = batch
        return epoch, place // params.gradient_accumulation

    for _, of_step in itertools.groupby(mini_batches, epoch_and_step):
        yield list(of_step)


def shares(micro_batches: list[Tensor], label_counts: Tensor) -> list[float]:
    """The share of each micro-batch in the labels of the step that count; ``label_counts`` (N,) are those of samples.
    So a step is that of the whole mini-batch with the mean loss over its labels."""
    if len(micro_batches) == 1:
        return [1.0]
    counts = []
    for chosen in micro_batches:
        counting = label_counts[chosen].sum()
        counts.append(int(counting))
    total = sum(counts)
    return [count / total for count in counts]
