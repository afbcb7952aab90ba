"""What the `read` of a plug-in's data set returned, as arrays: named arrays, or map-style data sets of single samples.

A map-style data set has `__len__` and `__getitem__`, as `torch.utils.data.Dataset` does. Nothing of torch is imported.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array
from node.learning.data.formats import CHANNELS, Arrays, arrays_of, with_targets
from node.learning.data.parts import array_of, has_parts, joined
from node.learning.errors import DataError


def arrays_from(found: Any, source: str) -> Arrays:
    """The arrays of a mapping, or of a pair (training part, test part). ``source`` names the data set in messages.

    A mapping has the arrays of an npz file, or the map-style data sets `train` and `test` and, if known, the arrays
    `subject_train` and `subject_test`. Each sample is a pair: an array or tensor, or a dictionary or tuple of them; and
    a whole number, or an array of labels or numbers. Raises DataError.
    """
    if isinstance(found, tuple | list) and len(found) == 2:
        train, test = found
        found = {"train": train, "test": test}
    if not isinstance(found, Mapping):
        raise DataError(
            f"{source}: read returned a {type(found).__name__}, not a mapping of arrays or a pair of data sets"
        )
    if "train" not in found:
        named = {}
        for name, values in found.items():
            named[name] = _array(values, f"{source}: {name}")
        return arrays_of(named, source)
    if "test" not in found:
        raise DataError(f"{source}: there is 'train', but no 'test'")
    x_train, y_train = _stacked(found["train"], f"{source}: train")
    x_test, y_test = _stacked(found["test"], f"{source}: test")
    entries = {
        **found,
        "x_train": x_train,
        "y_train": y_train,
        "x_test": x_test,
        "y_test": y_test,
    }
    return with_targets(entries, source, normalised=x_train.dtype.kind != "u")


def _array(values: Any, source: str) -> Array:
    if has_parts(values):
        return joined(values, source)
    return array_of(values, source)


def _stacked(samples: Any, part: str) -> tuple[Array, Array]:
    """All samples (N, *shape) as uint8 or float32, or (N,) of a structured type; and their targets (N, ...)."""
    is_map_style = hasattr(samples, "__len__") and hasattr(samples, "__getitem__")
    if not is_map_style:
        raise DataError(f"{part} is a {type(samples).__name__}; it needs __len__ and __getitem__")
    count = len(samples)
    if count == 0:
        raise DataError(f"{part} has no samples")
    first, first_target = _sample(samples, 0, part)
    shape = (count, *first.shape)
    x = np.empty(shape, first.dtype)
    y = [first_target]
    x[0] = first
    for index in range(1, count):
        sample, target = _sample(samples, index, part)
        if sample.shape != first.shape or sample.dtype != first.dtype:
            raise DataError(
                f"{part}[{index}] is {sample.dtype} {sample.shape}, the first is {first.dtype} {first.shape}; "
                "all samples must be alike"
            )
        same_shape = target.shape == first_target.shape
        if not same_shape or target.dtype.kind != first_target.dtype.kind:
            raise DataError(
                f"{part}[{index}] has a target {target.dtype} {target.shape}, "
                f"the first {first_target.dtype} {first_target.shape}; all targets must be alike"
            )
        x[index] = sample
        y.append(target)
    return x, np.stack(y)


def _sample(
    samples: Any,
    index: int,
    part: str,
) -> tuple[Array, Array]:
    """One sample, channels first, and its target."""
    where = f"{part}[{index}]"
    try:
        item = samples[index]
    except Exception as error:
        raise DataError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{where} is a {type(item).__name__}; each sample must be a pair (array, label)")
    sample, label = item
    target = _target(label, where)
    if has_parts(sample):
        return joined(sample, where, batch=False), target
    values = array_of(sample, where)
    if values.dtype == np.uint8 and values.ndim in (2, 3):
        return _picture(values), target
    if values.dtype.kind == "f" and values.ndim > 0:
        return values.astype(np.float32, copy=False), target
    raise DataError(
        f"{where} is {values.dtype} {values.shape}; take uint8 (H, W), (H, W, C) or (C, H, W) for pictures, "
        "or floats with the channels first"
    )


def _target(value: Any, sample: str) -> Array:
    """A label as int64 (), several labels (K,), or numbers () or (K,)."""
    try:
        return np.asarray(operator.index(value), np.int64)
    except (TypeError, ValueError):
        if hasattr(value, "dtype") or isinstance(value, float):
            target = np.asarray(value)
        else:
            target = np.empty(0, object)
    if target.dtype.kind not in "biuf" or target.ndim > 1:
        shown = f"{type(value).__name__} {value!r:.50}"
        raise DataError(f"{sample} has the label {shown}; labels must be whole numbers, or an array of numbers")
    return target


def _picture(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if values.ndim == 2:
        return values[None]
    first, _, last = values.shape
    channels_last = last in CHANNELS and first not in CHANNELS
    if channels_last:
        return values.transpose(2, 0, 1)
    return values
