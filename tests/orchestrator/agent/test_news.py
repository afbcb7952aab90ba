"""Checkpoints are read once, and nothing else that a node may put in their place."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.news import NewCheckpoints, Piece


def test_what_is_no_checkpoint_is_left_out(tmp_path: Path) -> None:
    own = tmp_path / "device-0"
    own.mkdir()
    (tmp_path / "secret").write_text("key")
    (own / "link.checkpoint").symlink_to(tmp_path / "secret")
    (own / "folder.checkpoint").mkdir()
    os.mkfifo(own / "pipe.checkpoint")  # nobody writes to it
    (own / "device-0.checkpoint").write_bytes(b"model")
    news = NewCheckpoints(tmp_path)
    assert list(news.read()) == [Piece("device-0", b"model", True, True)]
    assert list(news.read()) == []
