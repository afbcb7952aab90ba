"""Reads the sample indices of single nodes from a run's shards.npz."""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import NDArray

from node.learning.errors import DataError

Indices = NDArray[np.int64]


def read_indices(path: Path, keys: Sequence[str | None]) -> list[Indices | None]:
    """The sample indices of each key, or None without a key."""
    if not any(keys):
        return [None] * len(keys)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as archive:
            return [None if key is None else stored_array(archive, key).astype(np.int64) for key in keys]
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise DataError(f"{path}: no sample indices {', '.join(map(repr, filter(None, keys)))}: {error}") from error


def stored_array(archive: mmap.mmap, key: str) -> NDArray[Any]:
    """An array of an npz file without compression, smaller than 4 GB. KeyError without such an array.

    numpy would first read the directory of the whole file, with the arrays of all nodes. This function finds one
    entry, from the end (PKWARE's APPNOTE.TXT, 4.3.7 and 4.3.12).
    """
    name = f"{key}.npy".encode()
    at = archive.rfind(name)
    while at >= 46:
        signature, size, length, offset = struct.unpack_from("<4s20xLH12xL", archive, at - 46)
        if signature == b"PK\x01\x02" and length == len(name):
            start = offset + 30 + sum(struct.unpack_from("<HH", archive, offset + 26))
            array: NDArray[Any] = read_array(io.BytesIO(archive[start : start + size]), allow_pickle=False)
            return array
        at = archive.rfind(name, 0, at)
    raise KeyError(key)
