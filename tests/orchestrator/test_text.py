from __future__ import annotations

import math

import pytest

from orchestrator import text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.00031, "0.31 ms"),
        (0.0552, "55.2 ms"),
        (12.34, "12.3 s"),
        (99.96, "1 min 40 s"),
        (252, "4 min 12 s"),
        (3780, "1 h 03 min"),
        (-4, "−4 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_duration(seconds: float | None, expected: str) -> None:
    assert text.duration(seconds) == expected


def test_sizes_and_rates_take_the_unit_that_keeps_three_digits() -> None:
    assert [text.size(n) for n in (0, 532, 12_400_000, 999_600)] == ["0 B", "532 B", "12.4 MB", "1 MB"]
    assert [text.rate(n) for n in (64_000, 48_710_000, 1e9)] == ["64 kbit", "48.7 mbit", "1 gbit"]
    assert [text.energy(n) for n in (None, 85.21, 12_400)] == ["–", "85.2 J", "12.4 kJ"]


def test_how_a_process_ended() -> None:
    assert [text.how_ended(code) for code in (0, 3, -9, -11)] == ["exit code 0", "exit code 3", "SIGKILL", "SIGSEGV"]
    assert text.how_ended(-40) == "signal 40"  # a real-time signal, without a name


def test_values_that_are_not_finite_are_shown_as_such() -> None:
    values = (None, math.nan, math.inf, -math.inf)
    assert [text.number(value) for value in values] == ["–", "NaN", "∞", "−∞"]
    assert [text.percent(value) for value in values] == ["–", "NaN", "∞", "−∞"]
    assert text.metric("loss", math.nan) == "NaN"


def test_fractions() -> None:
    assert text.percent(0.8421) == "84.2%"
    assert text.loss(0.00532) == "0.532%"
    assert (text.percent(None), text.loss(math.inf)) == ("–", "–")


def test_a_share_is_between_nothing_and_all() -> None:
    assert (text.share(1, 4), text.share(5, 4), text.share(-1, 4)) == (0.25, 1.0, 0.0)
    assert (text.share(0, 0), text.share(3, 0)) == (0.0, 1.0)


def test_counts_and_lists() -> None:
    assert (text.count(1, "round"), text.count(1200, "round")) == ("1 round", "1,200 rounds")
    assert text.some("abcd") == "a, b, c, d"
    assert text.some("abcdef") == "a, b, c and 3 more"
    assert (text.number(1234567), text.number(0.031416)) == ("1,234,567", "0.0314")
    assert text.number(-(10**400)).count(",") == 133  # beyond floats


def test_quantities_of_links() -> None:
    told = [text.quantity(*each) for each in (("rtt", 0.08), ("rate", 5e7), ("loss", 0.002), ("burst", 3.33))]
    assert told == ["80 ms", "50 mbit", "0.2%", "3.33"]
