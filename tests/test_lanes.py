"""The summary of lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lanes import Lane, read, table, working

JUNIT = """\
<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one" time="1.5"/>
<testcase classname="tests.test_a" name="test_one" time="0.5"/>
<testcase classname="tests.test_b" name="test_two" time="3.0"/>
</testsuite></testsuites>
"""


def test_a_lane_is_read(tmp_path: Path) -> None:
    times = tmp_path / "runs.times"
    times.write_text("70\n0m0.1s 0m0.2s\n1m2.5s 0m7.2s\n")
    (tmp_path / "runs.xml").write_text(JUNIT)
    lane = read(times)
    assert lane.processor == pytest.approx(0.1 + 0.2 + 62.5 + 7.2)
    assert (lane.name, lane.wall) == ("runs", 70)
    # A test that ran twice counts with both times.
    assert lane.tests == {"tests.test_a.test_one": 2.0, "tests.test_b.test_two": 3.0}


def test_a_lane_without_tests_has_times(tmp_path: Path) -> None:
    times = tmp_path / "lint.times"
    times.write_text("9\n0m0s 0m0s\n0m5s 0m1s\n")
    assert read(times) == Lane("lint", 9, 6, {})


def test_the_longest_lane_and_the_slowest_test_come_first() -> None:
    lines = table([Lane("short", 5, 4, {"quick": 1.0}), Lane("long", 80, 60, {"slow": 70.0, "other": 9.0})])
    assert [line.split()[0] for line in lines[1:3]] == ["long", "short"]
    assert [line.split()[-1] for line in lines[3:]] == ["slow", "other", "quick"]


def test_waiting_is_no_work() -> None:
    # user 100, nice 200, system 300, idle 400, iowait 500, irq 600, softirq 700 ticks
    assert working("cpu  100 200 300 400 500 600 700 0 0 0", ticks=100) == (100 + 200 + 300 + 600 + 700) / 100
