"""The tables of a run as files, one folder for each run and one file for each table: CSV, and Parquet by pyarrow."""

from __future__ import annotations

import csv
import json
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, cast

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError, remove
from orchestrator.exports.destinations import imported
from orchestrator.results.history import History
from orchestrator.results.tables import TABLES, Table

PLAIN: dict[type | None, str] = {
    float: "float64",
    int: "int64",
    str: "string",
    bool: "bool",
}
"""The types of columns in Parquet, by the type of a row's field. Other fields are JSON text."""

Row = Sequence[Any]
WriteTable = Callable[[Path, Table, Sequence[Row]], None]


class FileStore:
    """A folder with one folder for each run."""

    def __init__(self, folder: Path, suffix: str, write_table: WriteTable) -> None:
        self._folder = folder
        self._suffix = suffix
        self._write_table = write_table

    def find(self, history: History) -> str | None:
        place = self._folder / history.run
        if any(place.glob(f"*.{self._suffix}")):
            return str(place)
        return None

    def write(self, history: History) -> str:
        """Write a file for each table, or none at all. PlaceError if there is no room."""
        existing = self.find(history)
        if existing is not None:
            raise AlreadyThereError(history.run, existing)
        place = self._folder / history.run
        try:
            place.mkdir(parents=True, exist_ok=True)  # another format may be in it
            for name, table in TABLES.items():
                kinds = [*columns(table.row).values()]
                rows = [_cells(row, kinds) for row in table.read(history)]
                self._write_table(place / f"{name}.{self._suffix}", table, rows)
        except BaseException as error:
            remove(place, f"*.{self._suffix}")
            if isinstance(error, OSError):
                raise PlaceError(
                    f"{place} cannot be written ({error.strerror or error}): free space, or choose another folder"
                ) from None
            raise
        return str(place)


def _cells(
    row: Row,
    kinds: Sequence[type | None],
) -> list[Any]:
    """The values of a row; those of columns without a plain type are JSON text."""
    cells = []
    for kind, value in zip(kinds, row, strict=True):
        if kind is None:
            value = json.dumps(value)
        cells.append(value)
    return cells


def csv_store(place: str) -> FileStore:
    """Files for every program: UTF-8, a line of headings, an empty field for no value."""
    return FileStore(Path(place), "csv", _write_csv)


def parquet_store(place: str) -> FileStore:
    """Files with typed columns. RunError if pyarrow is not installed."""
    arrow = imported("pyarrow", "parquet")
    parquet = imported("pyarrow.parquet", "parquet")

    def write(
        path: Path,
        table: Table,
        rows: Sequence[Row],
    ) -> None:
        kinds = columns(table.row)
        types = []
        for name, kind in kinds.items():
            alias = PLAIN.get(kind, "string")
            types.append((name, arrow.type_for_alias(alias)))
        named_rows = []
        for row in rows:
            named_rows.append(dict(zip(kinds, row, strict=True)))
        schema = arrow.schema(types)
        arrow_table = arrow.Table.from_pylist(named_rows, schema=schema)
        parquet.write_table(arrow_table, path)

    return FileStore(Path(place), "parquet", write)


def columns(row: type[NamedTuple]) -> dict[str, type | None]:
    """The columns of a table: float, int, str or bool; None for a field that is written as JSON text."""
    hints = typing.get_type_hints(row)
    return {name: _kind(hint) for name, hint in hints.items()}


def _kind(hint: Any) -> type | None:
    if isinstance(hint, UnionType):
        members = typing.get_args(hint)
        (hint,) = (member for member in members if member is not type(None))
    if hint in PLAIN:
        return cast(type, hint)
    return None


def _write_csv(
    path: Path,
    table: Table,
    rows: Sequence[Row],
) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns(table.row))
        for row in rows:
            cells = []
            for value in row:
                is_nan = value != value
                cells.append("NaN" if is_nan else value)
            writer.writerow(cells)
