"""What README shows, typed in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, command

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

README = (ROOT / "README.md").read_text()
DONE = (0, 3)  # a busy host is no fault of README


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (scenario,) = blocks("yaml")
    (tmp_path / "mine.yaml").write_text(scenario)
    return tmp_path


def test_its_commands(folder: Path) -> None:
    typed = [shlex.split(line, comments=True) for line in re.findall(r"^    edgebed (.*)", README, re.MULTILINE)]
    assert {"up", "validate", "plan"} <= {words[0] for words in typed}
    for words in typed:
        done = subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode in DONE, (words, done.stderr)


def test_its_python(folder: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pass ")
