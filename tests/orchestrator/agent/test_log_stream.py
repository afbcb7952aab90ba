"""Checkpoints are read once, and nothing else that a node may put in their place."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.log_stream import CheckpointStream, LogStream, Piece


def test_what_is_no_checkpoint_is_left_out(tmp_path: Path) -> None:
    own = tmp_path / "device-0"
    own.mkdir()
    (tmp_path / "secret").write_text("key")
    (own / "link.checkpoint").symlink_to(tmp_path / "secret")
    (own / "folder.checkpoint").mkdir()
    os.mkfifo(own / "pipe.checkpoint")  # nobody writes to it
    (own / "device-0.checkpoint").write_bytes(b"model")
    news = CheckpointStream(tmp_path)
    assert list(news.read()) == [Piece("device-0", b"model", True, True)]
    assert list(news.read()) == []


def test_the_output_of_a_log_is_read_once_whatever_readers_there_are(tmp_path: Path) -> None:
    """The end of a node is told after its output, by another task than the one that looks at the logs."""
    log, news = tmp_path / "cloud.log", LogStream(tmp_path)
    text = b"".join(b"%d\n" % number for number in range(600_000))
    log.write_bytes(text)
    one, other = news.read(), news.read()
    read = [next(one)[1], next(other)[1], next(one)[1]]
    with log.open("ab") as file:
        file.write(b"more")  # by a node that prints without end
    assert b"".join([*read, *(data for _, data in one), *(data for _, data in other)]) == text
    assert [data for _, data in news.read()] == [b"more"]
