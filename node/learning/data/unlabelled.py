"""Samples without a label that counts: nothing can be learned from them, and no model can be right about them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from node.arrays import Integers
from node.catalogue.datasets import IGNORED
from node.learning.data.formats import Arrays
from node.learning.errors import DataError


def without_unlabelled(arrays: Arrays, source: str) -> tuple[Arrays, int]:
    """The samples with a label that counts, and how many others there were. DataError if none is left in a part."""
    if arrays.y_train.dtype != np.int64:
        return arrays, 0
    train = _labelled(arrays.y_train)
    test = _labelled(arrays.y_test)
    for part, counting in (("train", train), ("test", test)):
        if not counting.any():
            raise DataError(f"{source}: all labels of the {part} part are {IGNORED}, so none of them counts")
    if train.all() and test.all():
        return arrays, 0
    left_out = int((~train).sum())
    left_out += int((~test).sum())
    subjects = None
    if arrays.subjects is not None:
        subjects = arrays.subjects[train]
    test_subjects = None
    if arrays.test_subjects is not None:
        test_subjects = arrays.test_subjects[test]
    labelled = replace(
        arrays,
        x_train=arrays.x_train[train],
        y_train=arrays.y_train[train],
        x_test=arrays.x_test[test],
        y_test=arrays.y_test[test],
        subjects=subjects,
        test_subjects=test_subjects,
    )
    return labelled, left_out


def _labelled(y: Integers) -> NDArray[np.bool_]:
    """Whether a label of each sample counts (N,), of labels (N,) or (N, T)."""
    counting: NDArray[np.bool_] = np.not_equal(y, IGNORED)
    if y.ndim > 1:
        counting = np.any(counting, axis=1)
    return counting
