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
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "fc":
            continue
        finite = np.isfinite(tensor)
        if not np.logical_and.reduce(finite, axis=None):
            return name
    return None


def unusual(values: Mapping[str, object]) -> list[str]:
    """The names of the values that are numbers and not finite."""
    names = []
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            names.append(name)
    return names


def reportable(name: str, value: Any) -> float | str:
    """A reported value as Python's own, also that of an array or a tensor with one value. NodeError for any other."""
    of_numpy = isinstance(value, np.generic)
    if isinstance(value, int | float | str) and not of_numpy:
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
    for name in tensors or ():
        if not isinstance(name, str):
            return f"names a tensor {name!r}; names are text"
    if round is None:
        return None
    whole = isinstance(round, int | np.integer)
    if not whole or isinstance(round, bool):
        return f"has the round {round!r}, a {type(round).__name__}; write a whole number"
    return None
