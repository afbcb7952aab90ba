"""The trace of when devices are available: a CSV file with a row for each stay.

    device,from,until,period
    0,3600,28800,86400
    0,40000,43200,86400
    1,7200,9000,604800
    2,,,86400

Times are in seconds from the start of the training. ``until`` is exclusive. A device without times is never available.
The stays of a device repeat after its ``period``. Without this column, or this cell, they repeat after ``repeat``
seconds, by default the latest ``until`` of the file. The first column may also be named client or node.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from netem.schedules.csv_rows import read_rows

HEADER = ["device", "from", "until", "period"]
NAMES = ("device", "client", "node")  # of the first column
EXAMPLE = "write a device and two times in seconds, like 17,3600,28800"
SINCE_1970 = 1e9  # s; a training of 31 years, or a time of this century

Times = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AvailabilityTable:
    """The stays of all devices, ordered by device and time. ``device`` counts them from 0, in the order of the file.

    ``name`` and ``sha256`` are those of the file, ``names`` those of the devices. ``period`` (devices,): after how many
    seconds the stays of each device repeat. ``repeat``: that of devices without a period of their own; None if each has
    one. ``lines``: where each device is in the file first. ``names_nodes``: the first column is ``node``.
    """

    name: str
    sha256: str
    names: tuple[str, ...]
    repeat: float | None
    period: Times
    device: Numbers
    begin: Times
    end: Times
    lines: tuple[int, ...]
    names_nodes: bool = False

    @property
    def devices(self) -> int:
        return len(self.names)

    def stays(self, device: int) -> list[tuple[float, float]]:
        """The stays of a device as (from, until)."""
        device_and_next = [device, device + 1]
        first, last = np.searchsorted(self.device, device_and_next)
        begins = self.begin[first:last].tolist()
        ends = self.end[first:last].tolist()
        return list(zip(begins, ends, strict=True))

    @classmethod
    def read(
        cls,
        text: str,
        name: str,
        repeat: float | None = None,
    ) -> AvailabilityTable:
        """Read a file's text. ValueError names the file, the line and the mistake."""
        rows = read_rows(text, name)
        first, header = next(rows)
        columns = [cell.lower() for cell in header]
        device_first = len(columns) > 0 and columns[0] in NAMES
        times = columns[1:]
        times_next = times == HEADER[1:3] or times == HEADER[1:]
        if not device_first or not times_next:
            raise ValueError(f"{name}:{first}: the first row must be {','.join(HEADER)}; period may be left out")
        lines: dict[str, int] = {}  # the first of each device
        numbers: dict[str, int] = {}
        periods: dict[int, float] = {}
        absent: set[int] = set()
        stays = array("d")  # device, line, from and until of each
        for line, cells in rows:
            try:
                again = cells[0] in numbers
                device = _device(cells, numbers, periods)
                lines.setdefault(cells[0], line)
                if cells[1] or cells[2]:
                    begin_and_end = _stay(cells)
                    stays.extend((device, line, *begin_and_end))
                else:
                    absent.add(device)
                if again and device in absent:
                    raise ValueError(
                        f"{cells[0]} has another row: a row without times is for a device that is never available"
                    )
            except ValueError as error:
                raise ValueError(f"{name}:{line}: {error}") from None
        if not stays:
            raise ValueError(f"{name}: has no stays: no device would ever be there")
        all_numbers = np.array(stays)
        table_of_stays = all_numbers.reshape(-1, 4)
        owners = table_of_stays[:, 0]
        begins = table_of_stays[:, 2]
        by_device_and_begin = np.lexsort((begins, owners))
        owner, place, begin, end = table_of_stays[by_device_and_begin].T
        last = float(end.max())
        default = _default(name, repeat, last, len(numbers), periods)
        period = []
        for number in range(len(numbers)):
            period.append(periods.get(number, default or 0.0))
        sha256 = hashlib.sha256(text.encode())
        table = cls(
            name=name,
            sha256=sha256.hexdigest(),
            names=tuple(numbers),
            repeat=default,
            period=np.array(period),
            device=owner.astype(np.int64),
            begin=begin.copy(),
            end=end.copy(),
            lines=tuple(lines.values()),
            names_nodes=columns[0] == NAMES[-1],
        )
        _check(table, place.astype(np.int64), periods)
        return table


def _device(
    cells: list[str],
    numbers: dict[str, int],
    periods: dict[int, float],
) -> int:
    """The number of a row's device. Its period is kept in ``periods``."""
    if not cells[0]:
        raise ValueError(EXAMPLE)
    next_number = len(numbers)
    device = numbers.setdefault(cells[0], next_number)
    has_period_column = len(cells) == len(HEADER)
    if has_period_column and cells[3]:
        own = _period(cells[3])
        if periods.setdefault(device, own) != own:
            raise ValueError(f"device {cells[0]} has a period of {periods[device]:.15g} s already")
    return device


def _default(
    name: str,
    repeat: float | None,
    last: float,
    devices: int,
    periods: Mapping[int, float],
) -> float | None:
    """The period of devices without one of their own."""
    if len(periods) < devices:
        if repeat is None:
            return last
        return repeat
    different = set(periods.values())
    if repeat is not None and different != {repeat}:
        raise ValueError(f"{name}: has a period for each device: leave out repeat")
    return None


def _check(
    table: AvailabilityTable,
    line: Numbers,
    own: Container[int],
) -> None:
    """Refuse stays that overlap, or that end after their period. ``line``: that of each stay."""
    device = table.device
    same_device = device[1:] == device[:-1]
    begins_early = table.begin[1:] < table.end[:-1]
    overlapping = same_device & begins_early
    if overlapping.any():
        first = np.flatnonzero(overlapping)[0]
        stay = int(first) + 1
        other = f"the stay of {table.names[device[stay]]} in line {line[stay - 1]}"
        raise ValueError(f"{table.name}:{line[stay]}: overlaps {other}")
    late = table.end > table.period[device]
    if late.any():
        stay = int(np.flatnonzero(late)[0])
        number = int(device[stay])
        setting = "period" if number in own else "repeat"
        limit = f"the {setting} of {table.period[number]:.15g} s"
        raise ValueError(f"{table.name}:{line[stay]}: ends at {table.end[stay]:.15g} s, after {limit}")


def _period(cell: str) -> float:
    try:
        period = float(cell)
    except ValueError:
        period = math.nan
    if not 0 < period < math.inf:
        raise ValueError(f"period: write seconds above 0, not {cell}")
    return period


def _stay(cells: list[str]) -> tuple[float, float]:
    try:
        begin = float(cells[1])
        end = float(cells[2])
    except ValueError:
        raise ValueError(EXAMPLE) from None
    if not (0 <= begin < end < math.inf):
        raise ValueError(f"a stay lasts from 0 or later until a later time, not from {begin:g} to {end:g}")
    if end >= SINCE_1970:
        raise ValueError(since_1970(end))
    return begin, end


def since_1970(seconds: float) -> str:
    """The message for a time that is no time of a training, with both readings."""
    if seconds < 1000 * SINCE_1970:
        unit = "seconds"
        moment = seconds
    else:
        unit = "milliseconds"
        moment = seconds / 1000
    years = f"{seconds / (365.25 * 86400):,.0f} years"
    try:
        date = f" ({datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (ValueError, OverflowError, OSError):
        date = ""
    return (
        f"{seconds:.15g} looks like {unit} since 1970{date}; write seconds from the start of the training. "
        f"If these are such seconds, they are {years}, more than a run may take"
    )
