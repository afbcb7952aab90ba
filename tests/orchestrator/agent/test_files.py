"""What nodes have written is read in pieces, and nothing else of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.agent.files import Files
from orchestrator.drivers.hosts.agents.channel import PIECE
from orchestrator.errors import DriverError


def test_a_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "cloud.log").write_bytes(bytes(PIECE) + b"end")
    (tmp_path / "plan.json").write_text("{}")
    assert Files().files(tmp_path) == [b"logs/cloud.log", b"plan.json"]
    assert Files().get(tmp_path, b"logs/cloud.log", 0) == bytes(PIECE)
    assert Files().get(tmp_path, b"logs/cloud.log", PIECE) == b"end"


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "secret").write_text("key")
    (own / "link").symlink_to(tmp_path / "secret")
    (own / "up").symlink_to(tmp_path)
    (own / "nowhere").symlink_to("x" * 300)  # to look where it leads is an error
    os.mkfifo(own / "pipe")
    assert Files().files(own) == []
    (own / "circle").symlink_to("circle")
    for path in ("pipe", "circle"):
        with pytest.raises(DriverError, match=f"{path} cannot be read"):
            Files().get(own, path.encode(), 0)
    for path in ("link", "up/secret", "../secret", str(tmp_path / "secret")):
        with pytest.raises(DriverError, match="no file of the run"):
            Files().get(own, path.encode(), 0)
    with pytest.raises(OSError, match="symbolic link"):
        Files().put(own / "link", b"changed", first=True, secret=False)
    assert (tmp_path / "secret").read_text() == "key"


def test_what_is_not_there(tmp_path: Path) -> None:
    assert Files().files(tmp_path / "nobody") == []
    with pytest.raises(DriverError, match="gone cannot be read"):
        Files().get(tmp_path, b"gone", 0)
