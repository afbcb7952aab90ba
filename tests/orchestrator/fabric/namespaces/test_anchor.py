from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.fabric.namespaces import anchor


def test_it_answers_and_removes_what_it_was_sent_when_its_input_ends(tmp_path: Path) -> None:
    group = tmp_path / "edgebed-run"
    (group / "edge-0").mkdir(parents=True)
    output = subprocess.run(
        [sys.executable, "-I", "-S", anchor.__file__],
        input=f"echo here\ncgroup {group}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout
    assert output == "here\n"
    assert not group.exists()


def test_those_that_stay_are_reported(tmp_path: Path) -> None:
    busy, free = tmp_path / "busy", tmp_path / "free"
    (busy / "within").mkdir(parents=True)
    (busy / "within" / "file").touch()
    free.mkdir()
    assert anchor.remove([str(busy), str(free)], patience=0.0) == [str(busy)]
    assert not free.exists()


def test_a_group_in_use_is_not_removed(tmp_path: Path) -> None:
    group = tmp_path / "edgebed-run"
    group.mkdir()
    (group / "busy").touch()  # rmdir refuses a folder with a file in it, as it does a cgroup with a process
    assert not anchor.removed(str(group))
    (group / "busy").unlink()
    assert anchor.removed(str(group))
    assert anchor.removed(str(group))
