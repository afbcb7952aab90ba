"""Tests of what an algorithm sends and reports. A NaN or an infinity spoils every average, so tensors that hold one are
left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.errors import NodeError


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


def reportable(name: str, value: Any) -> float | str:
    """A reported value as Python's own, also that of an array or a tensor with one value. NodeError for any other."""
    if isinstance(value, int | float | str) and not isinstance(value, np.generic):
        return value
    try:
        plain: float | str = value.item()
    except Exception:  # NumPy and torch raise different types
        raise NodeError(f"report: {name} is a {type(value).__name__}; report one number or text") from None
    return plain


def unsendable(tensors: object, round: object) -> str | None:
    """Why a message cannot have these tensors or this round, as a sentence that continues its kind."""
    if tensors is not None and not isinstance(tensors, Mapping):
        return f"has tensors in a {type(tensors).__name__}; send a dictionary with their names"
    unnamed = [name for name in tensors or () if not isinstance(name, str)]
    if unnamed:
        return f"names a tensor {unnamed[0]!r}; names are text"
    if round is not None and (isinstance(round, bool) or not isinstance(round, int | np.integer)):
        return f"has the round {round!r}, a {type(round).__name__}; write a whole number"
    return None
