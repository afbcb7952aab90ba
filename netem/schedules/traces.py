"""Schedules from files: packet-delivery traces of Mahimahi, and tables of link settings.

`Trace.read` and `Table.read` take a file's text, and its name for messages; they open no file. On malformed text they
raise a ScheduleError that begins with ``name:line:``.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple, Self

from netem import units
from netem.errors import ProfileError, ScheduleError, UnitError
from netem.profile import FULL_FRAME, LONGEST, LinkProfile
from netem.schedules.csv_rows import read_rows
from netem.schedules.schedule import DIGITS, Change, check_repeat

WINDOW = 0.1  # s, the default
SHORTEST_WINDOW = 0.01
LATE_START = 1000.0  # s; a table that starts later, and later than it is long, has the times of a logger
EPOCH = 1e8  # s; March 1973, in seconds since 1970


@dataclass(frozen=True)
class Trace:
    """The rate of a link from a packet-delivery trace of Mahimahi (mm-link(1); Netravali et al., "Mahimahi: accurate
    record-and-replay for HTTP", USENIX ATC 2015).

    Each line of the file is a whole number of milliseconds from the beginning: one packet of 1500 bytes may cross at
    that time (an opportunity). The trace ends at its last line and then repeats. A line 0 therefore coincides with the
    end of the previous cycle and is counted there. Blank lines and lines that begin with # are left out.

    The opportunities are counted in windows of ``window`` seconds, (0, w], (w, 2w] and so on. The rate in a window with
    n opportunities is that of n full frames: n * 1514 bytes * 8 / w bit/s, because rates count Ethernet headers. In a
    window without one the link is silent (`LinkProfile.silence`): packets wait, as in Mahimahi. Its profile has the
    rate of the next window that is not empty. So a backlog gets exactly the trace's number of frames, whatever the
    window is. All other settings are those of the base.
    """

    name: str
    opportunities: Sequence[int] = field(repr=False)  # ms, 1 to the duration, ascending
    window: float = WINDOW
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.window >= SHORTEST_WINDOW:
            raise ScheduleError(f"window: must be at least 10ms, not {units.format_duration(self.window)}")

    @classmethod
    def read(cls, text: str, name: str, window: float = WINDOW) -> Self:
        opportunities: list[int] = []
        for number, line in enumerate(text.splitlines(), start=1):
            word = line.strip().removeprefix("\ufeff")
            if not word or word.startswith("#"):
                continue
            if not (word.isascii() and word.isdecimal()) or len(word) > 12:
                raise ScheduleError(f"{name}:{number}: {_quote(word)} is not a whole number of milliseconds")
            if opportunities and int(word) < opportunities[-1]:
                raise ScheduleError(f"{name}:{number}: {word} ms comes after {opportunities[-1]} ms; sort the lines")
            opportunities.append(int(word))
        if not opportunities or opportunities[-1] == 0:
            raise ScheduleError(f"{name}: lasts 0 ms: the last line, where it repeats, is not above 0")
        zeros = bisect_right(opportunities, 0)
        moved = opportunities[zeros:] + [opportunities[-1]] * zeros
        return cls(name, tuple(moved), window, hashlib.sha256(text.encode()).hexdigest())

    @property
    def duration(self) -> float:
        """Seconds after which the trace repeats."""
        return self.opportunities[-1] / 1000

    @property
    def mean_rate(self) -> float:
        """Mean of the whole trace in bits per second, with Ethernet headers like every rate."""
        return len(self.opportunities) * FULL_FRAME * 8 / self.duration

    def crossed(self, seconds: float) -> int:
        """Number of opportunities up to and including this time."""
        cycles, rest = divmod(round(1000 * seconds, 6), self.opportunities[-1])
        return int(cycles) * len(self.opportunities) + bisect_right(self.opportunities, rest)

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        profiles: dict[int, LinkProfile] = {}
        full = -1  # the next window that is not empty
        for number in count():
            if full < number:
                crossed = self.crossed(number * self.window)
                cycles, place = divmod(crossed, len(self.opportunities))
                following = cycles * self.opportunities[-1] + self.opportunities[place]  # ms
                full = math.ceil(round(following / (1000 * self.window), 6)) - 1
                packets = self.crossed((full + 1) * self.window) - crossed
                if packets not in profiles:
                    profiles[packets] = base.merged(rate=packets * FULL_FRAME * 8 / self.window)
            profile = profiles[packets]
            silence = min(round((full - number) * self.window, DIGITS), LONGEST)
            if silence:
                profile = profile.merged(silence=silence)
            yield Change(round(number * self.window, DIGITS), profile)

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        return [base, base.merged(rate=self.mean_rate)]

    def to_mapping(self) -> dict[str, Any]:
        facts = {"opportunities": len(self.opportunities), "duration": units.format_duration(self.duration)}
        return {"trace": self.name, "window": units.format_duration(self.window), **facts, "sha256": self.sha256}

    def describe(self) -> str:
        mean = f"{self.mean_rate / 1e6:.3g}mbit on average"
        window = f"in windows of {units.format_duration(self.window)}"
        return f"rate by {self.name}, {mean}, {window}; again every {units.format_duration(self.duration)}"


@dataclass(frozen=True)
class TraceRow:
    """The settings from ``at`` seconds on, as typed attributes of a profile. If ``cut``, the link delivers nothing."""

    at: float
    values: dict[str, float]
    cut: bool = False


@dataclass(frozen=True)
class TableForm:
    """How to read a CSV file that was not made for this.

    columns    the names of its columns, by "t" or setting; with any, columns of unknown names are left out
    units      the units of plain numbers, by "t", setting or "half_rtt"
    half_rtt   the column with round-trip times, half of which is the latency
    start      "first-row": times count from the first row. "training": they count from the start of training, even if
               they look like the clock of a logger. Otherwise such times are refused
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    half_rtt: str | None = None
    start: str | None = None

    def columns_of(self, names: Sequence[str], where: str) -> list[_Column | None]:
        """The column of each cell, None for those that are left out."""
        named = dict(self.columns) | ({} if self.half_rtt is None else {"half_rtt": self.half_rtt})
        for key, name in named.items():
            if names.count(name) != 1:
                number = "no" if name not in names else "more than one"
                raise ScheduleError(f"{where}: there is {number} column {_quote(name)}, for {key}")
        keys = {name: key for key, name in named.items()}
        if len(keys) < len(named):
            raise ScheduleError(f"{where}: each of {', '.join(named)} needs a column of its own")
        columns = [self._column(name, keys.get(name), where) for name in names]
        found = [column.key for column in columns if column is not None]
        if "t" not in found or len(found) < 2:
            raise ScheduleError(f"{where}: one column is t, the time, and at least one is a setting")
        repeated = sorted({key for key in found if found.count(key) > 1})
        if repeated:
            raise ScheduleError(f"{where}: the column {repeated[0]} is listed twice")
        unused = sorted(self.units.keys() - {column.asked for column in columns if column is not None})
        if unused:
            raise ScheduleError(f"{where}: units: there is no column for {unused[0]}")
        return columns

    def _column(self, name: str, requested: str | None, where: str) -> _Column | None:
        match = _COLUMN.fullmatch(name)
        key = requested or (match[1].lower() if match else "")
        if key not in ("t", *_PARSERS, "half_rtt") or (requested is None and key == "half_rtt"):
            if self.columns or self.half_rtt:
                return None
            raise ScheduleError(f"{where}: {_quote(name)} is no column; these are: t, {', '.join(_PARSERS)}")
        unit = self.units.get(key) or (match[2] or match[3] or "" if match else "")
        return _Column("latency" if key == "half_rtt" else key, unit, key)

    def started(self, rows: list[TraceRow], where: str) -> list[TraceRow]:
        """The rows with their times counted from the start. ``where``: the first row."""
        first = rows[0].at
        if self.start == "first-row":
            return [replace(row, at=round(row.at - first, DIGITS)) for row in rows]
        if self.start is None and first >= LATE_START and first > rows[-1].at - first:
            looks = "seconds since 1970" if first >= EPOCH else "the clock of a logger"
            raise ScheduleError(
                f"{where}: t: the first row is at {first:.0f} s, which looks like {looks}; write start: first-row to "
                "count from this row, or start: training if the link is to change so long after the start of training"
            )
        return rows


class _Column(NamedTuple):
    key: str
    unit: str
    asked: str  # the key in the form: half_rtt for a latency of half of the cells


@dataclass(frozen=True)
class TraceTable:
    """Settings from the rows of a CSV file. Each row is merged into the base and holds until the next.

    The first line names the columns: ``t``, and any of latency, rate, loss and jitter; `TableForm` can name others.
    They are separated by commas, semicolons or tabs. A cell is a quantity with its unit (20ms, 5mbit, 1%), or a plain
    number if the column's name has the unit: ``latency_ms`` or ``latency [ms]``. An empty cell keeps the base's
    setting; a rate of 0 cuts the link. Blank lines and lines that begin with # are left out. Where no comma separates
    cells, a comma is a decimal point. The last row holds for ever, unless the table repeats after ``repeat`` seconds.
    """

    name: str
    rows: tuple[TraceRow, ...] = field(repr=False)
    repeat: float | None = None
    sha256: str = ""
    form: TableForm = TableForm()

    def __post_init__(self) -> None:
        check_repeat(self.repeat)
        if self.repeat is not None and self.repeat <= self.rows[-1].at:
            last = units.format_duration(self.rows[-1].at)
            raise ScheduleError(f"repeat: {units.format_duration(self.repeat)} must be after the last row, at {last}")

    @classmethod
    def read(cls, text: str, name: str, repeat: float | None = None, form: TableForm = TableForm()) -> Self:
        lines = read_rows(text, name, example="t_s,latency_ms,rate_mbit", decimal_comma=True)
        number, header = next(lines)
        columns = form.columns_of(header, f"{name}:{number}")
        rows: list[TraceRow] = []
        places: list[str] = []
        for number, cells in lines:
            places.append(f"{name}:{number}")
            row = _row(cells, columns, places[-1])
            if rows and row.at <= rows[-1].at:
                raise ScheduleError(f"{places[-1]}: t: {row.at:g} s is not after the row before it")
            rows.append(row)
        if not rows:
            raise ScheduleError(f"{name}: has no rows under its columns")
        rows = form.started(rows, places[0])
        return cls(name, tuple(rows), repeat, hashlib.sha256(text.encode()).hexdigest(), form)

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        for cycle in count():
            begin = cycle * (self.repeat or 0.0)
            if self.rows[0].at > 0 and self.repeat is not None:
                yield Change(round(begin, DIGITS), base)
            for row in self.rows:
                yield Change(round(begin + row.at, DIGITS), base.merged(**row.values), row.cut)
            if self.repeat is None:
                return

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        """The base, the minimum of each column, and the maximum of each column with the mean rate."""
        least, most = self._bounds
        return [base, base.merged(**least), base.merged(**most)]

    def to_mapping(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"rows": len(self.rows), "last": units.format_duration(self.rows[-1].at)}
        if self.repeat is not None:
            facts["repeat"] = units.format_duration(self.repeat)
        form = {key: value for key, value in asdict(self.form).items() if value}
        return {"csv": self.name, **facts, **form, "sha256": self.sha256}

    def describe(self) -> str:
        kinds = ", ".join(name for name in _PARSERS if any(name in row.values for row in self.rows))
        last = units.format_duration(self.rows[-1].at)
        then = "" if self.repeat is None else f"; again every {units.format_duration(self.repeat)}"
        return f"{kinds or 'cuts'} by {self.name}, {len(self.rows)} rows to {last}{then}"

    @cached_property
    def _bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        columns = {name: [row.values[name] for row in self.rows if name in row.values] for name in _PARSERS}
        least = {name: min(values) for name, values in columns.items() if values}
        most = {name: max(values) for name, values in columns.items() if values}
        return least, most | ({"rate": self._mean_rate()} if "rate" in most else {})

    def _mean_rate(self) -> float:
        """Mean rate, weighted by each row's duration. A last row without an end has the duration of the row before."""
        times = [row.at for row in self.rows]
        if len(times) > 1:
            tail = times[-1] - times[-2]
        else:
            tail = 1.0
        ends = [*times[1:], self.repeat if self.repeat is not None else times[-1] + tail]
        held = [
            (end - row.at, row.values["rate"]) for row, end in zip(self.rows, ends, strict=True) if "rate" in row.values
        ]
        return sum(seconds * rate for seconds, rate in held) / sum(seconds for seconds, _ in held)


_PARSERS: dict[str, Callable[[object], float]] = {
    "latency": units.parse_duration,
    "rate": units.parse_rate,
    "loss": units.parse_fraction,
    "jitter": units.parse_duration,
}
_COLUMN = re.compile(r"([a-z]+)(?:_([a-z%]+)|\s*[\[(]([a-z%]+)[\])])?", re.IGNORECASE)


def _row(cells: list[str], columns: list[_Column | None], where: str) -> TraceRow:
    at = 0.0
    values = {}
    cut = False
    for text, column in zip(cells, columns, strict=True):
        if column is None or (not text and column.key != "t"):
            continue
        key, unit, requested = column
        try:
            value = (units.parse_duration if key == "t" else _PARSERS[key])(text + unit)
            if requested == "half_rtt":
                value /= 2
            if key == "t":
                at = value
            elif key == "rate" and value == 0:
                cut = True
            else:
                LinkProfile(**{key: value})  # type: ignore[arg-type]  # each value is checked alone: the base is not known here
                values[key] = value
        except (UnitError, ProfileError) as error:
            raise ScheduleError(f"{where}: {requested}: {error}{_unit_hint(text, requested, unit)}") from None
    return TraceRow(at, values, cut)


def _unit_hint(text: str, key: str, unit: str) -> str:
    example = {"t": "s", "rate": "mbit", "loss": "%"}.get(key, "ms")
    if (unit and not unit.lower().endswith("ps")) or not re.fullmatch(r"[0-9.]+", text):
        return ""
    named = "" if unit or key == "half_rtt" else f"name the column {key}_{example}, or "
    return f"; or {named}write units: {{{key}: {example}}}"


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
