"""The table of the runs in a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orchestrator.errors import RecordError
from orchestrator.record.directory import RunDirectory
from orchestrator.results import listing
from orchestrator.results.history import History
from orchestrator.results.listing import Listing, Row, find, run_row
from orchestrator.results.summary import summary
from tests.orchestrator.example_run import Example

FIRST, SECOND = "dropout-20260504-093000-aaaa", "dropout-20260504-103000-bbbb"


def ended(path: Path, example: Example) -> Path:
    """A run with its summary, as `up` leaves it."""
    example.build(path)
    with History.open(path) as history:
        (path / "summary.json").write_text(json.dumps(summary(history)))
    return path


def test_a_row_is_the_same_from_the_summary_and_from_the_record(tmp_path: Path) -> None:
    path = ended(tmp_path / FIRST, Example(rounds=3, settings={"algorithm": {"name": "hierfavg"}, "seed": 7}))
    quick = run_row(FIRST, RunDirectory(path))
    (path / "summary.json").unlink()
    slow = run_row(FIRST, RunDirectory(path))
    same = (
        "name",
        "status",
        "verdict",
        "ended",
        "accuracy",
        "rounds",
        "seconds",
        "began",
        "algorithm",
        "seed",
        "driver",
    )
    assert {key: quick[key] for key in same} == {key: slow[key] for key in same}
    assert (quick["name"], quick["status"], quick["ended"], quick["rounds"]) == ("dropout", "finished", "rounds", 3)


def test_a_summary_that_is_older_than_the_record_is_not_believed(tmp_path: Path) -> None:
    path = ended(tmp_path / FIRST, Example(rounds=2))
    (path / "summary.json").write_text(json.dumps({"ended": "rounds", "rounds": 99}))
    assert run_row(FIRST, RunDirectory(path))["rounds"] == 99
    written = (path / "run.db").stat().st_mtime_ns
    os.utime(path / "summary.json", ns=(written - 1, written - 1))
    assert run_row(FIRST, RunDirectory(path))["rounds"] == 2


def test_running_runs_come_first_and_then_the_latest(tmp_path: Path) -> None:
    ended(tmp_path / SECOND, Example(rounds=1))
    Example(rounds=4, rounds_made=2, ending=None).build(tmp_path / FIRST)
    rows = Listing(tmp_path)
    assert [(row["run"], row["status"]) for row in rows.rows()] == [(SECOND, "finished"), (FIRST, "crashed")]
    with RunDirectory(tmp_path / FIRST).held():
        held = Listing(tmp_path)
        assert [(row["run"], row["status"]) for row in held.rows()] == [(FIRST, "running"), (SECOND, "finished")]
        assert held.rows()[0]["verdict"] is None
    assert [row["status"] for row in held.rows()] == ["finished", "crashed"]  # no file of the run has changed


def test_an_unchanged_run_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ended(tmp_path / FIRST, Example(rounds=1))
    rows = Listing(tmp_path)
    before = rows.rows()
    read: list[str] = []

    def run_row(name: str, directory: RunDirectory) -> Row:
        read.append(name)
        return before[0]

    monkeypatch.setattr(listing, "run_row", run_row)
    assert rows.rows() == before
    assert read == []
    (path / "summary.json").write_text("{}")
    rows.rows()
    assert read == [FIRST]


def test_runs_of_a_sweep_and_what_is_no_run(tmp_path: Path) -> None:
    ended(tmp_path / "my-sweep" / FIRST, Example(rounds=1))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (row,) = Listing(tmp_path).rows()
    assert (row["run"], row["sweep"]) == (f"my-sweep/{FIRST}", "my-sweep")
    assert find(tmp_path, row["run"]).path == tmp_path / "my-sweep" / FIRST
    assert Listing(tmp_path / "none").rows() == []


@pytest.mark.parametrize(
    "changed",
    [
        {"accuracy": [1]},
        {"accuracy": {"global": float("nan")}},
        {"seconds": float("inf")},
        {"rounds": {"a": 1}},
        {"name": "\ud800"},
    ],
    ids=["accuracy is a list", "NaN", "infinity", "mapping", "half a character"],
)
def test_a_damaged_summary_is_one_row_and_leaves_the_others(tmp_path: Path, changed: Row) -> None:
    ended(tmp_path / FIRST, Example(rounds=1))
    bad = ended(tmp_path / SECOND, Example(rounds=1)) / "summary.json"
    bad.write_text(json.dumps(json.loads(bad.read_text()) | changed))
    os.utime(bad, (2e9, 2e9))
    rows = {row["run"]: row for row in Listing(tmp_path).rows()}
    assert (rows[FIRST]["status"], rows[SECOND]["status"]) == ("finished", "unreadable")
    json.dumps(list(rows.values()), allow_nan=False, ensure_ascii=False).encode()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    run = ended(tmp_path / FIRST, Example(rounds=1))
    for name in ("summary.json", "plan.json"):
        (run / name).unlink()
        os.mkfifo(run / name)
    (row,) = Listing(tmp_path).rows()
    assert row["status"] == "unreadable"


def test_a_damaged_record_is_a_row_that_says_so(tmp_path: Path) -> None:
    (tmp_path / FIRST).mkdir()
    (tmp_path / FIRST / "run.db").write_text("garbage" * 100)
    (row,) = Listing(tmp_path).rows()
    assert row["status"] == "unreadable"
    assert "cannot be read" in row["error"]


@pytest.mark.parametrize(
    "name", ["x" * 5000, "..", "../other", "a/../../other", "/etc", "", ".", "a/b/c", "a\0b", "other/.."]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    Example(rounds=1).build(tmp_path / "other")
    (tmp_path / "runs").mkdir()
    with pytest.raises(RecordError, match="there is no run"):
        find(tmp_path / "runs", name)


@pytest.mark.parametrize("change", [{"verdict": 1}, {"verdict": "fine"}, {"rounds": "2"}, {"name": 5}, {"ended": [1]}])
def test_a_summary_with_values_of_other_types_is_one_unreadable_row(tmp_path: Path, change: dict[str, object]) -> None:
    path = ended(tmp_path / FIRST, Example(rounds=2))
    found = json.loads((path / "summary.json").read_text()) | change
    (path / "summary.json").write_text(json.dumps(found))
    row = run_row(FIRST, RunDirectory(path))
    assert (row["status"], row["verdict"]) == ("unreadable", None)
    assert "is damaged" in row["error"]
