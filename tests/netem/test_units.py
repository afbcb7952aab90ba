"""Quantities are read exactly, ambiguous ones are refused, and what is formatted reads back the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem import units
from netem.errors import UnitError

positive = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20ms", 0.02),
        ("1.5s", 1.5),
        ("40 ms", 0.04),
        ("250us", 0.00025),
        ("5ns", 5e-9),
        ("10min", 600.0),
        ("2h", 7200.0),
        ("1e3ms", 1.0),
        (".5s", 0.5),
        ("12.05ms", 0.01205),
        ("0", 0.0),
        (0, 0.0),
        ("0ms", 0.0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1mbit", 1e6), ("50Mbit", 50e6), ("5.47kbit", 5470.0), ("10gbit", 1e10), ("300bit", 300.0), (0, 0.0)],
)
def test_rates(text: object, rate: float) -> None:
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize(
    ("value", "fraction"),
    [("0.5%", 0.005), ("100%", 1.0), ("100.0 %", 1.0), ("0%", 0.0), (0, 0.0), ("0", 0.0), (0.0, 0.0), ("1e-5%", 1e-7)],
)
def test_fractions(value: object, fraction: float) -> None:
    assert units.parse_fraction(value) == fraction


@pytest.mark.parametrize(
    ("text", "size"),
    [("64kb", 64_000), ("64kib", 65_536), ("1.5kb", 1500), ("2MB", 2_000_000), ("4GiB", 2**32), ("7b", 7), (0, 0)],
)
def test_sizes(text: object, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("10Mbps", r"write 10mbit \(megabits per.*80mbit"),
        ("10mbps", r"write 10mbit \(megabits per.*80mbit"),
        ("10MBps", "or 80mbit if you meant megabytes"),
        ("10 MB/s", "write 10mbit .*or 80mbit"),
        ("2.5Gb/s", "write 2.5gbit .*or 20gbit"),
        ("100bps", r"write 100bit \(bits per.*800bit"),
        ("10Mb", "write 10mbit"),
        ("10mbit/s", r"write 10mbit \(megabits per second\)$"),
        ("10", "a rate like 10mbit"),
        (1e6, "no unit"),
        ("10ms", r"'ms' is no unit.*rate"),
        ("-1mbit", "cannot be negative"),
    ],
)
def test_rates_that_tools_read_differently_are_refused(text: object, remedy: str) -> None:
    with pytest.raises(UnitError, match=remedy):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (20, "20 has no unit"),
        ("20", "has no unit"),
        ("20m", r"ambiguous: write 20min for minutes.*20ms"),
        ("20 minutes", "units: ns us ms s min h"),
        ("-5ms", "cannot be negative"),
        (-1, "cannot be negative"),
        ("nan", "write a number and a unit"),
        ("inf", "write a number and a unit"),
        (math.nan, "write a number and a unit"),
        (math.inf, "write a number and a unit"),
        ("1e400s", "too large"),
        ("1e999999999s", "write a number and a unit"),
        ("", "write a number and a unit"),
        ("ms", "write a number and a unit"),
        ("٣ms", "write a number and a unit"),
        (True, "is not a duration"),
        (None, "is not a duration"),
        (["20ms"], "is not a duration"),
    ],
)
def test_bad_durations(value: object, remedy: str) -> None:
    with pytest.raises(UnitError, match=remedy):
        units.parse_duration(value)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (1, r"^1 has no unit"),
        (1.0, r"^1.0 has no unit"),
        (0.3, r"^0.3 has no unit"),
        ("0.25", r"^'0.25' has no unit"),
        (5, r"^5 has no unit"),
        (500, r"^500 has no unit"),
        ("101%", "more than 100%"),
        (-0.1, "cannot be negative"),
        (math.nan, "write a number"),
        ("5ms", "write a percentage"),
        (True, "is not a fraction"),
    ],
)
def test_bad_fractions(value: object, remedy: str) -> None:
    with pytest.raises(UnitError, match=remedy):
        units.parse_fraction(value)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (64, "has no unit"),
        ("64Kb", "may mean bits.*write 64kb"),
        ("64kbit", "units: b kb kib"),
        ("0.5b", "not a whole number of bytes"),
        ("-1kb", "cannot be negative"),
    ],
)
def test_bad_sizes(value: object, remedy: str) -> None:
    with pytest.raises(UnitError, match=remedy):
        units.parse_size(value)


@given(positive)
def test_durations_round_trip(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


@given(positive)
def test_rates_round_trip(rate: float) -> None:
    assert units.parse_rate(units.format_rate(rate)) == rate


@given(st.floats(min_value=0, max_value=1))
def test_fractions_round_trip(fraction: float) -> None:
    assert units.parse_fraction(units.format_fraction(fraction)) == fraction


@given(st.integers(min_value=0, max_value=2**60))
def test_sizes_round_trip(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.decimals(min_value=0, max_value=10**6, places=3), st.sampled_from(["us", "ms", "s", "min"]))
def test_what_people_write_survives(number: object, unit: str) -> None:
    seconds = units.parse_duration(f"{number}{unit}")
    assert units.parse_duration(units.format_duration(seconds)) == seconds


def test_formatted_quantities_are_the_usual_spelling() -> None:
    durations = ["0s", "20ms", "250us", "1.5s", "90s", "10min", "2h"]
    assert [units.format_duration(s) for s in (0, 0.02, 0.00025, 1.5, 90, 600, 7200)] == durations
    assert [units.format_rate(r) for r in (50e6, 1e9, 5470, 300)] == ["50mbit", "1gbit", "5.47kbit", "300bit"]
    assert [units.format_fraction(f) for f in (0.005, 1, 0)] == ["0.5%", "100%", "0%"]
    assert [units.format_size(s) for s in (0, 64_000, 65_536, 1514)] == ["0b", "64kb", "64kib", "1514b"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_only_finite_amounts_are_formatted(value: float) -> None:
    for formatter in (units.format_duration, units.format_rate, units.format_fraction):
        with pytest.raises(UnitError):
            formatter(value)
    with pytest.raises(UnitError):
        units.format_size(-1)
