from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.host.tail import follow_file, last_line, log_of
from orchestrator.record.directory import RunDirectory


def test_the_log_of_a_node_and_the_logs_there_are(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "mine")
    with pytest.raises(RunError, match=r"no log of 'edge-0'.* none yet$"):
        log_of(directory, "edge-0")
    for name in ("edge-1", "cloud"):
        (directory.logs / f"{name}.log").touch()
    assert log_of(directory, "cloud") == directory.logs / "cloud.log"
    with pytest.raises(RunError, match=r"no log of 'edge-0'.* cloud, edge-1$"):
        log_of(directory, "edge-0")


def test_only_a_regular_file_of_the_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "cloud.log").write_text("secret\n")
    logs = RunDirectory.create(tmp_path, "mine").logs
    os.mkfifo(logs / "pipe.log")
    (logs / "link.log").symlink_to(tmp_path / "elsewhere" / "cloud.log")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    for path in (logs / "pipe.log", logs / "link.log", tmp_path / "folder" / "cloud.log"):
        assert last_line(path) == ""
        with pytest.raises(RunError, match=r"\.log cannot be read: it"):
            list(follow_file(path, lambda: False))


def test_a_character_that_is_written_in_two_parts_is_read_as_one(tmp_path: Path) -> None:
    log, (first, second) = tmp_path / "cloud.log", "é".encode()
    log.write_bytes(b"caf" + bytes([first]))
    pieces = follow_file(log, lambda: log.stat().st_size < 6)
    assert next(pieces) == "caf"
    log.write_bytes(b"caf" + bytes([first, second]) + b"\xff")  # the last byte belongs to no character
    assert list(pieces) == ["é\ufffd"]
