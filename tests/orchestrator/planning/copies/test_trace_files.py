from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule
from netem.schedules.traces import Trace, TraceTable
from orchestrator.errors import RunError
from orchestrator.planning.copies.trace_files import keep_files, kept_files
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan
from orchestrator.record.kept_files import FOLDER, find_file
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

TRACE, TABLE = "1\n5\n9\n", "t_s,rate_mbit\n0,5\n2,1\n"


def plan(*schedules: Schedule | None) -> dict[str, Any]:
    """What plan.json has of links with these schedules."""
    links = [LinkPlan("a", "b", "device-edge", LinkProfile(), 1, schedule) for schedule in schedules]
    return {"links": [link.to_json() for link in links]}


@pytest.mark.parametrize(
    "name", ["run.db", "plan.json", "scenario.yaml", "logs", "checkpoints/cloud/x", "n" * 250, "é" * 125]
)
def test_no_file_takes_the_place_of_something_of_the_runs_own(tmp_path: Path, name: str) -> None:
    base, run = tmp_path / "scenarios", tmp_path / "runs" / "one"
    (base / name).parent.mkdir(parents=True)
    (base / name).write_text(TRACE)
    run.mkdir(parents=True)
    schedule = Trace.read(TRACE, name)
    keep_files(plan(None, schedule, schedule), base, run)
    assert [path.name for path in run.iterdir()] == [FOLDER]
    assert find_file(run, name, schedule.sha256) == TRACE


def test_files_of_one_name_do_not_clash(tmp_path: Path) -> None:
    base, run = tmp_path / "scenarios", tmp_path / "runs" / "one"
    base.mkdir()
    (tmp_path / "drive.csv").write_text(TABLE)
    (base / "drive.csv").write_text(TABLE + "4,9\n")
    outside, inside = TraceTable.read(TABLE, "../drive.csv"), TraceTable.read(TABLE + "4,9\n", "drive.csv")
    keep_files(plan(outside, inside), base, run)
    assert find_file(run, "../drive.csv", outside.sha256) == TABLE
    assert find_file(run, "../drive.csv", inside.sha256) == TABLE + "4,9\n"  # by what it holds, not by where it was
    assert kept_files(plan(outside, inside, None), run) == {"../drive.csv": TABLE, "drive.csv": TABLE + "4,9\n"}


def test_the_file_of_a_partition_is_kept(tmp_path: Path) -> None:
    """`resume` and the hosts of a swarm plan from the copy."""
    (tmp_path / "clients.json").write_text(lists := "[[0, 1], [2]]")
    scenario = "algorithm: fedavg\ntopology: {devices: 2}\ndata: {partition: {file: clients.json}}\n"
    plan = make_plan(parse(scenario, str(tmp_path / "f.yaml")), prepared())
    keep_files(plan.recorded, tmp_path, tmp_path / "run")
    (tmp_path / "clients.json").unlink()
    files = kept_files(plan.recorded, tmp_path / "run")
    assert files == {"clients.json": lists}
    assert make_plan(parse(scenario, str(tmp_path / "f.yaml"), files=files), prepared()).recorded == plan.recorded


def test_what_was_kept_and_changed_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "up.txt").write_text(TRACE)
    schedule = Trace.read(TRACE, "up.txt")
    keep_files(plan(schedule), tmp_path, tmp_path / "run")
    (kept,) = (tmp_path / "run" / FOLDER).iterdir()
    kept.write_text("2\n")
    assert find_file(tmp_path / "run", "up.txt", schedule.sha256) is None


def test_a_file_that_changed_since_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "up.txt").write_text("2\n")
    with pytest.raises(RunError, match="was changed after"):
        keep_files(plan(Trace.read(TRACE, "up.txt")), tmp_path, tmp_path / "run")


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"up\.txt cannot be kept in .*is"):
        keep_files(plan(Trace.read(TRACE, "up.txt")), tmp_path, tmp_path / "run")
