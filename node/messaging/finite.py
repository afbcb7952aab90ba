"""Tests for finite numbers. A NaN or an infinity spoils every average, so tensors that hold one are left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def not_finite(tensors: Mapping[str, NDArray[Any]]) -> str | None:
    """The name of the first tensor that holds NaN or an infinity; None if all are finite.

    It takes less time than a copy of the tensors, and little more than their sums, which could overflow.
    """
    for name, each in tensors.items():
        if each.dtype.kind in "fc" and not np.logical_and.reduce(np.isfinite(each), axis=None):
            return name
    return None


def unusual(values: Mapping[str, object]) -> list[str]:
    """The names of the values that are numbers and not finite."""
    return [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
