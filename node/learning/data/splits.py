"""The training part and the test part of one table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from node.learning.data.shards import Indices
from node.learning.errors import DataError

APART = 5  # one row in five, or the rows of one person in five, is in the test part of a table without one


def split(
    rows: int,
    first_part: int,
    how: str,
    people: NDArray[np.intp] | None,
    source: str,
) -> tuple[Indices, Indices]:
    """The rows of the training part and of the test part, ascending. Of the ``rows``, the first ones belong to a
    training part of its own if there are fewer of them. ``people`` (N,): the person of each row."""
    if first_part < rows:
        if how != "random":
            raise DataError(f"{source}: has a test part of its own; leave data.columns.split out")
        return np.arange(first_part), np.arange(first_part, rows)
    held_out = max(1, rows // APART)
    order = np.arange(rows)
    if how == "random":
        order = np.random.default_rng(0).permutation(rows)
    if how == "by-subject":
        if people is None:
            raise DataError(f"{source}: split: by-subject needs the column of people; name it in data.columns.subject")
        return _by_people(people, source)
    train_rows = rows - held_out
    train = np.sort(order[:train_rows])
    test = np.sort(order[train_rows:])
    return train, test


def _by_people(
    people: NDArray[np.intp],
    source: str,
) -> tuple[Indices, Indices]:
    """All rows of four people in five, and those of the others, drawn with a fixed seed."""
    random = np.random.default_rng(0)
    known = random.permutation(np.unique(people))
    if len(known) < 2:
        raise DataError(f"{source}: has one person only, who cannot be split; leave data.columns.split out")
    count = max(1, len(known) // APART)
    tested = np.isin(people, known[:count])
    return np.flatnonzero(~tested), np.flatnonzero(tested)
