"""Hostile archives: each is refused, and nothing is written."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.archive.crate import METADATA
from orchestrator.archive.opening import unpack
from orchestrator.errors import ArchiveError

Write = Callable[[zipfile.ZipFile], None]


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def described(archive: zipfile.ZipFile, **files: str) -> None:
    """Add files, and a description with their hashes."""
    for name, text in files.items():
        archive.writestr(entry(name), text)
    graph = [{"@id": name, "sha256": hashlib.sha256(text.encode()).hexdigest()} for name, text in files.items()]
    archive.writestr(METADATA, json.dumps({"@graph": graph}))


def made(folder: Path, write: Write) -> Path:
    file = folder / "made.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        described(archive, a="1")
        write(archive)
    return file


def of(name: str, mode: int = stat.S_IFREG | 0o644, text: str = "2") -> Write:
    return lambda archive: archive.writestr(entry(name, mode), text)


def bomb(archive: zipfile.ZipFile) -> None:
    with archive.open("zeros", "w") as file:
        for _ in range(101):
            file.write(bytes(1_000_000))


HOSTILE = {
    "up": (of("../b"), "may lead out of its folder"),
    "up later": (of("runs/../../b"), "may lead out of its folder"),
    "absolute": (of("/tmp/b"), "may lead out of its folder"),
    "other separator": (of("..\\b"), "may lead out of its folder"),
    "empty part": (of("runs//b"), "may lead out of its folder"),
    "control character": (of("b\x1b[2J"), "may lead out of its folder"),
    "long": (of("b" * 256), "may lead out of its folder"),
    "symbolic link": (of("b", stat.S_IFLNK | 0o777, "/etc/passwd"), "is a link or a device"),
    "device": (of("b", stat.S_IFCHR | 0o666), "is a link or a device"),
    "folder as a link": (of("b/", stat.S_IFLNK | 0o777), "is a link or a device"),
    "folder of the same name": (of("a/", stat.S_IFDIR | 0o755), "two files of the same"),
    "bomb": (bomb, "cannot be 3 files of 101,000,"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    write, why = HOSTILE[name]
    file = made(tmp_path, write)
    with pytest.raises(ArchiveError, match=why):
        unpack(file, tmp_path / "new")
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="two files of the same"):
        unpack(made(tmp_path, of("a")), tmp_path / "new")


@pytest.mark.parametrize("name", ["a/b", "/".join("b" * 2000)])
def test_what_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="cannot be unpacked: "):
        unpack(made(tmp_path, of(name)), tmp_path / "new")


def test_entries_that_overlap(tmp_path: Path) -> None:
    """All entries of the list are the same bytes of the file."""
    file = made(tmp_path, lambda archive: archive.filelist.extend([archive.filelist[-1]] * 100))
    with pytest.raises(ArchiveError, match="cannot be 102 files"):
        unpack(file, tmp_path / "new")
    assert [*tmp_path.iterdir()] == [file]


def test_an_encrypted_entry(tmp_path: Path) -> None:
    file = made(tmp_path, of("b"))
    content = bytearray(file.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(content)
    with pytest.raises(ArchiveError, match="b is encrypted"):
        unpack(file, tmp_path / "new")


def test_an_entry_that_is_larger_than_it_says(tmp_path: Path) -> None:
    file = made(tmp_path, of("b", text="2" * 1000))
    content = bytearray(file.read_bytes())
    content[(place := content.rindex(b"PK\x01\x02") + 24) : place + 4] = (10).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ArchiveError, match="cannot be unpacked: Bad CRC-32"):
        unpack(file, tmp_path / "new")
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "made.zip"
    file.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"made.zip cannot be unpacked|no archive"):
        unpack(file, tmp_path / "new")


def test_a_missing_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"made.zip cannot be unpacked.*directory$"):
        unpack(tmp_path / "made.zip", tmp_path / "new")


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '{"@graph": [{"sha256": "", "@id": []}]}'])
def test_a_description_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    file = tmp_path / "made.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(METADATA, text)
    with pytest.raises(ArchiveError, match="cannot be read"):
        unpack(file, tmp_path / "new")


def test_files_that_differ_from_their_description(tmp_path: Path) -> None:
    file = tmp_path / "made.zip"
    with zipfile.ZipFile(file, "w") as archive:
        described(archive, a="1", b="2")
        archive.writestr("c", "3")
    assert unpack(file, tmp_path / "new") == ["c"]
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir() if path.name != METADATA} == {
        "a": "1",
        "b": "2",
        "c": "3",
    }
