"""Reader of CSV files: all values as texts, under the names of the header.

The values are separated by commas, semicolons, tabs or bars, by the one that the header has most of, or that Excel's
line `sep=;` names. Files are UTF-8, or UTF-16 with a byte order mark.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.learning.data.cells import PLAIN, has_no_name
from node.learning.data.files import read_regular
from node.learning.errors import DataError

DELIMITERS = ",;\t|"
DECLARED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)


@dataclass(frozen=True)
class CsvText:
    """The text of a CSV file from its header on. ``skipped``: the lines before the header."""

    file: Path
    text: str
    delimiter: str
    skipped: int = 0

    @property
    def rows(self) -> Iterator[list[str]]:
        """The header and the rows, without those that have no value, as spreadsheets append them."""
        for values in self._reader():
            if any(values):
                yield values

    def line(self, row: int) -> int:
        """The line on which row number ``row`` starts; rows count from 0 below the header, lines from 1."""
        reader = self._reader()
        start = 1
        place = -1
        for values in reader:
            has_value = any(values)
            if has_value and place == row:
                break
            if has_value:
                place += 1
            start = reader.line_num + 1
        return start + self.skipped

    def _reader(self) -> Any:
        lines = io.StringIO(self.text, newline="")
        return csv.reader(lines, delimiter=self.delimiter)


def opened(file: Path) -> CsvText:
    """The text of a file. DataError if it is in another encoding than UTF-8 or UTF-16."""
    text = _decoded(file, read_regular(file))
    declared = DECLARED.match(text)
    if declared:
        below = text[declared.end() :]
        return CsvText(file, below, delimiter=declared[1], skipped=1)
    first_line = re.split("[\r\n]", text, maxsplit=1)[0]
    unquoted = re.sub('"[^"]*"', "", first_line)
    delimiter = max(DELIMITERS, key=unquoted.count)
    return CsvText(file, text, delimiter)


def read_texts(content: CsvText) -> Any:
    """The table of a CSV file. All columns are texts. DataError if a row has more or fewer values than the header, or
    if two columns have one name."""
    from pyarrow import csv as pyarrow_csv
    from pyarrow import string

    names = _names(content)
    wrong: list[Any] = []

    def note(row: Any) -> str:
        wrong.append(row)
        return "error"

    parsing = pyarrow_csv.ParseOptions(
        delimiter=content.delimiter,
        newlines_in_values=True,
        invalid_row_handler=note,
    )
    reading = pyarrow_csv.ReadOptions(column_names=names, skip_rows_after_names=1)
    types = dict.fromkeys(names, string())
    converting = pyarrow_csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    stream = io.BytesIO(content.text.encode())
    try:
        table = pyarrow_csv.read_csv(
            stream,
            read_options=reading,
            parse_options=parsing,
            convert_options=converting,
        )
    except Exception:
        if not wrong:
            raise
        raise _uneven(content, len(names)) from None
    return _without_empty_rows(table)


def _without_empty_rows(table: Any) -> Any:
    """The rows with any value."""
    from pyarrow import compute

    with_value = None
    for column in table.columns:
        has_text = compute.not_equal(column, "")
        if with_value is None:
            with_value = has_text
        else:
            with_value = compute.or_(with_value, has_text)
    if with_value is None:
        return table
    return table.filter(with_value)


def _names(content: CsvText) -> list[str]:
    """The names of the columns. Columns without a name get different numbers of blanks: pyarrow needs different
    names."""
    header = next(content.rows, [])
    names = [name.strip() for name in header]
    for name in names:
        if PLAIN.fullmatch(name) and not name.isdigit():
            line = f"line {content.skipped + 1} has the number {name}"
            raise DataError(f"{content.file}: {line} where the names of the columns must be; write a header")
    for name, count in Counter(names).items():
        if count > 1 and not has_no_name(name):
            raise DataError(f"{content.file}: the header has the name {name!r} more than once; rename a column")
    different = []
    unnamed = 0
    for name in names:
        if name == "":
            different.append(" " * unnamed)
            unnamed += 1
        else:
            different.append(name)
    return different


def _uneven(content: CsvText, expected: int) -> DataError:
    """The error for the first row that has more or fewer values than the header."""
    for number, row in enumerate(content.rows, start=-1):
        count = len(row)
        if count == expected:
            continue
        if count == 1:
            values = "1 value"
        else:
            values = f"{count} values"
        separated = f"the header {expected}, separated by {_in_words(content.delimiter)}"
        remedy = _QUOTE
        if count == expected + 1 and _all_rows_have(count, content):
            remedy = _ROW_NAMES
        return DataError(f"{content.file}: line {content.line(number)} has {values}, and {separated}; {remedy}")
    return DataError(f"{content.file}: rows have different numbers of values")


_QUOTE = "quote a value that has the separator in it, and name each column in the header"
_ROW_NAMES = "name the first column in the header too; in R, write.csv does, or write.table with col.names=NA"


def _all_rows_have(count: int, content: CsvText) -> bool:
    below_header = itertools.islice(content.rows, 1, None)
    return all(len(row) == count for row in below_header)


_DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _in_words(delimiter: str) -> str:
    return _DELIMITER_NAMES.get(delimiter, repr(delimiter))


def _decoded(file: Path, content: bytes) -> str:
    """The text of UTF-8, with or without a mark, or of UTF-16 with one."""
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if utf_16:
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        remedy = "save it as UTF-8, in Excel as 'CSV UTF-8', or convert it: iconv -f WINDOWS-1252 -t UTF-8"
        raise DataError(f"{file}: is not UTF-8 text (byte {error.start}, line {line}); {remedy}") from None
    if "\0" in text:
        raise DataError(f"{file}: holds the character NUL; save it as UTF-8")
    return text
