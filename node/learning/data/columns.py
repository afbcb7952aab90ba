"""The columns of a table: which are numbers, and which are no inputs, since they number or name the rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from node.arrays import Array
from node.learning.data import cells
from node.learning.data.cells import Problem

FEWEST_ROWS = 3  # of a table, from which on a column may be seen to number them
ENOUGH_ROWS = 10  # from which on numbers that do not count from 0 or 1 are seen to number the rows
Column = Any  # a pyarrow ChunkedArray


@dataclass(frozen=True)
class _Numbers:
    """A column of texts read as numbers, with a ``separator`` "." or "," if one of them has it. ``clear``: whether it
    is a decimal one, since other than three digits follow. ``mixed``: whether other numbers have none."""

    values: Column
    separator: str
    clear: bool
    mixed: bool


def typed(
    table: Any,
    *,
    decimal_commas: bool,
    as_they_are: Collection[str],
) -> tuple[Any, dict[str, Problem]]:
    """The table with its columns of texts as numbers or truth values where all texts are, and the problems of others,
    by name. Texts for a missing value are null. Columns ``as_they_are`` stay texts, but for missing values."""
    texts = {}
    for name in table.column_names:
        column = table.column(name)
        if _is_text(column):
            texts[name] = _trimmed(column)
    numbers: dict[str, _Numbers] = {}
    for name, column in texts.items():
        if name in as_they_are:
            continue
        read = _numbers(column, decimal_commas)
        if read is not None:
            numbers[name] = read
    problems: dict[str, Problem] = {}
    if decimal_commas:
        problems = _ambiguous(numbers, texts)
    table = _with_floats(table)
    for place, name in enumerate(table.column_names):
        if name not in texts:
            continue
        column = texts[name]
        if name in numbers and name not in problems:
            column = numbers[name].values
        elif name not in as_they_are and name not in problems:
            column, problem = _truths_or_problem(column, decimal_commas)
            if problem is not None:
                problems[name] = problem
        table = table.set_column(place, name, column)
    return table, problems


def _with_floats(table: Any) -> Any:
    """The table with floats for the decimal numbers of databases."""
    from pyarrow import float64, types

    for place, field in enumerate(table.schema):
        if types.is_decimal(field.type):
            floats = table.column(place).cast(float64())
            table = table.set_column(place, field.name, floats)
    return table


def _is_text(column: Column) -> bool:
    from pyarrow import types

    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    return bool(types.is_string_view(kind))


def _trimmed(column: Column) -> Column:
    """Texts without blanks around them, and null for those that stand for a missing value."""
    from pyarrow import compute, string

    texts = compute.utf8_trim_whitespace(column.cast(string()))
    return _without(texts, cells.MISSING)


def _without(texts: Column, missing: Sequence[str]) -> Column:
    """The texts, and null for these."""
    from pyarrow import array, compute, scalar, string

    is_missing = compute.is_in(texts, value_set=array(missing))
    null = scalar(None, string())
    return compute.if_else(is_missing, null, texts)


def _numbers(texts: Column, decimal_commas: bool) -> _Numbers | None:
    """The texts as whole numbers or as floats; None if one of them is no number."""
    from pyarrow import compute

    present = _without(texts, cells.MISSING_NUMBER)
    if present.null_count == len(present):
        return None
    numbers = _cast(present)
    separator = "."
    if numbers is None and decimal_commas and _all_match(present, cells.DECIMAL_COMMA):
        separator = ","
        with_points = compute.replace_substring(present, ",", ".")
        numbers = _cast(with_points)
    if numbers is None:
        return None
    has_separator = compute.match_substring(present, separator)
    separated = compute.filter(present, has_separator).to_pylist()
    mixed = len(separated) + present.null_count < len(present)
    clear = not cells.may_be_thousands(separated)
    if not separated:
        separator = ""
    return _Numbers(numbers, separator, clear, mixed)


def _cast(texts: Column) -> Column | None:
    from pyarrow import ArrowInvalid, float64, int64

    for kind in (int64(), float64()):
        try:
            return texts.cast(kind)
        except ArrowInvalid:
            continue
    return None


def _all_match(texts: Column, pattern: re.Pattern[str]) -> bool:
    from pyarrow import compute

    matches = compute.match_substring_regex(texts, f"^(?:{pattern.pattern})$")
    return bool(compute.all(matches).as_py())


def _ambiguous(
    numbers: dict[str, _Numbers],
    texts: dict[str, Column],
) -> dict[str, Problem]:
    """The columns with points or commas that may be decimal ones: those with the other separator than a column where it
    clearly is, and those with whole numbers next to groups of three digits."""
    clear = set[str]()
    for column in numbers.values():
        if column.separator and column.clear:
            clear.add(column.separator)
    problems = {}
    for name, column in numbers.items():
        separator = column.separator
        if separator == "." and "," in clear:
            what = cells.POINT
            remedy = cells.ONE_WAY
        elif separator == "," and clear == {"."}:
            what = cells.COMMA
            remedy = cells.ONE_WAY
        elif separator and column.mixed and separator not in clear:
            what = cells.EITHER
            remedy = cells.WITH_COMMAS
        else:
            continue
        odd = _first_with(texts[name], separator)
        problems[name] = Problem(odd, what, remedy)
    return problems


def _first_with(texts: Column, separator: str) -> str:
    from pyarrow import compute

    with_separator = compute.filter(texts, compute.match_substring(texts, separator))
    first: str = with_separator[0].as_py()
    return first


def _truths_or_problem(texts: Column, decimal_commas: bool) -> tuple[Column, Problem | None]:
    """A column of texts that are not all numbers, as truth values if they are that, and its problem, if it has one."""
    from pyarrow import bool_, compute

    counts = {}
    for entry in compute.value_counts(texts.drop_null()):
        text = entry["values"].as_py()
        counts[text] = entry["counts"].as_py()
    if not counts:
        return texts, None
    spellings = {text.lower() for text in counts}
    if spellings <= {"true", "false"}:
        truths = compute.utf8_lower(texts).cast(bool_())
        return truths, None
    return texts, cells.problem(counts, decimal_commas=decimal_commas)


def numbers_rows(values: Array, starts: Sequence[int]) -> bool:
    """Whether values (N,) count the rows in order, up or down, over all files or in each file again from 0 or 1.
    ``starts``: the rows with which files start."""
    if len(values) < FEWEST_ROWS or values.dtype.kind not in "iuf":
        return False
    steps = np.diff(values.astype(np.float64))
    if len(values) >= ENOUGH_ROWS:
        rises_by_one = np.all(steps == 1)
        by_one = rises_by_one or np.all(steps == -1)
        if by_one:
            first = values[0]
            return bool(first == np.floor(first))
    if values[0] not in (0, 1):
        return False
    over_all = np.arange(len(values)) + values[0]
    if np.array_equal(values, over_all):
        return True
    files = np.split(over_all, starts[1:])
    counted = [np.arange(len(rows)) for rows in files]
    of_file = np.concatenate(counted)
    return bool(np.array_equal(values, of_file + values[0]))


def not_an_input(
    name: str,
    column: Column,
    values: Callable[[], Array],
    starts: Sequence[int],
) -> str | None:
    """Why a column without lists is left out unless it is named: it has no name or no values, or numbers or names the
    rows. None if it may be an input. ``values``: returns those of a column without missing ones."""
    if cells.has_no_name(name):
        return "it has no name, as a column of row numbers"
    if column.null_count == len(column):
        return "it has no values"
    if column.null_count:
        return None
    present = values()
    if present.ndim > 1 or present.dtype.kind not in "iufOUM":
        return None
    if numbers_rows(present, starts):
        return "it numbers the rows"
    if len(present) < FEWEST_ROWS:
        return None
    if isinstance(present[0], bytes | dict | list):
        return None
    different = set(present.tolist())
    if len(different) < len(present):
        return None
    if isinstance(present[0], str):
        return "its texts are all different, as names of rows"
    if present.dtype.kind in "iu" and cells.is_identifier(name):
        return "its numbers are all different, as identifiers"
    return None
