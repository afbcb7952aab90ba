"""Files that a user names: what is no readable text is refused unread."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.language.files import text_of
from orchestrator.scenario.reading import load


def refused(file: Path) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        text_of(file, 10, "is too long")
    return str(caught.value)


def test_a_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("0123456789")
    assert text_of(tmp_path / "a", 10, "is too long") == "0123456789"


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("0123456789\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "long") == "is too long"
    assert refused(tmp_path / "binary") == "it is not UTF-8 text"
    assert refused(tmp_path / "loop") == "Too many levels of symbolic links"
    assert refused(tmp_path / "pipe") == refused(Path("/dev/zero")) == "it is no regular file"
    assert refused(tmp_path) == "it is a folder"
    assert refused(tmp_path / "missing") == "No such file or directory"
    assert refused(tmp_path / ("x" * 300)) == "File name too long"
    assert "embedded null" in refused(tmp_path / "a\0b")


def test_a_scenario_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "marked.yaml").write_bytes(b"\xef\xbb\xbfalgorithm: hierfavg\r\n")
    assert load(tmp_path / "marked.yaml").name == "marked"


def test_a_large_scenario_is_refused_by_its_size(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * 10_000_000)
    with pytest.raises(ScenarioError, match=r"large\.yaml: cannot be read"):
        load(large)
