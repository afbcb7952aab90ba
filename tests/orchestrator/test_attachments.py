from __future__ import annotations

from pathlib import Path

import pytest

from netem.profile import LinkProfile
from netem.schedule import Schedule
from netem.traces import Table, Trace
from orchestrator.attachments import find_file, keep_files
from orchestrator.errors import RunError
from orchestrator.planning.plan import LinkPlan

TRACE, TABLE = "1\n5\n9\n", "t_s,rate_mbit\n0,5\n2,1\n"


def link(schedule: Schedule | None) -> LinkPlan:
    return LinkPlan("a", "b", "device-edge", LinkProfile(), 1, schedule)


def test_files_lie_where_the_scenario_looks_for_them(tmp_path: Path) -> None:
    base, run = tmp_path / "scenarios", tmp_path / "runs" / "one"
    (base / "traces").mkdir(parents=True)
    (base / "traces" / "up.txt").write_text(TRACE)
    schedule = Trace.read(TRACE, "traces/up.txt")
    keep_files([link(None), link(schedule), link(schedule)], base, run)
    assert (run / "traces" / "up.txt").read_text() == TRACE
    assert find_file(run, "traces/up.txt", schedule.sha256) == TRACE
    assert [path.name for path in run.rglob("*") if path.is_file()] == ["up.txt"]


def test_files_from_elsewhere_are_kept_by_their_hash(tmp_path: Path) -> None:
    base, run = tmp_path / "scenarios", tmp_path / "runs" / "one"
    base.mkdir()
    run.mkdir(parents=True)
    (tmp_path / "drive.csv").write_text(TABLE)
    (base / "plan.json").write_text(TABLE)
    (run / "plan.json").write_text("the run's own")
    outside, same = Table.read(TABLE, "../drive.csv"), Table.read(TABLE, "plan.json")
    keep_files([link(outside), link(same)], base, run)
    assert (run / "plan.json").read_text() == "the run's own"
    for schedule in (outside, same):
        assert find_file(run, schedule.name, schedule.sha256) == TABLE
    assert find_file(run, "../drive.csv", Table.read(TABLE + "4,9\n", "drive.csv").sha256) is None


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"up\.txt cannot be kept in .*is it still there"):
        keep_files([link(Trace.read(TRACE, "up.txt"))], tmp_path, tmp_path / "run")
