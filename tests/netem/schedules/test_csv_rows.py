"""Rows of CSV files, as spreadsheets, loggers and editors write them."""

from __future__ import annotations

import pytest

from netem.errors import ScheduleError
from netem.schedules.csv_rows import read_rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\ufeffa, b\r\n1 ,2\r\n", [(1, ["a", "b"]), (2, ["1", "2"])]),
        ("# x\n\na,b\n,\n 1,\n  # y\n3,4\n", [(3, ["a", "b"]), (5, ["1", ""]), (7, ["3", "4"])]),
        ("a;b,c\n1,5;2,5\n", [(1, ["a", "b,c"]), (2, ["1.5", "2.5"])]),
        ("a\tb\n1,5\t-0,5 ms\n", [(1, ["a", "b"]), (2, ["1.5", "-0.5 ms"])]),
        ('a,b\n"1,5",\n"x\ny",2\n', [(1, ["a", "b"]), (2, ["1,5", ""]), (4, ["xy", "2"])]),
    ],
)
def test_rows_have_their_lines(text: str, rows: list[tuple[int, list[str]]]) -> None:
    assert list(read_rows(text, "t.csv", decimal_comma=True)) == rows


def test_a_comma_stays_unless_it_is_a_decimal_point() -> None:
    assert list(read_rows("a;b\n1,5;2\n", "t.csv")) == [(1, ["a", "b"]), (2, ["1,5", "2"])]


def test_a_quotation_mark_that_is_missing_is_an_error_with_its_line() -> None:
    text = "a,b\n" + '"1,2\n' + "3,4\n" * 50_000
    with pytest.raises(ScheduleError, match=r"^t\.csv:\d+: cannot be read"):
        list(read_rows(text, "t.csv"))
