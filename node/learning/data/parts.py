"""Samples of several parts, such as tokens and an attention mask: a dictionary or a tuple of arrays, kept as one array
of a structured type. So they are sliced, divided and mapped like any samples, and stored without pickle.

Parts keep their type, except that floats become float32. The parts of a tuple are named "0", "1" and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.learning.errors import DataError

KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32")


def has_parts(values: Any) -> bool:
    """Whether values are a dictionary or a tuple of arrays or tensors."""
    return isinstance(values, Mapping) or (isinstance(values, tuple) and all(hasattr(each, "dtype") for each in values))


def joined(values: Any, source: str, *, batch: bool = True) -> NDArray[Any]:
    """One array (N,) of the parts, each (N, ...); without ``batch``, one of a single sample, (). Raises DataError."""
    named = values if isinstance(values, Mapping) else {str(place): each for place, each in enumerate(values)}
    arrays = {str(name): _part(each, f"{source}: part {name}") for name, each in named.items()}
    counts = {each.shape[:1] for each in arrays.values()} if batch else {()}
    if len(counts) != 1 or (counts == {()} and batch):
        shapes = ", ".join(f"{name} {each.shape}" for name, each in arrays.items()) or "none"
        raise DataError(f"{source}: parts need one entry for each sample; there are {shapes}")
    (count,) = counts
    kinds = [(name, each.dtype, each.shape[len(count) :]) for name, each in arrays.items()]
    made = np.empty(count, np.dtype(kinds))
    for name, each in arrays.items():
        made[name] = each
    return made


def _part(values: Any, source: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except Exception as error:
        raise DataError(f"{source} is no array: {type(error).__name__}: {error}") from error
    kind = np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    if kind.name not in KINDS:
        raise DataError(f"{source} is {array.dtype}; take one of {', '.join(KINDS)}")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes an infinity, which is refused
        return array.astype(kind, copy=False)


def parts_of(values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The parts by name; of samples without parts, the samples under the name ""."""
    return {name: values[name] for name in values.dtype.names} if values.dtype.names else {"": values}


def normalised(values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The parts that are normalised: pictures and floats."""
    found = parts_of(values)
    return {name: each for name, each in found.items() if each.dtype.kind == "f" or (not name and each.dtype == "u1")}


def channels(values: NDArray[Any]) -> int:
    """The number of channels of a part (N, channels, ...), each with a mean; one for a part (N,)."""
    return values.shape[1] if values.ndim > 1 else 1


def not_finite(x: NDArray[Any]) -> NDArray[np.intp]:
    """The indices of the samples that hold NaN or an infinity."""
    wrong = np.zeros(len(x), bool)
    for each in parts_of(x).values():
        if each.dtype.kind == "f":
            wrong |= ~np.isfinite(each).reshape(len(x), -1).all(axis=1)
    return np.flatnonzero(wrong)


def normalisation(values: NDArray[Any], *, as_they_are: bool) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of the channels of all parts that are normalised, one part after the other; 0 and 1
    for what stays as it is."""
    mean, std = list[float](), list[float]()
    for each in normalised(values).values():
        width = channels(each)
        own = ([0.0] * width, [1.0] * width) if as_they_are else _of_channels(each)
        mean, std = mean + own[0], std + own[1]
    return mean, std


def _of_channels(x: NDArray[Any]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, of x / 255 for pictures. Computed in slices to save memory."""
    x = x[:, None] if x.ndim == 1 else x
    axes = (0, *range(2, x.ndim))
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    total = squares = np.zeros(x.shape[1])
    for start in range(0, len(x), 4096):
        piece = x[start : start + 4096] / scale
        total = total + piece.sum(axis=axes, dtype=np.float64)
        squares = squares + np.square(piece, dtype=np.float64).sum(axis=axes)
    count = x.size / x.shape[1]
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return mean.tolist(), np.where(std > 1e-6, std, 1.0).tolist()
