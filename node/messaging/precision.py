"""Single precision in two bytes of a message: bfloat16, stored as an integer, or float16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FP16_MAX = float(np.finfo(np.float16).max)
SHORT = {"bf16": np.dtype("<u2"), "fp16": np.dtype("<f2")}  # the stored type of each precision


def shortened(values: NDArray[Any], precision: str) -> NDArray[Any]:
    """Single precision in two bytes, rounded to nearest, ties to even. Raises OverflowError for a finite value that
    is too large for fp16. One that is too large for bf16, above 3.39e38, becomes infinite."""
    if precision == "fp16":
        try:
            with np.errstate(over="raise"):
                return values.astype(np.float16)
        except FloatingPointError:
            finite = values[np.isfinite(values)]
            largest = np.argmax(np.abs(finite))
            worst = finite[largest]
            raise OverflowError(f"{worst:g} is beyond fp16, which ends at {FP16_MAX:g}") from None
    bits = np.asarray(values, order="C").view(np.uint32)
    # To nearest, ties to even: less than half of the last bit is added if the last bit is 0, exactly half if it is 1.
    last_bit = (bits >> 16) & 1
    with np.errstate(over="ignore"):  # of NaN
        rounded = (bits + (0x7FFF + last_bit)) >> 16
    quiet_nan = bits >> 16 | 0x40
    short = np.where(np.isnan(values), quiet_nan, rounded)
    return short.astype(np.uint16)


def widened(values: NDArray[Any], precision: str) -> NDArray[np.float32]:
    """The inverse of `shortened`, read-only."""
    if precision == "bf16":
        bits = np.left_shift(values, 16, dtype=np.uint32)
        wide = bits.view(np.float32)
    else:
        wide = values.astype(np.float32)
    wide = np.asarray(wide)  # of a scalar
    wide.flags.writeable = False
    return wide
