"""What each column of a table became, in words, for the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array, Floats
from node.catalogue.datasets import Columns
from node.learning.data.cells import shown
from node.learning.data.columns import ENOUGH_ROWS

COMPARED = 100  # different values of a column that is compared with the target


class Table(Protocol):
    """A table after its columns were read. ``classes``: the names of those of class labels. ``left_out``: columns that
    are no inputs, with the reason."""

    @property
    def data(self) -> Any: ...

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def left_out(self) -> Mapping[str, str]: ...

    def values(self, name: str) -> Array: ...


def report(
    table: Table,
    columns: Columns,
    target: str,
    inputs: Sequence[str],
    y: Array,
    label_names: Collection[str],
) -> tuple[tuple[str, str], ...]:
    """Each column, in the order of the table, with what it became."""
    became = []
    for name in table.data.column_names:
        if name == target:
            words = _target(y, list(label_names))
        elif name in inputs:
            words = _input(table, name, y)
        elif name == columns.subject:
            people = np.unique(table.values(name))
            words = f"people: {len(people)}"
        elif columns.inputs:
            words = "left out: data.columns.inputs does not name it"
        else:
            words = f"left out: {table.left_out[name]}"
        became.append((name.strip(), words))
    return tuple(became)


def _target(y: Array, label_names: list[str]) -> str:
    if y.dtype.kind == "f":
        return "target: numbers to predict"
    if y.ndim > 1:
        return f"target: {y.shape[1]} labels"
    if label_names:
        names = f": {shown(label_names)}"
    else:
        names = ""
    classes = len(label_names) or len(np.unique(y))
    return f"target: {classes} classes{names}"


def _input(table: Table, name: str, y: Array) -> str:
    values = table.values(name)
    if values.ndim > 1:
        lengths = map(str, values.shape[1:])
        return f"list of {' x '.join(lengths)}"
    if isinstance(values[0], bytes):
        return "picture"
    known, places = np.unique(values, return_inverse=True)
    if len(known) == 1:
        remark = "; it is the same in all rows"
    else:
        remark = _as_target(values, known, places, y)
    if values.dtype.kind == "b":
        return f"truth value{remark}"
    if values.dtype.kind in "iuf" and name not in table.classes:
        remark = remark or _counts(known, len(values)) or _rises(values)
        return f"number{remark}"
    if name in table.classes:
        classes = table.classes[name]
        names = [classes[value] for value in known]
    else:
        names = known.tolist()
    return f"category with {_values(len(known))}: {shown(names)}{remark}"


def _values(count: int) -> str:
    if count == 1:
        return "1 value"
    return f"{count} values"


def _counts(known: Array, rows: int) -> str:
    """A remark if the values are the numbers of the rows in another order."""
    each_once = len(known) == rows > 2
    if not each_once or known[0] not in (0, 1):
        return ""
    row_numbers = known[0] + np.arange(rows)
    if np.array_equal(known, row_numbers):
        return f"; it is each number from {known[0]:g} to {known[-1]:g} once, so it may number the rows"
    return ""


def _rises(values: Array) -> str:
    """A remark if whole numbers rise or fall from each row to the next, as keys of a database do."""
    steps = np.diff(values.astype(np.float64))
    whole = np.array_equal(values, np.floor(values))
    if len(values) < ENOUGH_ROWS or not whole:
        return ""
    if np.all(steps > 0):
        direction = "rises"
    elif np.all(steps < 0):
        direction = "falls"
    else:
        return ""
    return f"; it {direction} in each row, so it may number the rows"


def _as_target(
    values: Array,
    known: Array,
    places: NDArray[np.intp],
    y: Array,
) -> str:
    """A remark if each value of the column belongs to one class of the target and the reverse, or if its numbers are
    those to predict, in any unit."""
    if y.dtype.kind == "f":
        targets_of_sample = y.shape[1:]
        one_number = targets_of_sample in ((), (1,))
        if not one_number or values.dtype.kind not in "iuf":
            return ""
        if _proportional(values, y.reshape(-1)):
            return "; it is the target in another unit"
        return ""
    if y.ndim > 1 or len(known) > COMPARED:
        return ""
    classes = np.unique(y)
    # Each pair of a value and a class has its own number.
    width = int(y.max()) + 1
    numbers = places.astype(np.int64) * width + y
    pairs = np.unique(numbers)
    if len(pairs) == len(known) == len(classes):
        return "; each value belongs to one class, so it may be the target in other words"
    return ""


def _proportional(values: Array, y: Array) -> bool:
    values_centred = _centred(values)
    y_centred = _centred(y)
    values_norm = float(np.linalg.norm(values_centred))
    y_norm = float(np.linalg.norm(y_centred))
    if min(values_norm, y_norm) == 0:
        return False
    product = abs(values_centred @ y_centred)
    return bool(product > (1 - 1e-9) * values_norm * y_norm)


def _centred(values: Array) -> Floats:
    floats = values.astype(np.float64)
    centred: Floats = floats - floats.mean()
    return centred
