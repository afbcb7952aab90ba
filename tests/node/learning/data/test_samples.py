"""What the `read` of a plug-in's data set may return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from node.learning.data.samples import arrays_from
from node.learning.errors import DataError


class Samples:
    """A map-style data set that is none of torch's."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def same(x: Any, count: int = 4) -> Samples:
    return Samples(*[(x, label % 2) for label in range(count)])


def test_tensors_of_floats_stay_as_they_are() -> None:
    x = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    found = arrays_from((TensorDataset(x, y), TensorDataset(x[:2].double(), y[:2])), "data set a")
    np.testing.assert_array_equal(found.x_train, x.numpy())
    assert found.x_train.dtype == found.x_test.dtype == np.float32
    assert found.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.normalised
    assert found.subjects is found.test_subjects is None


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 2, 2), [[[0, 1], [2, 3]]]),
        ((2, 2), [[[0, 1], [2, 3]]]),
        ((2, 2, 1), [[[0, 1], [2, 3]]]),
        ((2, 1, 3), [[[0], [3]], [[1], [4]], [[2], [5]]]),
        ((3, 1, 2), [[[0, 1]], [[2, 3]], [[4, 5]]]),
        ((3, 1, 3), [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]]]),
    ],
)
def test_pictures_have_their_channels_first(shape: tuple[int, ...], expected: Any) -> None:
    picture = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    found = arrays_from([same(picture), same(torch.from_numpy(picture))], "data set a")
    assert found.x_train[3].tolist() == expected
    np.testing.assert_array_equal(found.x_test, found.x_train)
    assert not found.normalised


def test_people() -> None:
    people = {"subject_train": [7, 7, 8, 8], "subject_test": torch.tensor([8, 7])}
    found = arrays_from({"train": same(np.zeros(3)), "test": same(np.zeros(3), 2), **people}, "data set a")
    assert found.subjects is not None
    assert found.test_subjects is not None
    assert (found.subjects.tolist(), found.test_subjects.tolist()) == ([7, 7, 8, 8], [8, 7])


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


class Fails(Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise OSError("unplugged")
        return np.zeros(3), 0


F, U = np.zeros(3), np.zeros((4, 4), np.uint8)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (Endless(), "train is a Endless; it needs"),
        ([], "train has no samples"),
        (Fails(), "train[2] cannot be read: OSError: unplugged"),
        (Samples((F, 0), F), "train[1] is a ndarray; each sample"),
        (Samples((F, 0), (F, 0.5)), "train[1] has a target float64 (), the"),
        (Samples((F, 0), (F, "cat")), "train[1] has the label str 'cat'"),
        (Samples((F, torch.tensor([0.0, 1.0]))), "y_train must be one axis of"),
        (Samples((F, 0), (F, 1), (F[:2], 0)), "train[2] is float32 (2,), the first"),
        (Samples((F, 0), (U, 1)), "train[1] is uint8 (1, 4, 4)"),
        (same(np.zeros(3, np.int64)), "train[0] is int64 (3,); take uint8"),
        (same(torch.zeros(3, requires_grad=True)), "train[0] is a Tensor of type"),
    ],
)
def test_mistakes_name_the_sample(train: Any, message: str) -> None:
    with pytest.raises(DataError) as raised:
        arrays_from((train, same(F)), "data set a (mine.py)")
    assert str(raised.value).startswith(f"data set a (mine.py): {message}")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "read returned a NoneType, not a"),
        ((same(F),), "read returned a tuple, not a"),
        ({"train": same(F)}, "there is 'train', but no 'test'"),
        ({"x_train": F}, "no array 'y_train'"),
        ({"train": same(F), "test": same(F), "subject_test": [0.5]}, "subject_test must be one axis of"),
    ],
)
def test_other_things_than_data_sets(found: Any, message: str) -> None:
    with pytest.raises(DataError) as raised:
        arrays_from(found, "data set a")
    assert str(raised.value).startswith(f"data set a: {message}")
