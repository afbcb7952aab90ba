from __future__ import annotations

from itertools import chain

import numpy as np
import torch

from node.learning.batching import batches, shares
from node.learning.local_training import LocalTraining


def seen(samples: int, params: LocalTraining) -> list[list[int]]:
    return [chosen.tolist() for _, _, chosen in batches(samples, params, np.random.default_rng(0))]


def test_batches_are_numbered_in_their_epoch() -> None:
    """Five samples in batches of two: three batches an epoch; `steps` ends within the second."""
    for params, last in ((LocalTraining(batch_size=2, epochs=2), 2), (LocalTraining(batch_size=2, steps=5), 1)):
        numbers = [(epoch, place) for epoch, place, _ in batches(5, params, np.random.default_rng(0))]
        assert numbers == [(0, 0), (0, 1), (0, 2), *((1, place) for place in range(last + 1))]


def test_batches_cover_every_sample_once_an_epoch() -> None:
    taken = seen(10, LocalTraining(batch_size=4, epochs=2))
    assert [len(batch) for batch in taken] == [4, 4, 2, 4, 4, 2]
    assert sorted(chain(*taken[:3])) == sorted(chain(*taken[3:])) == list(range(10))
    assert taken[:3] != taken[3:]


def test_steps_instead_of_epochs() -> None:
    assert [len(batch) for batch in seen(10, LocalTraining(batch_size=4, epochs=9, steps=5))] == [4, 4, 2, 4, 4]
    assert seen(0, LocalTraining(steps=5)) == []


def test_micro_batches_count_by_their_labels() -> None:
    """Three samples with 1, 3 and 4 labels that count."""
    label_counts = torch.tensor([1, 3, 4])
    assert shares([torch.tensor([0, 1]), torch.tensor([2])], label_counts) == [0.5, 0.5]
    assert shares([torch.tensor([2])], label_counts) == [1]
