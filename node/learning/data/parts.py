"""Samples of several parts, such as tokens and an attention mask: a dictionary or a tuple of arrays, kept as one array
of a structured type. So they are sliced, divided and mapped like any samples, and stored without pickle.

Parts keep their type, except that floats become float32. The parts of a tuple are named "0", "1" and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array, Floats, as_array
from node.learning.errors import DataError

SLICE = 4096  # samples that are summed at a time
ROUNDING = float(np.finfo(np.float32).eps)  # of a value in single precision, relative to it
SMALLER_UNIT = "write them in a smaller unit"
LEAST_STD = float(np.finfo(np.float32).tiny)  # a standard deviation by which single precision can divide
KINDS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32")
OfFloats = Callable[[Floats], Floats]


def has_parts(values: Any) -> bool:
    """Whether values are a dictionary or a tuple of arrays or tensors."""
    if isinstance(values, Mapping):
        return True
    if not isinstance(values, tuple):
        return False
    return all(hasattr(value, "dtype") for value in values)


def joined(values: Any, source: str, *, batch: bool = True) -> Array:
    """One array (N,) of the parts, each (N, ...); without ``batch``, one of a single sample, (). Raises DataError."""
    if isinstance(values, Mapping):
        named = values
    else:
        named = {str(place): part for place, part in enumerate(values)}
    arrays = {}
    for key, part in named.items():
        arrays[str(key)] = _part(part, f"{source}: part {key}")
    if batch:
        counts = {part.shape[:1] for part in arrays.values()}
    else:
        counts = {()}
    no_entries = batch and counts == {()}
    if len(counts) != 1 or no_entries:
        shapes = [f"{name} {part.shape}" for name, part in arrays.items()]
        listed = ", ".join(shapes) or "none"
        raise DataError(f"{source}: parts need one entry for each sample; there are {listed}")
    (count,) = counts
    kinds = []
    for name, part in arrays.items():
        of_sample = part.shape[len(count) :]
        kinds.append((name, part.dtype, of_sample))
    samples = np.empty(count, np.dtype(kinds))
    for name, part in arrays.items():
        samples[name] = part
    return samples


def _part(values: Any, source: str) -> Array:
    array = array_of(values, source)
    if array.dtype.kind == "f":
        kind = np.dtype(np.float32)
    else:
        kind = array.dtype.newbyteorder("=")
    if kind.name not in KINDS:
        raise DataError(f"{source} is {array.dtype}; take one of {', '.join(KINDS)}")
    if array.dtype.kind == "f":
        return single_precision(array, source)
    return array.astype(kind, copy=False)


def array_of(values: Any, source: str) -> Array:
    """The values as an array. DataError, which names the ``source``, if NumPy makes none of them."""
    try:
        return as_array(values)
    except ValueError as error:
        raise DataError(f"{source} {error}") from None


def single_precision(values: Array, source: str) -> NDArray[np.float32]:
    """The values in single precision. What is beyond it becomes an infinity, which is refused later. DataError if all
    that is not 0 becomes 0."""
    with np.errstate(over="ignore", under="ignore"):
        single = np.asarray(values, dtype=np.float32)
    if not single.any() and values.any():
        raise DataError(f"{source} holds numbers below 1e-45 only, which single precision rounds to 0; {SMALLER_UNIT}")
    return single


def parts_of(values: Array) -> dict[str, Array]:
    """The parts by name; of samples without parts, the samples under the name ""."""
    if values.dtype.names:
        return {name: values[name] for name in values.dtype.names}
    return {"": values}


def normalised(values: Array) -> dict[str, Array]:
    """The parts that are normalised: pictures and floats."""
    chosen = {}
    for name, part in parts_of(values).items():
        is_picture = not name and part.dtype == "u1"
        if is_picture or part.dtype.kind == "f":
            chosen[name] = part
    return chosen


def channels(values: Array) -> int:
    """The number of channels of a part (N, channels, ...), each with a mean; one for a part (N,)."""
    if values.ndim == 1:
        return 1
    return int(values.shape[1])


def not_finite(x: Array) -> NDArray[np.intp]:
    """The indices of the samples that hold NaN or an infinity."""
    wrong = np.zeros(len(x), bool)
    for part in parts_of(x).values():
        if part.dtype.kind == "f":
            finite = np.isfinite(part)
            finite = finite.reshape(len(x), -1)
            wrong |= ~finite.all(axis=1)
    return np.flatnonzero(wrong)


def normalisation(
    values: Array,
    source: str,
    *,
    as_they_are: bool,
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of the channels of all parts that are normalised, one part after the other; 0 and 1
    for what stays as it is. DataError if single precision cannot divide by a standard deviation."""
    mean = list[float]()
    std = list[float]()
    for part in normalised(values).values():
        width = channels(part)
        if as_they_are:
            part_mean = [0.0] * width
            part_std = [1.0] * width
        else:
            part_mean, part_std = _of_channels(part)
        mean = mean + part_mean
        std = std + part_std
    least = min(std, default=1.0)
    if least < LEAST_STD:
        what = f"channel {std.index(least)} of the samples varies by {least:g}, too little for single precision"
        raise DataError(f"{source}: {what}; {SMALLER_UNIT}")
    return mean, std


def _of_channels(x: Array) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, of x / 255 for pictures. The unit does not count: only a channel
    that varies by no more than single precision rounds its largest value has the standard deviation 1."""
    if x.ndim == 1:
        x = x[:, None]
    count = x.size / x.shape[1]
    mean = _summed(x, lambda piece: piece) / count
    other_axes = [1] * (x.ndim - 2)
    from_mean = mean.reshape(-1, *other_axes)
    squares = _summed(x, lambda piece: np.square(piece - from_mean))
    variance = squares / count
    axes = _all_but_channels(x)
    lowest = x.min(axes).astype(np.float64)
    highest = x.max(axes).astype(np.float64)
    largest = np.maximum(-lowest, highest)
    if x.dtype == np.uint8:
        mean = mean / 255
        variance = variance / 255**2
        largest = largest / 255
    std = np.sqrt(variance)
    constant = std <= ROUNDING * largest
    divisor = np.where(constant, 1.0, std)
    return mean.tolist(), divisor.tolist()


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _summed(x: Array, function: OfFloats) -> Floats:
    """The sum over each channel of what a function makes of the values, computed in slices to save memory."""
    total = np.zeros(x.shape[1])
    for start in range(0, len(x), SLICE):
        piece = x[start : start + SLICE].astype(np.float64)
        total += function(piece).sum(axis=_all_but_channels(x))
    return total
