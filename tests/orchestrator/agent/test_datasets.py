"""The data sets that a host keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.datasets import DataSets, describe
from orchestrator.drivers.hosts.agents.facts import KeptData
from orchestrator.errors import DriverError
from orchestrator.host.hashes import hash_of_files

SIZE = 1000  # bytes of each data set


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.fixture
def one(folder: Path) -> Iterator[DataSets]:
    made = DataSets(folder)
    yield made
    made.close()


def hash_of(tmp_path: Path, content: bytes) -> str:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "x.npy").write_bytes(content)
    return hash_of_files(source)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def brought(datasets: DataSets, tmp_path: Path, letter: str) -> str:
    """Bring a data set of this letter. Returns its hash."""
    content = letter.encode() * SIZE
    sha256 = hash_of(tmp_path, content)
    assert not datasets.has_data(sha256)
    datasets.put_data(sha256, "x.npy", content[:10], first=True)
    datasets.put_data(sha256, "x.npy", content[10:], first=False)
    datasets.keep_data(sha256)
    return sha256


def test_what_was_brought_stays_for_other_agents(one: DataSets, folder: Path, tmp_path: Path) -> None:
    sha256 = brought(one, tmp_path, "a")
    other = DataSets(folder)
    with pytest.raises(DriverError, match="is missing: the agent has restarted"):
        other.path(sha256)
    assert other.has_data(sha256)
    assert (other.path(sha256) / "x.npy").read_bytes() == b"a" * SIZE
    assert folder.joinpath(sha256).stat().st_mode & 0o777 == 0o755  # nodes are other users
    assert describe(folder) == (KeptData("unnamed", sha256, SIZE),)
    other.close()


def test_another_hash_is_refused_and_nothing_stays(one: DataSets, folder: Path, tmp_path: Path) -> None:
    sha256 = hash_of(tmp_path, b"what was meant")
    one.put_data(sha256, "x.npy", b"what came", first=True)
    with pytest.raises(DriverError, match=rf"hash [0-9a-f]{{64}}, and should have {sha256}"):
        one.keep_data(sha256)
    assert names(folder) == set()
    assert not one.has_data(sha256)


def test_what_was_damaged_since_is_removed(one: DataSets, folder: Path, tmp_path: Path) -> None:
    sha256 = brought(one, tmp_path, "a")
    one.close()
    (folder / sha256 / "x.npy").write_bytes(b"b" * SIZE)
    assert not one.has_data(sha256)
    assert names(folder) == set()
    assert brought(one, tmp_path, "a") == sha256


def test_what_was_not_used_for_longest_makes_room_and_what_is_used_stays(folder: Path, tmp_path: Path) -> None:
    using, other = DataSets(folder, limit=2 * SIZE), DataSets(folder, limit=2 * SIZE)
    used = brought(using, tmp_path, "a")
    gone = brought(other, tmp_path, "b")
    kept = brought(other, tmp_path, "c")
    other.close()
    for time, sha256 in enumerate((used, gone, kept)):
        os.utime(folder / sha256, (time, time))
    latest = brought(other, tmp_path, "d")
    assert names(folder) == {used, kept, latest}
    using.close()
    other.close()


def test_what_an_ended_agent_has_not_finished_goes(one: DataSets, folder: Path, tmp_path: Path) -> None:
    (folder / ".coming-1").mkdir()
    other = DataSets(folder)
    other.put_data("0" * 64, "x.npy", b"", first=True)
    sha256 = brought(one, tmp_path, "a")
    assert len(names(folder) - {sha256}) == 1  # of the agent that lives
    other.close()
    assert names(folder) == {sha256}


@pytest.mark.parametrize("path", ["../x", "a/b", "", ".", ".."])
def test_no_file_lies_elsewhere(one: DataSets, path: str) -> None:
    with pytest.raises(DriverError, match="no file of a data set"):
        one.put_data("0" * 64, path, b"", first=True)


@pytest.mark.parametrize("sha256", ["", "..", "a" * 63, "A" * 64, "0" * 64 + "\n"])
def test_no_folder_lies_elsewhere(one: DataSets, sha256: str) -> None:
    with pytest.raises(DriverError, match="no hash"):
        one.has_data(sha256)
