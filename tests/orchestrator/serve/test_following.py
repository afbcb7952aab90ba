"""The reader that all watchers of a run share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.results.checks.registry import Check
from orchestrator.serve import following
from orchestrator.serve.following import EVERY, SELDOM, Reader
from tests.orchestrator.example_run import Example


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def read_all(reader: Reader) -> None:
    while reader.read():
        pass


def test_nothing_is_read_where_nothing_is_new(tmp_path: Path) -> None:
    directory = RunDirectory(Example(rounds=2).build(tmp_path / "run"))
    reader = Reader(directory)
    assert reader.update(0) is None
    read_all(reader)
    assert not reader.read()
    assert reader.pause == SELDOM
    update = reader.update(0)
    assert update is not None
    cursor, said = update
    again = reader.update(cursor)
    assert again is not None
    assert again[1]["parts"] == {}
    later = reader.update(cursor + 1000)  # a number of another server
    assert later is not None
    assert set(said["parts"]) == set(later[1]["parts"]) >= {"accuracy-time", "bytes", "faults"}
    assert said["present"]["checks"][0]["verdict"] == "pass"


def test_checks_so_far_while_the_run_continues_and_all_when_it_is_over(tmp_path: Path) -> None:
    directory, clock = RunDirectory(Example(rounds_made=2, ending=None).build(tmp_path / "run")), Clock()
    reader = Reader(directory, clock)

    def shown() -> list[str]:
        update = reader.update(0)
        assert update is not None
        return [check["name"] for check in update[1]["present"]["checks"]]

    with directory.held():
        read_all(reader)
        clock.now += 2.0
        read_all(reader)
        assert reader.pause == EVERY
        assert "faults took effect" in shown()
        assert "finished" not in shown()
    assert reader.read()  # the orchestrator is gone, which no file tells
    assert reader.pause == SELDOM
    assert "finished" in shown()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_that_was_judged_is_not_judged_again(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Example(rounds=2).build(tmp_path / "run")
    told: list[Check] = [{"name": "finished", "verdict": "pass", "detail": "told by the summary"}]
    made: list[Check] = [{"name": "finished", "verdict": "pass", "detail": "made anew"}]
    monkeypatch.setattr(following, "checks", lambda history: made)
    (path / "summary.json").write_text(json.dumps({"ended": "rounds", "checks": ["odd"] if damaged else told}))
    reader = Reader(RunDirectory(path))

    def shown() -> list[Check]:
        read_all(reader)
        update = reader.update(0)
        assert update is not None
        checks: list[Check] = update[1]["present"]["checks"]
        return checks

    assert shown() == (made if damaged else told)


def test_a_record_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_text("garbage" * 100)
    reader = Reader(RunDirectory(tmp_path))
    assert reader.read()
    update = reader.update(1234)
    assert update is not None
    cursor, said = update
    assert cursor == 1234
    assert "cannot be read" in said["error"]
    assert reader.pause == SELDOM


def test_figures_are_sent_once_a_second_and_only_those_that_changed(tmp_path: Path) -> None:
    path, clock = Example(rounds_made=3, ending=None, with_faults=False).build(tmp_path / "run"), Clock()
    directory, record = RunDirectory(path), Record.resume(path, 0.0, "killed", 0)
    reader = Reader(directory, clock)

    def new(since: int) -> tuple[int, set[str]]:
        reader.read()
        update = reader.update(since)
        assert update is not None
        return update[0], set(update[1]["parts"])

    with directory.held():
        while reader.story is None or reader.story.behind:
            reader.read()
        clock.now += 100
        version, _ = new(0)
        record.metric(19.0, "cloud", 4, "global", "accuracy", 0.8)
        record.flush()
        assert new(version) == (version, set())  # too soon
        clock.now += 100
        version, parts = new(version)
        assert parts == {"accuracy-time", "accuracy-rounds", "coordinators"}  # its lines go on to the present
    record.close()


def test_a_lock_that_is_damaged_is_reported(tmp_path: Path) -> None:
    directory = RunDirectory(Example(rounds_made=2, ending=None).build(tmp_path / "run"))
    reader = Reader(directory)
    with directory.held():
        read_all(reader)
        directory.lock.write_text("no number\n")
        assert reader.read()
        assert "lock is damaged: end the process" in reader.update(0)[1]["error"]  # type: ignore[index]
