from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.record.rows import Metric
from orchestrator.sweep.curves import MOST_POINTS, band, curve_of, read_curve
from tests.orchestrator.example_run import ROUND, Example


def test_the_curve_of_a_run(tmp_path: Path) -> None:
    found = read_curve(Example(rounds=3).build(tmp_path / "run"), "global")
    assert [x for x, _ in found.by_round] == [1, 2, 3]
    assert [x for x, _ in found.by_seconds] == pytest.approx([each * ROUND - 0.12 for each in (1, 2, 3)])
    assert [y for _, y in found.by_round] == [y for _, y in found.by_seconds]


def test_the_last_value_is_that_of_the_last_round() -> None:
    late = [Metric(t, "", round, "own", "accuracy", value) for round, t, value in ((1, 9.0, 0.4), (2, 7.0, 0.6))]
    assert curve_of(late, 0.0).last == 0.6
    assert curve_of([metric._replace(round=None) for metric in late], 0.0).last == 0.4


def test_a_run_without_reports(tmp_path: Path) -> None:
    found = read_curve(Example(rounds_made=0, ending="failed").build(tmp_path / "run"), "global")
    assert (found.by_round, found.by_seconds, found.last) == ([], [], None)
    assert band([found.by_round]) is None
    assert band([]) is None


def test_a_band_is_the_mean_and_the_range() -> None:
    found = band([[(1, 0.2), (2, 0.4)], [(1, 0.4), (2, 0.8)], []])
    assert found is not None
    assert found.x == [1, 2]
    assert found.mean == pytest.approx([0.3, 0.6])
    assert (found.low, found.high) == ([0.2, 0.4], [0.4, 0.8])


def test_a_curve_is_interpolated_and_ends_with_its_last_value() -> None:
    # 0.1 to 0.5 from 1 to 3 s, then 0.5; 0.2 at 1.5 s, where the second begins
    found = band([[(1.0, 0.1), (3.0, 0.5)], [(1.5, 0.2), (2.0, 0.4), (4.0, 0.8)]])
    assert found is not None
    assert found.x == [1.5, 2.0, 3.0, 4.0]
    assert found.low == pytest.approx([0.2, 0.3, 0.5, 0.5])
    assert found.high == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_a_long_band_is_thinned_and_keeps_its_ends() -> None:
    found = band([[(float(x), x / 5000) for x in range(5000)]])
    assert found is not None
    assert len(found.x) == MOST_POINTS
    assert (found.x[0], found.x[-1]) == (0, 4999)
