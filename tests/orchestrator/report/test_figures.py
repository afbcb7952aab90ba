from __future__ import annotations

import math

from orchestrator.report.figures import thinned


def test_a_short_curve_is_drawn_whole() -> None:
    assert list(thinned([3.0, 1.0, 2.0], 3)) == [0, 1, 2]


def test_of_a_long_curve_the_extremes_of_each_piece_are_drawn() -> None:
    """Two pieces of four values: the lowest and the highest of each, in the order of the curve."""
    values = [1.0, 5.0, 0.0, 2.0, 9.0, 3.0, 4.0, 8.0]
    assert list(thinned(values, 4)) == [1, 2, 4, 5]


def test_a_flat_piece_is_one_point() -> None:
    assert list(thinned([1.0] * 8, 4)) == [0, 4]


def test_values_that_are_not_numbers_hide_no_extremes() -> None:
    values = [math.nan, 2.0, 1.0, math.nan, *[math.nan] * 4]
    assert list(thinned(values, 4)) == [1, 2, 4]


def test_a_million_values_become_few() -> None:
    values = [math.sin(number / 1000) for number in range(1_000_000)]
    kept = thinned(values, 20_000)
    assert len(kept) <= 20_000
    assert max(values[place] for place in kept) == max(values)
