"""The folder of a scenario arrives as programs need it."""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path

import pytest

from orchestrator.errors import HostError, PlanError
from orchestrator.planning.copies import scenario_folder
from orchestrator.planning.copies.scenario_folder import pack, refuse_large, unpack
from tests.texts import containing


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
    (found / "app" / "read.txt").write_text("as a guest")
    (found / "app" / "read.txt").chmod(0o601)  # its owner cannot execute it
    for left_out, file in ((".git", "index"), ("__pycache__", "app.pyc"), ("runs/mine-1", "run.db")):
        (found / left_out).mkdir(parents=True)
        (found / left_out / file).write_bytes(bytes(1 << 20))
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
        "app/read.txt": 0o644,
        "app/run.sh": 0o755,
        "runs": 0o755,
    }
    assert (there / "app" / "latest").read_text() == "#!/bin/sh\n"
    with tarfile.open(tmp_path / "archive.tar") as tar:
        assert {(member.uid, member.gid, member.uname, member.gname) for member in tar} == {(0, 0, "", "")}


@pytest.mark.parametrize("excess", [0, 1])
def test_an_archive_may_have_a_hundred_megabytes(tmp_path: Path, excess: int) -> None:
    """Of a sparse file and the header of 512 bytes before it."""
    with open(tmp_path / "data", "wb") as file:
        file.truncate(100_000_000 - 512 + excess)
    with pytest.raises(PlanError) if excess else contextlib.nullcontext():
        refuse_large(tmp_path)


def test_a_large_folder_is_refused_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_folder, "LARGEST", 4128)
    refuse_large(folder)  # eight headers of 512 bytes, and 32 bytes in files; what stays does not count
    monkeypatch.setattr(scenario_folder, "LARGEST", 4127)
    with pytest.raises(PlanError) as caught:
        refuse_large(folder)
    assert str(caught.value) == containing(f"{folder} has more than 4.13 kB")


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"gone.*read \(No such file"):
        refuse_large(tmp_path / "gone")
    with pytest.raises(HostError, match=r"gone cannot be read"):
        pack(tmp_path / "gone", tmp_path / "archive.tar")
