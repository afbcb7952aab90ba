"""Rows of a CSV file as spreadsheets, loggers and editors write them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from netem.errors import ScheduleError

_DECIMAL_COMMA = re.compile(r"^(\s*-?[0-9]+),([0-9]+)(?=[^,]*$)")


def read_rows(
    text: str, name: str, *, example: str = "", decimal_comma: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The line and the cells of each row; the first row names the columns.

    The separator is the semicolon or the tab if the first row has one, or else the comma. Blanks around cells are
    removed. A byte order mark, rows of empty cells, and lines that begin with ``#`` are left out. ``decimal_comma``:
    where no comma separates cells, the comma of a number is a decimal point. ScheduleError, which is a ValueError, if
    there is no row, or if a row does not have as many cells as the first. ``example``: a first row, for the message.
    """
    lines = [
        (number, line)
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1)
        if line.strip().strip(" ;,\t") and not line.lstrip().startswith("#")
    ]
    if not lines:
        hint = f"; its first line names the columns, e.g. {example}" if example else ""
        raise ScheduleError(f"{name}: is empty{hint}")
    separator = next((each for each in ";\t" if each in lines[0][1]), ",")
    rows = csv.reader((line for _, line in lines), delimiter=separator, skipinitialspace=True)
    columns = 0
    try:
        for row in rows:
            number = lines[rows.line_num - 1][0]
            columns = columns or len(row)
            if len(row) != columns:
                raise ScheduleError(f"{name}:{number}: has {len(row)} cells for {columns} columns")
            cells = [cell.strip() for cell in row]
            if decimal_comma and separator != ",":
                cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
            yield number, cells
    except csv.Error as error:  # a cell of more than 131,072 characters
        number = lines[rows.line_num - 1][0]
        raise ScheduleError(f"{name}:{number}: cannot be read: {error}; is a quotation mark missing?") from None
