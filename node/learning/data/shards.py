"""Reads the sample indices of single nodes from a run's shards.npz."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array
from node.learning.errors import DataError

Indices = NDArray[np.int64]

_HEADER = re.compile(rb"{'descr': '([<>|]\w+)', 'fortran_order': False, 'shape': \((\d+),\), }")


def read_indices(
    path: Path,
    keys: Sequence[str | None],
) -> list[Indices | None]:
    """The sample indices of each key, or None without a key."""
    if not any(keys):
        return [None] * len(keys)
    try:
        with path.open("rb") as file, _mapped(file) as archive:
            indices: list[Indices | None] = []
            for key in keys:
                if key is None:
                    indices.append(None)
                else:
                    array = stored_array(archive, key)
                    indices.append(array.astype(np.int64))
            return indices
    except (OSError, ValueError, KeyError, struct.error) as error:
        listed = ", ".join(repr(key) for key in keys if key)
        raise DataError(f"{path}: no sample indices {listed}: {error}") from error


def _mapped(file: BinaryIO) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def stored_array(archive: mmap.mmap, key: str) -> Array:
    """An array of an npz file without compression, smaller than 4 GB. KeyError without such an array.

    numpy would first read the directory of the whole file, with the arrays of all nodes. This function finds one
    entry, from the end (PKWARE's APPNOTE.TXT, 4.3.7 and 4.3.12).
    """
    name = f"{key}.npy".encode()
    at = archive.rfind(name)
    while at >= 46:
        signature, size, length, offset = struct.unpack_from("<4s20xLH12xL", archive, at - 46)
        if signature == b"PK\x01\x02" and length == len(name):
            # After the 30 bytes of a local header come the name and an extra field, with the lengths that it has.
            name_length, extra_length = struct.unpack_from("<HH", archive, offset + 26)
            start = offset + 30 + name_length + extra_length
            return _array(archive[start : start + size])
        at = archive.rfind(name, 0, at)
    raise KeyError(key)


def _array(npy: bytes) -> Array:
    """A one-dimensional array in the format of numpy.lib.format, version 1.0. Each node reads its own: numpy's reader,
    which parses the header as Python, takes a millisecond and 0.4 MB of a process."""
    start = 10 + int.from_bytes(npy[8:10], "little")
    header = _HEADER.match(npy, 10, start)
    if not npy.startswith(b"\x93NUMPY\x01\x00") or header is None:
        raise ValueError("not an array of one dimension")
    kind = np.dtype(header[1].decode())
    count = int(header[2])
    return np.frombuffer(npy, kind, count, start)
