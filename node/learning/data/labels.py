"""The targets of samples: labels from 0 up without gaps, several labels of a sample, or numbers to predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.catalogue.datasets import IGNORED
from node.learning.data.shards import Indices
from node.learning.errors import DataError


def refuse_unequal(source: str, part: str, samples: int, labels: int) -> None:
    """DataError unless a part has as many labels as samples, and at least one."""
    if samples != labels or labels == 0:
        raise DataError(f"{source}: {part} has {samples} samples and {labels} labels; they must be equal and not 0")


def targets(entries: Mapping[str, NDArray[Any]], path: str) -> dict[str, NDArray[Any]]:
    """The targets of all parts, whose type names the task (`node.learning.metrics`): floats are numbers to predict,
    (N,) or (N, K) to float32 (N, K). Columns of 0 and 1 are labels, (N, K) uint8. Others are classes, (N,) int64.
    Raises DataError."""
    values = list(entries.values())
    if all(each.dtype.kind == "f" and each.ndim in (1, 2) for each in values) and not all(map(_are_whole, values)):
        return {name: numbers(each, f"{path}: {name}") for name, each in entries.items()}
    columns = all(each.dtype.kind in "biu" and each.ndim == 2 and each.shape[1] > 1 for each in values)
    truths = columns and all(((each == 0) | (each == 1)).all() for each in values)
    if columns and not truths:
        _refuse_ignored_columns(entries, path)
    if truths and any((each.sum(axis=1) != 1).any() for each in values):  # else each column stands for a class
        return {name: np.ascontiguousarray(each, dtype=np.uint8) for name, each in entries.items()}
    return dict(whole_numbers(entries, path))


def _refuse_ignored_columns(entries: Mapping[str, NDArray[Any]], path: str) -> None:
    """DataError if columns of 0 and 1 also have -100: of several labels of a sample, none can be ignored alone."""
    for name, values in entries.items():
        others = (values != 0) & (values != 1)
        if others.any() and (values[others] == IGNORED).all():
            first = int(np.flatnonzero(others.any(axis=1))[0])
            raise DataError(
                f"{path}: {name}[{first}] has the label {IGNORED} among those of 0 and 1, of which each counts; leave "
                "such samples out, or write 0 or 1"
            )


def _are_whole(values: NDArray[Any]) -> bool:
    return bool((values == np.floor(values)).all())


def numbers(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(values.reshape(len(values), -1), dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(made).all(axis=1))
    if len(wrong):
        raise DataError(f"{name}[{wrong[0]}] is NaN, an infinity or beyond float32; leave such samples out")
    return made


def whole_numbers(entries: Mapping[str, NDArray[Any]], path: str) -> dict[str, NDArray[np.int64]]:
    """The arrays (N,) or (N, 1) as int64 (N,). Raises DataError if one is not whole numbers."""
    found = {}
    for name, values in entries.items():
        if values.ndim == 2 and values.shape[1] == 1:
            flat = values[:, 0]
        else:
            flat = values
        if flat.ndim != 1 or flat.dtype.kind not in "iu":
            raise DataError(
                f"{path}: {name} must be one axis of whole numbers, not {values.dtype} {values.shape}{_remedy(flat)}"
            )
        if len(flat) and int(flat.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{path}: {name}[{flat.argmax()}] is {flat.max()}, which is beyond 64 bits with a sign")
        found[name] = np.ascontiguousarray(flat, dtype=np.int64)
    return found


def _remedy(values: NDArray[Any]) -> str:
    """How to make whole numbers of labels; empty if that is unknown."""
    if values.ndim == 2:
        return "; write y.argmax(axis=1) if each column stands for a class, y.astype(int) for several labels of 0 and 1"
    if values.ndim == 1 and values.dtype.kind in "US":
        return "; number them with np.unique(y, return_inverse=True)[1]"
    if values.ndim == 1 and values.dtype.kind == "f" and _are_whole(values):
        return "; write y.astype(int) for classes, or y / y.std() to predict numbers"
    if values.ndim == 1 and values.dtype.kind == "b":
        return "; write y.astype(int)"
    return ""


def refuse_gaps(parts: Mapping[str, NDArray[np.int64]], source: str) -> None:
    """DataError unless the labels of all parts together are 0, 1, 2, ... and each occurs."""
    occurring = np.unique(np.concatenate([np.unique(labels) for labels in parts.values()]))
    wrong = occurring[occurring != np.arange(len(occurring))]
    if not len(wrong):
        return
    stray = int(wrong[0])
    name, at = next((name, int(np.argmax(y == stray))) for name, y in parts.items() if (y == stray).any())
    first = f"label {stray} at {name}[{at}]"
    if stray < 0:
        raise DataError(f"{source}: {first}; labels count from 0: leave such samples out, or renumber the classes")
    if occurring[0] == 1 and occurring[-1] == len(occurring):
        raise DataError(f"{source}: labels count from 1 to {len(occurring)}; they must count from 0: subtract 1")
    missing = int(np.argmax(occurring == stray))
    others = len(occurring) - 1
    raise DataError(
        f"{source}: {first}, but no sample has label {missing}: without it {others} of {int(occurring[-1]) + 1} "
        "classes occur; labels count from 0 without gaps: leave stray samples out, or renumber the classes"
    )


def take_in_proportion(labels: NDArray[np.int64], size: int, random: np.random.Generator) -> Indices:
    """Ascending positions of `size` samples (all, if there are fewer), with every label in its proportion."""
    if size >= len(labels):
        return np.arange(len(labels))
    return take(labels, apportion(np.bincount(labels) / len(labels), size), random)


def take(labels: NDArray[np.int64], counts: NDArray[np.int64], random: np.random.Generator) -> Indices:
    """Ascending positions of so many random samples of each label."""
    chosen = [random.permutation(np.flatnonzero(labels == label))[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def apportion(shares: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Whole numbers in these shares that sum to `size`: largest remainders, ties to the first."""
    exact = shares * size
    counts = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: size - counts.sum()]] += 1
    return counts
