"""Rows of a CSV file as spreadsheets, loggers and editors write them."""

from __future__ import annotations

import csv
from collections.abc import Iterator

SEPARATORS = ",;\t"


def read_rows(text: str, name: str) -> tuple[int, list[str], Iterator[tuple[int, list[str]]]]:
    """The line and the cells of the first row, and an iterator over those of the others.

    The separator is the comma, semicolon or tab that the first row has. Blanks around cells are removed. A byte order
    mark, empty lines, rows of empty cells, and lines that begin with ``#`` are left out. ValueError if there is no row,
    or if a row does not have as many cells as the first.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    places = [number for number, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not places:
        raise ValueError(f"{name}: is empty")
    first = lines[places[0] - 1]
    separator = max(SEPARATORS, key=first.count)
    found = csv.reader((lines[number - 1] for number in places), delimiter=separator, skipinitialspace=True)
    header = [cell.strip() for cell in next(found)]

    def rows() -> Iterator[tuple[int, list[str]]]:
        for row in found:
            line = places[found.line_num - 1]
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise ValueError(f"{name}:{line}: has {len(cells)} cells for {len(header)} columns")
            yield line, cells

    return places[0], header, rows()
