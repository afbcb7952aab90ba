from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from node.runtime.checkpoint import checkpoint_path, packed, write
from orchestrator.errors import RunError
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.results.traffic.volumes import bytes_by_device
from orchestrator.run.launch import resume
from orchestrator.run.resume import Past, past_of
from tests.orchestrator.example_run import Example


def ended(tmp_path: Path, ending: str | None) -> RunDirectory:
    """A run that ended so after six of its ten rounds."""
    return RunDirectory(Example(rounds_made=6, ending=ending).build(tmp_path / "run"))


def keep(directory: RunDirectory, round: int, node: str = "cloud") -> None:
    path = checkpoint_path(directory.checkpoints_of(node), node)
    write(path, packed(node, round, {"w": np.zeros(2, dtype=np.float32)}, {}))


@pytest.mark.parametrize(("ending", "how"), [("interrupted", "interrupted"), ("failed", "failed"), (None, "killed")])
def test_where_a_run_stood(tmp_path: Path, ending: str | None, how: str) -> None:
    directory = ended(tmp_path, ending)
    keep(directory, 5)
    past = past_of(directory)
    with History.open(directory.path) as history:
        assert history.training_began is not None
        assert (past.seconds, past.training) == (history.seconds, history.seconds - history.training_began)
        assert list(past.faults) == history.faults()
    assert past.round in (6, 7)  # the seventh may have begun
    assert (past.kept, past.ended) == ((5,), how)
    assert "continued after round 5" in past.notes()[0]
    with History.open(directory.path) as history:
        used = bytes_by_device(history).values()
    assert past.device_bytes == sum(each["sent"] + each["received"] for each in used) > 0


def test_training_may_start_with_the_run(tmp_path: Path) -> None:
    """As it does in a simulation, where nothing takes time before it."""
    directory = ended(tmp_path, "interrupted")
    keep(directory, 5)
    with closing(sqlite3.connect(directory.path / "run.db")) as database, database:
        database.execute("UPDATE event SET t = 0.0 WHERE name = 'training'")
    past = past_of(directory)
    assert past.training == past.seconds > 0


def test_a_run_that_starts_has_nothing_to_say() -> None:
    assert Past().notes() == []
    assert Past().left == Past().joined == set()


def test_a_complete_run_is_not_continued(tmp_path: Path) -> None:
    directory = ended(tmp_path, "rounds")
    keep(directory, 6)
    with pytest.raises(RunError, match="is complete"):
        past_of(directory)


def test_nor_is_one_that_runs(tmp_path: Path) -> None:
    directory = ended(tmp_path, None)
    keep(directory, 6)
    with directory.held(), pytest.raises(RunError, match="still running"):
        resume(directory, lambda _: pytest.fail("nothing of it is begun"))


def test_nor_is_that_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ended(tmp_path, "interrupted")
    keep(directory, 6)
    monkeypatch.setattr(RunDirectory, "is_ours", False)
    with pytest.raises(RunError, match="belongs to another user"):
        resume(directory, lambda _: pytest.fail("nothing of it is begun"))


def test_nor_one_without_a_checkpoint_or_with_a_broken_one(tmp_path: Path) -> None:
    directory = ended(tmp_path, "interrupted")
    with pytest.raises(RunError, match="cloud had no checkpoint yet"):
        past_of(directory)
    keep(directory, 6)
    checkpoint_path(directory.checkpoints_of("cloud"), "cloud").write_bytes(b"EBCP")
    with pytest.raises(RunError, match="not a checkpoint"):
        past_of(directory)
    keep(directory, 1_000_000_000)  # its rounds would be counted one by one
    with pytest.raises(RunError, match=r"round 1000000000.*a run of 10\)"):
        past_of(directory)
