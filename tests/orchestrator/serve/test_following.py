"""The reader that all watchers of a run share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.host.directory import RunDirectory
from orchestrator.results.checks import Check
from orchestrator.results.story import Cursor
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
    assert reader.update(Cursor()) is None
    read_all(reader)
    assert not reader.read()
    assert reader.pause == SELDOM
    update = reader.update(Cursor())
    assert update is not None
    cursor, said = update
    assert said["present"]["checks"] == []
    reader.check()
    assert reader.read()
    assert not reader.read()
    again = reader.update(cursor)
    assert again is not None
    assert not any(again[1]["added"].values())
    assert again[1]["present"]["checks"][0]["verdict"] == "pass"


def test_checks_so_far_while_the_run_goes_on_and_all_when_it_is_over(tmp_path: Path) -> None:
    directory, clock = RunDirectory(Example(rounds_made=2, ending=None).build(tmp_path / "run")), Clock()
    reader = Reader(directory, clock)

    def shown() -> list[str]:
        update = reader.update(Cursor())
        assert update is not None
        return [check["name"] for check in update[1]["present"]["checks"]]

    with directory.held():
        read_all(reader)
        assert reader.pause == EVERY
        assert "faults took effect" in shown()
        assert "finished" not in shown()
        reader.check()
        read_all(reader)
        assert "finished" not in shown()
    assert reader.read()  # the orchestrator is gone, which no file tells
    assert reader.pause == SELDOM
    reader.check()
    read_all(reader)
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
        update = reader.update(Cursor())
        assert update is not None
        checks: list[Check] = update[1]["present"]["checks"]
        return checks

    assert shown() == ([] if damaged else told)
    reader.check()
    assert shown() == (made if damaged else told)


def test_a_record_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_text("garbage" * 100)
    reader = Reader(RunDirectory(tmp_path))
    assert reader.read()
    reader.check()
    update = reader.update(Cursor(1, 2, 3, 4))
    assert update is not None
    cursor, said = update
    assert cursor == Cursor(1, 2, 3, 4)
    assert "cannot be read" in said["error"]
    assert reader.pause == SELDOM
