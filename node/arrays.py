"""NumPy arrays: short names of their types, and the values of plug-ins as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def as_array(value: Any) -> Array:
    """The value as an array, without a copy if possible. ValueError with a sentence that continues the value's name, if
    NumPy makes no array of it."""
    try:
        return np.asarray(value)
    except Exception:  # torch raises several types for tensors that NumPy cannot hold or share
        pass
    if getattr(value, "is_sparse", False):
        remedy = "value.to_dense().numpy()"
    else:
        remedy = "value.detach().float().cpu().numpy()"
    kind = f"a {type(value).__name__} of type {getattr(value, 'dtype', 'unknown')}"
    raise ValueError(f"is {kind}, of which NumPy makes no array; use {remedy}")
