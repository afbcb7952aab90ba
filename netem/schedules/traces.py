"""Schedules from files: packet-delivery traces of Mahimahi, and tables of link settings.

`Trace.read` and `Table.read` take a file's text, and its name for messages; they open no file. On malformed text they
raise a ScheduleError that starts with ``name:line:``.
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

    Each line of the file is a whole number of milliseconds from the start: one packet of 1500 bytes may cross at
    that time (an opportunity). The trace ends at its last line and then repeats. A line 0 therefore coincides with the
    end of the previous cycle and is counted there. Blank lines and lines that start with # are left out.

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
            whole = word.isascii() and word.isdecimal()
            if not whole or len(word) > 12:
                raise ScheduleError(f"{name}:{number}: {_quote(word)} is not a whole number of milliseconds")
            if opportunities and int(word) < opportunities[-1]:
                raise ScheduleError(f"{name}:{number}: {word} ms comes after {opportunities[-1]} ms; sort the lines")
            opportunities.append(int(word))
        if not opportunities or opportunities[-1] == 0:
            raise ScheduleError(f"{name}: lasts 0 ms: the last line, where it repeats, is not above 0")
        # A line 0 is counted at the end of the cycle.
        zeros = bisect_right(opportunities, 0)
        last = opportunities[-1]
        moved = opportunities[zeros:] + [last] * zeros
        sha256 = _sha256(text)
        return cls(name, tuple(moved), window, sha256)

    @property
    def duration(self) -> float:
        """Seconds after which the trace repeats."""
        return self.opportunities[-1] / 1000

    @property
    def mean_rate(self) -> float:
        """Mean of the whole trace in bits per second, with Ethernet headers like every rate."""
        frames = len(self.opportunities)
        return frames * FULL_FRAME * 8 / self.duration

    def crossed(self, seconds: float) -> int:
        """Number of opportunities up to and including this time."""
        milliseconds = round(1000 * seconds, 6)
        cycles, rest = divmod(milliseconds, self.opportunities[-1])
        in_whole_cycles = int(cycles) * len(self.opportunities)
        return in_whole_cycles + bisect_right(self.opportunities, rest)

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        profiles: dict[int, LinkProfile] = {}
        full = -1  # the next window that is not empty
        for number in count():
            if full < number:
                crossed = self.crossed(number * self.window)
                full = self._window_of(crossed)
                end = (full + 1) * self.window
                packets = self.crossed(end) - crossed
                if packets not in profiles:
                    rate = packets * FULL_FRAME * 8 / self.window
                    profiles[packets] = base.merged(rate=rate)
            profile = profiles[packets]
            until_full = round((full - number) * self.window, DIGITS)
            silence = min(until_full, LONGEST)
            if silence:
                profile = profile.merged(silence=silence)
            at = round(number * self.window, DIGITS)
            yield Change(at, profile)

    def _window_of(self, number: int) -> int:
        """The window of the opportunity with this number, counted from 0 over all cycles."""
        cycles, place = divmod(number, len(self.opportunities))
        cycle_start = cycles * self.opportunities[-1]  # ms
        milliseconds = cycle_start + self.opportunities[place]
        windows = milliseconds / (1000 * self.window)
        return math.ceil(round(windows, 6)) - 1

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        mean = base.merged(rate=self.mean_rate)
        return [base, mean]

    def to_mapping(self) -> dict[str, Any]:
        return {
            "trace": self.name,
            "window": units.format_duration(self.window),
            "opportunities": len(self.opportunities),
            "duration": units.format_duration(self.duration),
            "sha256": self.sha256,
        }

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
    half_rtt   the column with round-trip times; the latency is half of them
    start      "first-row": times count from the first row. "training": they count from the start of training, even if
               they look like the clock of a logger. Otherwise such times are refused
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    half_rtt: str | None = None
    start: str | None = None

    def columns_of(self, names: Sequence[str], where: str) -> list[_Column | None]:
        """The column of each cell, None for those that are left out."""
        named = dict(self.columns)
        if self.half_rtt is not None:
            named["half_rtt"] = self.half_rtt
        for key, name in named.items():
            if names.count(name) != 1:
                number = "no" if name not in names else "more than one"
                raise ScheduleError(f"{where}: there is {number} column {_quote(name)}, for {key}")
        keys = {name: key for key, name in named.items()}
        if len(keys) < len(named):
            raise ScheduleError(f"{where}: each of {', '.join(named)} needs a column of its own")
        columns = []
        kept = []
        for name in names:
            column = self._column(name, keys.get(name), where)
            columns.append(column)
            if column is not None:
                kept.append(column)
        self._check_columns(kept, where)
        return columns

    def _check_columns(self, columns: Sequence[_Column], where: str) -> None:
        """Raise ScheduleError if the table has no time or no setting, or one twice, or a unit without a column."""
        keys = [column.key for column in columns]
        if "t" not in keys or len(keys) < 2:
            raise ScheduleError(f"{where}: one column is t, the time, and at least one is a setting")
        for key in sorted(keys):
            if keys.count(key) > 1:
                raise ScheduleError(f"{where}: the column {key} is listed twice")
        with_column = {column.asked for column in columns}
        unused = sorted(self.units.keys() - with_column)
        if unused:
            raise ScheduleError(f"{where}: units: there is no column for {unused[0]}")

    def _column(self, name: str, requested: str | None, where: str) -> _Column | None:
        match = _COLUMN.fullmatch(name)
        key = ""
        unit = ""
        if match is not None:
            key = match[1].lower()
            unit = match[2] or match[3] or ""
        if requested:
            key = requested
        known = key in ("t", *_PARSERS, "half_rtt")
        unrequested = requested is None and key == "half_rtt"
        if not known or unrequested:
            if self.columns or self.half_rtt:
                return None
            raise ScheduleError(f"{where}: {_quote(name)} is no column; these are: t, {', '.join(_PARSERS)}")
        unit = self.units.get(key) or unit
        setting = "latency" if key == "half_rtt" else key
        return _Column(setting, unit, key)

    def started(self, rows: list[TraceRow], where: str) -> list[TraceRow]:
        """The rows with their times counted from the start. ``where``: the first row."""
        first = rows[0].at
        if self.start == "first-row":
            moved = []
            for row in rows:
                at = round(row.at - first, DIGITS)
                moved.append(replace(row, at=at))
            return moved
        duration = rows[-1].at - first
        later_than_long = first >= LATE_START and first > duration
        if self.start is None and later_than_long:
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
    setting; a rate of 0 cuts the link. Blank lines and lines that start with # are left out. Where no comma separates
    cells, a comma is a decimal point. The last row holds for ever, unless the table repeats after ``repeat`` seconds.
    """

    name: str
    rows: tuple[TraceRow, ...] = field(repr=False)
    repeat: float | None = None
    sha256: str = ""
    form: TableForm = TableForm()

    def __post_init__(self) -> None:
        check_repeat(self.repeat)
        end = self.rows[-1].at
        if self.repeat is not None and self.repeat <= end:
            last = units.format_duration(end)
            raise ScheduleError(f"repeat: {units.format_duration(self.repeat)} must be after the last row, at {last}")

    @classmethod
    def read(
        cls,
        text: str,
        name: str,
        repeat: float | None = None,
        form: TableForm = TableForm(),
    ) -> Self:
        lines = read_rows(text, name, example="t_s,latency_ms,rate_mbit", decimal_comma=True)
        number, header = next(lines)
        columns = form.columns_of(header, f"{name}:{number}")
        rows: list[TraceRow] = []
        places: list[str] = []
        for number, cells in lines:
            place = f"{name}:{number}"
            row = _row(cells, columns, place)
            not_later = bool(rows) and row.at <= rows[-1].at
            if not_later:
                raise ScheduleError(f"{place}: t: {row.at:g} s is not after the row before it")
            rows.append(row)
            places.append(place)
        if not rows:
            raise ScheduleError(f"{name}: has no rows under its columns")
        rows = form.started(rows, places[0])
        sha256 = _sha256(text)
        return cls(name, tuple(rows), repeat, sha256, form)

    def changes(self, base: LinkProfile) -> Iterator[Change]:
        period = self.repeat or 0.0
        starts_late = self.rows[0].at > 0
        for cycle in count():
            start = cycle * period
            if starts_late and self.repeat is not None:
                yield Change(round(start, DIGITS), base)
            for row in self.rows:
                at = round(start + row.at, DIGITS)
                profile = base.merged(**row.values)
                yield Change(at, profile, row.cut)
            if self.repeat is None:
                return

    def extremes(self, base: LinkProfile) -> list[LinkProfile]:
        """The base, the minimum of each column, and the maximum of each column with the mean rate."""
        least, most = self._bounds
        lowest = base.merged(**least)
        highest = base.merged(**most)
        return [base, lowest, highest]

    def to_mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {
            "csv": self.name,
            "rows": len(self.rows),
            "last": units.format_duration(self.rows[-1].at),
        }
        if self.repeat is not None:
            mapping["repeat"] = units.format_duration(self.repeat)
        for key, value in asdict(self.form).items():
            if value:
                mapping[key] = value
        mapping["sha256"] = self.sha256
        return mapping

    def describe(self) -> str:
        kinds = [name for name in _PARSERS if self._values(name)]
        changed = ", ".join(kinds) or "cuts"
        end = self.rows[-1].at
        last = units.format_duration(end)
        words = f"{changed} by {self.name}, {len(self.rows)} rows to {last}"
        if self.repeat is not None:
            words += f"; again every {units.format_duration(self.repeat)}"
        return words

    @cached_property
    def _bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        least = {}
        most = {}
        for name in _PARSERS:
            values = self._values(name)
            if values:
                least[name] = min(values)
                most[name] = max(values)
        if "rate" in most:
            most["rate"] = self._mean_rate()
        return least, most

    def _values(self, name: str) -> list[float]:
        """The values of a setting, without empty cells."""
        values = []
        for row in self.rows:
            if name in row.values:
                values.append(row.values[name])
        return values

    def _mean_rate(self) -> float:
        """Mean rate, weighted by each row's duration. A last row without an end has the duration of the row before."""
        times = [row.at for row in self.rows]
        tail = 1.0
        if len(times) > 1:
            tail = times[-1] - times[-2]
        end = times[-1] + tail
        if self.repeat is not None:
            end = self.repeat
        bits = []
        durations = []
        ends = [*times[1:], end]
        for row, until in zip(self.rows, ends, strict=True):
            if "rate" in row.values:
                seconds = until - row.at
                bits.append(seconds * row.values["rate"])
                durations.append(seconds)
        return sum(bits) / sum(durations)


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
        if column is None:
            continue
        if not text and column.key != "t":
            continue
        key, unit, requested = column
        try:
            if key == "t":
                at = units.parse_duration(text + unit)
                continue
            value = _PARSERS[key](text + unit)
            if requested == "half_rtt":
                value /= 2
            if key == "rate" and value == 0:
                cut = True
            else:
                LinkProfile(**{key: value})  # type: ignore[arg-type]  # each value is checked alone: the base is not known here
                values[key] = value
        except (UnitError, ProfileError) as error:
            hint = _unit_hint(text, requested, unit)
            raise ScheduleError(f"{where}: {requested}: {error}{hint}") from None
    return TraceRow(at, values, cut)


def _unit_hint(text: str, key: str, unit: str) -> str:
    has_time_unit = unit and not unit.lower().endswith("ps")
    plain_number = re.fullmatch(r"[0-9.]+", text)
    if has_time_unit or not plain_number:
        return ""
    examples = {"t": "s", "rate": "mbit", "loss": "%"}
    example = examples.get(key, "ms")
    named = ""
    if not unit and key != "half_rtt":
        named = f"name the column {key}_{example}, or "
    return f"; or {named}write units: {{{key}: {example}}}"


def _quote(text: str) -> str:
    if len(text) > 40:
        text = f"{text[:37]}..."
    return repr(text)


def _sha256(text: str) -> str:
    content = text.encode()
    return hashlib.sha256(content).hexdigest()
