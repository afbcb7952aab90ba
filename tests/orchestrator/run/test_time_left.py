from __future__ import annotations

import pytest

from orchestrator.run.time_left import TimeLeft


def test_the_coming_rounds_last_as_long_as_those_that_are_over() -> None:
    """Rounds 1 and 2 take 4 s each, from 1 s on: when round 3 of 5 begins at 9 s, 12 s are left."""
    left = TimeLeft(5, None)
    assert left.at(0.0, 0) is None
    assert left.at(1.0, 1) is None
    assert left.at(4.0, 1) is None
    assert left.at(5.0, 2) == pytest.approx(16)
    assert left.at(9.0, 3) == pytest.approx(12)
    assert left.at(11.0, 3) == pytest.approx(10)
    assert left.at(40.0, 3) == 0  # a round that takes very long


def test_a_limit_of_the_duration_may_come_first() -> None:
    left = TimeLeft(5, 10.0)
    assert left.at(0.0, 0) == 10
    assert left.at(1.0, 1) == 9
    assert left.at(5.0, 2) == 5  # 16 s by rounds
    assert TimeLeft(None, None).at(5.0, 2) is None


def test_a_run_that_goes_on_counts_from_the_round_it_goes_on_with() -> None:
    left = TimeLeft(10, None)
    assert left.at(100.0, 7) is None
    assert left.at(103.0, 8) == pytest.approx(9)
