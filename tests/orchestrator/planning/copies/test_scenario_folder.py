"""The folder of a scenario arrives as programs need it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import HostError, PlanError
from orchestrator.planning.copies import scenario_folder
from orchestrator.planning.copies.scenario_folder import pack, refuse_large, unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a script, a link, an empty folder, and what no program reads."""
    found = tmp_path / "mine"
    (found / "app" / "empty").mkdir(parents=True)
    (found / "app" / "run.sh").write_text("#!/bin/sh\n")
    (found / "app" / "run.sh").chmod(0o700)
    (found / "app" / "latest").symlink_to("run.sh")
    (found / "app" / "nowhere").symlink_to("x" * 300)  # to look where it leads is an error
    (found / ".env").write_text("COLOUR=blue\n")
    (found / ".env").chmod(0o600)
    for left_out in (".git", "__pycache__", "runs/mine-1"):
        (found / left_out).mkdir(parents=True)
        (found / left_out / "run.db").write_bytes(bytes(1 << 20))
    return found


def test_a_folder_arrives_with_its_links_and_everybody_may_read_it(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "archive.tar")
    there = tmp_path / "there"
    unpack(tmp_path / "archive.tar", there)
    # Not by Path.rglob, which fails at a link that leads nowhere.
    paths = [Path(folder, name) for folder, folders, files in os.walk(there) for name in (*folders, *files)]
    found = {str(each.relative_to(there)): each.lstat().st_mode & 0o777 for each in paths}
    assert found == {
        ".env": 0o644,
        "app": 0o755,
        "app/empty": 0o755,
        "app/latest": 0o777,  # as every link
        "app/nowhere": 0o777,
        "app/run.sh": 0o755,
        "runs": 0o755,
    }
    assert (there / "app" / "latest").read_text() == "#!/bin/sh\n"


def test_a_large_folder_is_refused_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_folder, "LARGEST", 4000)
    refuse_large(folder)  # seven entries with a header of 512 bytes each; what stays does not count
    monkeypatch.setattr(scenario_folder, "LARGEST", 3000)
    with pytest.raises(PlanError) as caught:
        refuse_large(folder)
    assert str(caught.value) == (
        f"programs: the folder of the scenario is copied to each host, and {folder} has more than 3 kB: move the"
        " scenario to a folder that has nothing but what the programs read"
    )


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"gone cannot be read \(No such file or directory\)"):
        refuse_large(tmp_path / "gone")
    with pytest.raises(HostError, match=r"gone cannot be read"):
        pack(tmp_path / "gone", tmp_path / "archive.tar")
