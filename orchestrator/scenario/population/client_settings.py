"""Settings of single clients from a CSV file: a row for each node, a column for each key of its hardware or link.

    node,speed,memory,latency_ms,rate_up_mbit,rate_down_mbit,loss
    device-0,0.2,1gib,30,5,20,1%
    device-1,0.4,,15,,50,

A column has the name of a key, then ``_up`` or ``_down`` if it is for one direction of the link, then the unit of its
numbers, if cells have none. An empty cell sets nothing. Without the column ``node`` the rows are for the clients in
their order.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from netem.profile import KEYS
from netem.schedules.csv_rows import read_rows
from orchestrator.population.table import NAMES
from orchestrator.scenario.language.strict import nearest

HARDWARE_KEYS = ("class", "speed", "cores", "memory", "image", "accelerator")
LINK_KEYS = ("profile", *KEYS)
NUMBERS = ("speed", "cores")  # keys without a unit
_KNOWN = "|".join(LINK_KEYS)  # before any other word, because one of them has an underscore
_COLUMN = re.compile(rf"({_KNOWN}|[a-z]+?)(?:_(up|down))?(?:_([a-z%]+)|\s*[\[(]([a-z%]+)[\])])?", re.IGNORECASE)
_EMPTY = re.compile(r"\s*[;,\t][;,\s]*")  # a row of empty cells, which `read_rows` leaves out


class Column(NamedTuple):
    """A key, the direction ``up`` or ``down`` that it is for, or neither, and the unit of plain numbers."""

    key: str
    side: str
    unit: str


class ClientRow(NamedTuple):
    """The settings of a client, as YAML would have them. ``links`` by direction: ``""`` (both), ``up``, ``down``."""

    place: str
    node: str
    hardware: Mapping[str, Any]
    links: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ClientSettings:
    """The rows of a file. ``named``: it has a column for the names of nodes."""

    name: str
    sha256: str
    named: bool
    rows: tuple[ClientRow, ...] = field(repr=False)

    @classmethod
    def read(cls, text: str, name: str) -> ClientSettings:
        """Read a file's text. ValueError names the file, the line and the mistake."""
        lines = read_rows(text, name)
        line, header = next(lines)
        place = f"{name}:{line}"
        named = header[0].lower() in NAMES
        columns = _columns(header, place, named=named)
        rows: dict[str, ClientRow] = {}
        written = text.splitlines()
        before = line
        for line, row in lines:
            place = f"{name}:{line}"
            skipped = _first_empty(written, before + 1, line)
            if skipped is not None and not named:
                raise ValueError(
                    f"{name}:{skipped}: has no settings: if it is a client's row, write one, else remove it"
                )
            before = line
            node = row[0] if named else str(len(rows))
            if not node:
                raise ValueError(f"{place}: has no name of a node")
            if node in rows:
                raise ValueError(f"{place}: {node} has a row already: {rows[node].place}")
            rows[node] = _row(place, node, columns, row[named:])
        if not rows:
            raise ValueError(f"{name}: has no rows under its columns")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return cls(name, sha256, named, tuple(rows.values()))


def _columns(header: list[str], place: str, *, named: bool) -> list[Column]:
    """The columns after that of the names of nodes, if any. ValueError if one is unknown or repeated."""
    cells = header[named:]
    columns = [_column(cell, place) for cell in cells]
    times = Counter((column.key, column.side) for column in columns)
    twice = []
    for cell, column in zip(cells, columns, strict=True):
        if times[column.key, column.side] > 1:
            twice.append(cell)
    if twice:
        raise ValueError(f"{place}: {' and '.join(twice)} are one column twice")
    if not columns:
        raise ValueError(f"{place}: no column but {header[0]}: add one for a setting, like speed or rate_mbit")
    return columns


def _first_empty(written: list[str], start: int, end: int) -> int | None:
    """The number of the first row of empty cells between two lines."""
    for number in range(start, end):
        if _EMPTY.fullmatch(written[number - 1]):
            return number
    return None


def _column(cell: str, place: str) -> Column:
    match = _COLUMN.fullmatch(cell)
    if match is None:
        raise _unknown_column(cell, "", place)
    key = match[1].lower()
    side = (match[2] or "").lower()
    unit = match[3] or match[4] or ""
    of_link = key in LINK_KEYS
    of_hardware = key in HARDWARE_KEYS and not side
    if not of_link and not of_hardware:
        raise _unknown_column(cell, key, place)
    return Column(key, side, unit)


def _unknown_column(cell: str, key: str, place: str) -> ValueError:
    settings = (*HARDWARE_KEYS, *LINK_KEYS)
    known = ", ".join((NAMES[-1], *settings))
    return ValueError(
        f"{place}: '{cell}' is no column{nearest(key, settings)} (known: {known}; those of "
        "links also with _up or _down; with a unit, like rate_up_mbit)"
    )


def _row(
    place: str,
    node: str,
    columns: list[Column],
    cells: list[str],
) -> ClientRow:
    hardware: dict[str, Any] = {}
    links: dict[str, dict[str, Any]] = {}
    for column, cell in zip(columns, cells, strict=True):
        if not cell:
            continue
        if column.key in HARDWARE_KEYS:
            settings = hardware
        else:
            settings = links.setdefault(column.side, {})
        settings[column.key] = _value(column, cell)
    return ClientRow(place, node, hardware, links)


def _value(column: Column, cell: str) -> Any:
    """What YAML would have: text with its unit, or a number. Words in the place of a number are refused later."""
    if column.key in NUMBERS and not column.unit:
        try:
            return float(cell)
        except ValueError:
            return cell
    if re.fullmatch(r"[-+.0-9eE]+", cell):
        return cell + column.unit
    return cell
