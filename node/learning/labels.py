"""Labels and other whole numbers of samples: from 0 up, without gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.learning.errors import DataError

_REMEDIES = {  # by the kind of numpy's type
    "b": "write y.astype(int)",
    "f": "write y.astype(int)",
    "U": "number them with np.unique(y, return_inverse=True)[1]",
    "S": "number them with np.unique(y, return_inverse=True)[1]",
}


def whole_numbers(entries: Mapping[str, NDArray[Any]], path: str) -> dict[str, NDArray[np.int64]]:
    """The arrays (N,) or (N, 1) as int64 (N,). Raises DataError if one is not whole numbers."""
    found = {}
    for name, values in entries.items():
        flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if flat.ndim != 1 or flat.dtype.kind not in "iu":
            remedy = "write y.argmax(axis=1) if a column stands for a class" if flat.ndim == 2 else ""
            remedy = _REMEDIES.get(flat.dtype.kind, remedy) if flat.ndim == 1 else remedy
            raise DataError(
                f"{path}: {name} must be one axis of whole numbers, not {values.dtype} {values.shape}"
                + (f"; {remedy}" if remedy else "")
            )
        if len(flat) and int(flat.max()) > np.iinfo(np.int64).max:
            raise DataError(f"{path}: {name}[{flat.argmax()}] is {flat.max()}, which is beyond 64 bits with a sign")
        found[name] = np.ascontiguousarray(flat, dtype=np.int64)
    return found


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
        raise DataError(f"{source}: {first}; labels count from 0: leave such samples out, or number the classes anew")
    if occurring[0] == 1 and occurring[-1] == len(occurring):
        raise DataError(f"{source}: labels count from 1 to {len(occurring)}; they must count from 0: subtract 1")
    raise DataError(
        f"{source}: {first}, but no sample has label {int(np.argmax(occurring == stray))}: {len(occurring)} of "
        f"{int(occurring[-1]) + 1} classes occur; labels count from 0 without gaps: leave stray samples out, or number "
        "the classes anew"
    )
