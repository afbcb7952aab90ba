"""The trace of when devices are there: a CSV file with a row for each stay.

    device,from,until
    0,3600,28800
    0,90000,115200
    1,7200,9000

Times are in seconds from the start of the training. ``until`` is exclusive. A device that has no row is not in the
trace. After ``repeat`` seconds, by default the latest ``until``, the trace begins anew.
"""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEADER = ["device", "from", "until"]


@dataclass(frozen=True, eq=False)
class AvailabilityTable:
    """The stays of all devices, ordered by device and time. ``device`` counts them from 0, in the order of the file.

    ``name`` and ``sha256`` are those of the file.
    """

    name: str
    sha256: str
    devices: int
    repeat: float
    device: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]

    @classmethod
    def read(cls, text: str, name: str, repeat: float | None = None) -> AvailabilityTable:
        """Read a file's text. ValueError names the file, the line and the mistake."""
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        skipped = len(text.splitlines()) - len(lines)
        rows = csv.reader(lines)
        if next(rows, None) != HEADER:
            raise ValueError(f"{name}: the first row must be {','.join(HEADER)}")
        numbers: dict[str, int] = {}
        found: list[tuple[int, float, float]] = []
        for place, row in enumerate(rows, start=2 + skipped):
            if not row:
                continue
            found.append(_stay(row, numbers, f"{name}:{place}"))
        if not found:
            raise ValueError(f"{name}: has no rows: no device would ever be there")
        found.sort()
        device, begin, end = (np.array(column) for column in zip(*found, strict=True))
        overlapping = (device[1:] == device[:-1]) & (begin[1:] < end[:-1])
        if overlapping.any():
            names = list(numbers)
            raise ValueError(f"{name}: stays of device {names[device[1:][overlapping][0]]} overlap")
        last = float(end.max())
        if repeat is not None and repeat < last:
            raise ValueError(f"{name}: repeat is {repeat:g} s, but its last stay ends after {last:g} s")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return cls(name, sha256, len(numbers), repeat or last, device, begin, end)


def _stay(row: list[str], numbers: dict[str, int], where: str) -> tuple[int, float, float]:
    try:
        name, begin, end = row[0].strip(), float(row[1]), float(row[2])
        if len(row) != len(HEADER) or not name:
            raise ValueError
    except (ValueError, IndexError):
        raise ValueError(f"{where}: write a device and two times in seconds, like 17,3600,28800") from None
    if not (0 <= begin < end < math.inf):
        raise ValueError(f"{where}: a stay lasts from 0 or later until a later time, not from {begin:g} to {end:g}")
    return numbers.setdefault(name, len(numbers)), begin, end
