"""Rows of a CSV file as spreadsheets, loggers and editors write them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from netem.errors import ScheduleError

_DECIMAL_COMMA = re.compile(r"^(\s*-?[0-9]+),([0-9]+)(?=[^,]*$)")


def read_rows(
    text: str,
    name: str,
    *,
    example: str = "",
    decimal_comma: bool = False,
) -> Iterator[tuple[int, list[str]]]:
    """The line and the cells of each row; the first row names the columns.

    The separator is the semicolon or the tab if the first row has one, or else the comma. Blanks around cells are
    removed. A byte order mark, rows of empty cells, and lines that start with ``#`` are left out. ``decimal_comma``:
    where no comma separates cells, the comma of a number is a decimal point. ScheduleError, which is a ValueError, if
    there is no row, or if a row does not have as many cells as the first. ``example``: a first row, for the message.
    """
    numbers, lines = _numbered_lines(text)
    if not lines:
        hint = f"; its first line names the columns, e.g. {example}" if example else ""
        raise ScheduleError(f"{name}: is empty{hint}")
    separator = _separator(lines[0])
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    columns = 0
    try:
        for row in rows:
            number = numbers[rows.line_num - 1]
            columns = columns or len(row)
            if len(row) != columns:
                raise ScheduleError(f"{name}:{number}: has {len(row)} cells for {columns} columns")
            cells = [cell.strip() for cell in row]
            if decimal_comma and separator != ",":
                cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
            yield number, cells
    except csv.Error as error:  # a cell of more than 131,072 characters
        number = numbers[rows.line_num - 1]
        raise ScheduleError(f"{name}:{number}: cannot be read: {error}; is a quotation mark missing?") from None


def _numbered_lines(text: str) -> tuple[list[int], list[str]]:
    """The lines with content, after their numbers in the file."""
    numbers = []
    lines = []
    content = text.removeprefix("\ufeff")
    for number, line in enumerate(content.splitlines(), start=1):
        empty = not line.strip().strip(" ;,\t")
        comment = line.lstrip().startswith("#")
        if not empty and not comment:
            numbers.append(number)
            lines.append(line)
    return numbers, lines


def _separator(header: str) -> str:
    for separator in ";\t":
        if separator in header:
            return separator
    return ","
