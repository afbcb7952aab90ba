from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.drivers.namespaces.driver import can_give_away, hand_over
from orchestrator.drivers.user import User
from orchestrator.record.directory import RunDirectory


@pytest.mark.parametrize("obeyed", [True, False])
def test_a_file_system_that_gives_no_files_away_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeyed: bool
) -> None:
    """Some refuse, and some say yes and do nothing."""
    monkeypatch.setattr("orchestrator.drivers.namespaces.driver.mapped", lambda _: True)
    group = os.getgid()
    monkeypatch.setattr(os, "chown", lambda *_: None)
    assert can_give_away(tmp_path, group if obeyed else group + 1) is obeyed

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    assert not can_give_away(tmp_path, group)


def test_a_node_is_given_its_checkpoints_and_a_share_of_the_runs_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, data = RunDirectory.create(tmp_path, "run"), tmp_path / "data"
    data.mkdir(mode=0o755)
    for file in (directory.shards, directory.socket):
        file.touch()
    earlier = directory.checkpoints_of("cloud") / "cloud.checkpoint"
    earlier.parent.mkdir()
    earlier.touch()
    given: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, **_: given.update({path.name: (uid, gid)}))
    assert hand_over(directory, "cloud", data, User(5, 6)) == earlier.parent
    assert given == {
        "cloud": (5, 6),
        "cloud.checkpoint": (5, 6),  # of an earlier life, perhaps as another user
        "control": (-1, 6),
        "socket": (-1, 6),
        "shards.npz": (-1, 6),
    }
    shared = (directory.control, directory.socket, directory.shards)
    assert [path.stat().st_mode & 0o777 for path in shared] == [0o710, 0o660, 0o640]
    given.clear()
    assert hand_over(directory, "edge-0", data, None).is_dir()
    assert given == {}
