"""The targets of samples: labels from 0 up without gaps, several labels of a sample, or numbers to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array, Floats, Integers
from node.catalogue.datasets import IGNORED
from node.learning.data.shards import Indices
from node.learning.errors import DataError


def refuse_unequal(
    source: str,
    part: str,
    samples: int,
    labels: int,
) -> None:
    """DataError unless a part has as many labels as samples, and at least one."""
    if samples != labels or labels == 0:
        raise DataError(f"{source}: {part} has {samples} samples and {labels} labels; they must be equal and not 0")


def targets(
    entries: Mapping[str, Array],
    path: str,
) -> dict[str, Array]:
    """The targets of all parts. Their type names the task (`node.learning.metrics`): floats are numbers to predict,
    (N,) or (N, K) to float32 (N, K). Columns of 0 and 1 are labels, (N, K) uint8. Others are classes, (N,) int64.
    Raises DataError."""
    values = list(entries.values())
    if _are_floats(values) and not all(map(_are_whole, values)):
        floats = {}
        for name, y in entries.items():
            floats[name] = numbers(y, f"{path}: {name}")
        return floats
    columns = _are_columns(values)
    truths = columns and all(map(_are_truths, values))
    if columns and not truths:
        _refuse_ignored_columns(entries, path)
    if truths and not all(map(_have_one_label, values)):
        several = {}
        for name, y in entries.items():
            several[name] = np.ascontiguousarray(y, dtype=np.uint8)
        return several
    return dict(whole_numbers(entries, path))


def _are_floats(values: Sequence[Array]) -> bool:
    for y in values:
        if y.dtype.kind != "f" or y.ndim not in (1, 2):
            return False
    return True


def _are_columns(values: Sequence[Array]) -> bool:
    """Whether each sample has several whole numbers or truth values."""
    for y in values:
        if y.dtype.kind not in "biu":
            return False
        if y.ndim != 2 or y.shape[1] < 2:
            return False
    return True


def _are_truths(y: Array) -> bool:
    is_truth = (y == 0) | (y == 1)
    return bool(is_truth.all())


def _have_one_label(y: Array) -> bool:
    """Whether each sample has one 1, so that each column stands for a class."""
    labels = y.sum(axis=1)
    return not (labels != 1).any()


def _refuse_ignored_columns(entries: Mapping[str, Array], path: str) -> None:
    """DataError if columns of 0 and 1 also have -100: of several labels of a sample, none can be ignored alone."""
    for name, values in entries.items():
        others = (values != 0) & (values != 1)
        if not others.any():
            continue
        if (values[others] == IGNORED).all():
            with_others = np.flatnonzero(others.any(axis=1))
            first = int(with_others[0])
            raise DataError(
                f"{path}: {name}[{first}] has the label {IGNORED} among those of 0 and 1, of which each counts; leave "
                "such samples out, or write 0 or 1"
            )


def _are_whole(values: Array) -> bool:
    is_whole = values == np.floor(values)
    return bool(is_whole.all())


def numbers(values: Array, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        columns = values.reshape(len(values), -1)
        single = np.ascontiguousarray(columns, dtype=np.float32)
    finite = np.isfinite(single).all(axis=1)
    wrong = np.flatnonzero(~finite)
    if len(wrong):
        raise DataError(f"{name}[{wrong[0]}] is NaN, an infinity or beyond float32; leave such samples out")
    return single


def whole_numbers(
    entries: Mapping[str, Array],
    path: str,
) -> dict[str, Integers]:
    """The arrays (N,) or (N, 1) as int64 (N,). Raises DataError if one is not whole numbers."""
    converted = {}
    largest = np.iinfo(np.int64).max
    for name, values in entries.items():
        flat = values
        if values.ndim == 2 and values.shape[1] == 1:
            flat = values[:, 0]
        if flat.ndim != 1 or flat.dtype.kind not in "iu":
            raise DataError(
                f"{path}: {name} must be one axis of whole numbers, not {values.dtype} {values.shape}{_remedy(flat)}"
            )
        if len(flat) and int(flat.max()) > largest:
            raise DataError(f"{path}: {name}[{flat.argmax()}] is {flat.max()}, which is beyond 64 bits with a sign")
        converted[name] = np.ascontiguousarray(flat, dtype=np.int64)
    return converted


def _remedy(values: Array) -> str:
    """How to make whole numbers of labels; empty if that is unknown."""
    if values.ndim == 2:
        return "; write y.argmax(axis=1) if each column stands for a class, y.astype(int) for several labels of 0 and 1"
    if values.ndim != 1:
        return ""
    kind = values.dtype.kind
    if kind in "US":
        return "; number them with np.unique(y, return_inverse=True)[1]"
    if kind == "f" and _are_whole(values):
        return "; write y.astype(int) for classes, or y / y.std() to predict numbers"
    if kind == "b":
        return "; write y.astype(int)"
    return ""


def refuse_gaps(parts: Mapping[str, Integers], source: str) -> None:
    """DataError unless the labels of all parts together are 0, 1, 2, ... and each occurs."""
    of_parts = [np.unique(labels) for labels in parts.values()]
    occurring = np.unique(np.concatenate(of_parts))
    count = len(occurring)
    wrong = occurring[occurring != np.arange(count)]
    if not len(wrong):
        return
    stray = int(wrong[0])
    first = f"label {stray} at {_first_with(stray, parts)}"
    if stray < 0:
        raise DataError(f"{source}: {first}; labels count from 0: leave such samples out, or renumber the classes")
    highest = int(occurring[-1])
    if occurring[0] == 1 and highest == count:
        raise DataError(f"{source}: labels count from 1 to {count}; they must count from 0: subtract 1")
    missing = int(np.argmax(occurring == stray))
    raise DataError(
        f"{source}: {first}, but no sample has label {missing}: without it {count - 1} of {highest + 1} "
        "classes occur; labels count from 0 without gaps: leave stray samples out, or renumber the classes"
    )


def _first_with(label: int, parts: Mapping[str, Integers]) -> str:
    """The first sample with this label, such as y_train[3]."""
    for name, labels in parts.items():
        places = np.flatnonzero(labels == label)
        if len(places):
            return f"{name}[{places[0]}]"
    raise LookupError(label)


def take_in_proportion(labels: Integers, size: int, random: np.random.Generator) -> Indices:
    """Ascending positions of `size` samples (all, if there are fewer), with every label in its proportion."""
    if size >= len(labels):
        return np.arange(len(labels))
    shares = np.bincount(labels) / len(labels)
    counts = apportion(shares, size)
    return take(labels, counts, random)


def take(labels: Integers, counts: Integers, random: np.random.Generator) -> Indices:
    """Ascending positions of so many random samples of each label."""
    chosen = []
    for label, count in enumerate(counts):
        samples = np.flatnonzero(labels == label)
        shuffled = random.permutation(samples)
        chosen.append(shuffled[:count])
    positions = np.sort(np.concatenate(chosen))
    return positions.astype(np.int64)


def apportion(shares: Floats, size: int) -> Integers:
    """Whole numbers in these shares that sum to `size`: largest remainders, ties to the first."""
    exact = shares * size
    counts = np.floor(exact + 1e-9).astype(np.int64)
    largest_remainder_first = np.argsort(-(exact - counts), kind="stable")
    missing = size - counts.sum()
    counts[largest_remainder_first[:missing]] += 1
    return counts
