"""Single precision in two bytes of a message: bfloat16, stored as an integer, or float16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORT = {"bf16": np.dtype("<u2"), "fp16": np.dtype("<f2")}  # the stored type of each


def shortened(values: NDArray[Any], precision: str) -> NDArray[Any]:
    """Single precision in two bytes, rounded to nearest, ties to even. A value that is too large becomes infinite."""
    if precision == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16)
    bits = np.asarray(values, order="C").view(np.uint32)
    with np.errstate(over="ignore"):  # of NaN
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def widened(values: NDArray[Any], precision: str) -> NDArray[np.float32]:
    """The inverse of `shortened`, read-only."""
    bf16 = precision == "bf16"
    wide = np.left_shift(values, 16, dtype=np.uint32).view(np.float32) if bf16 else values.astype(np.float32)
    wide = np.asarray(wide)  # of a scalar
    wide.flags.writeable = False
    return wide
