"""The notes of a release are the section of its version, and a tag that disagrees with the files is refused."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".github/release.py"
notes = runpy.run_path(str(SCRIPT))["notes"]

CHANGELOG = """# Changelog

## [Unreleased]

- Later.

## [0.2.0] - 2026-11-25

### Added

- News.

## [0.1.0] - 2026-11-22

- The first version.
"""
CITATION = "cff-version: 1.2.0\nversion: 0.2.0\ndate-released: 2026-11-25\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "CITATION.cff").write_text(CITATION)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(project: Path) -> None:
    assert notes("v0.2.0", project) == "### Added\n\n- News."


@pytest.mark.parametrize("tag", ["v0.2.1", "0.2.0", "v0.2.0rc1"])
def test_a_tag_of_another_version_is_refused(project: Path, tag: str) -> None:
    with pytest.raises(ValueError, match=rf"the tag is {tag}, the version in pyproject.toml 0.2.0: tag v0.2.0 or"):
        notes(tag, project)


@pytest.mark.parametrize(
    ("file", "old", "new", "error"),
    [
        (
            "CHANGELOG.md",
            "## [0.2.0] - 2026-11-25",
            "## [0.2.0]",
            "the newest dated section is of 0.1.0; add `## [0.2.0",
        ),
        ("CHANGELOG.md", "## [", "## ", "the newest dated section is missing"),
        ("CITATION.cff", "\nversion: 0.2.0", "\nversion: 0.1.0", "version is 0.1.0; write 0.2.0"),
        ("CITATION.cff", "date-released: 2026-11-25", "", "date-released is None; write 2026-11-25"),
    ],
)
def test_files_that_disagree_are_refused(project: Path, file: str, old: str, new: str, error: str) -> None:
    (project / file).write_text((project / file).read_text().replace(old, new))
    with pytest.raises(ValueError, match=re.escape(f"{file}: {error}")):
        notes("v0.2.0", project)


def test_this_version_can_be_released(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    lines = notes(f"v{version[1]}", tmp_path).splitlines()
    assert lines
    assert len(lines) < 60
    assert max(map(len, lines)) <= 100
