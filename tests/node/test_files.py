from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.files import read_untrusted


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_untrusted(file, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_untrusted(file, 4)


def test_other_files_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of somebody else")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("link", "symbolic link"), ("pipe", "not a regular file"), ("", "not a regular file")):
        with pytest.raises(OSError, match=reason):
            read_untrusted(tmp_path / name, 100)
    with pytest.raises(FileNotFoundError):
        read_untrusted(tmp_path / "none", 100)
