"""A guest is an ordinary process of the host: its results come back, and nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.drivers.virtual.kernel import BUILD, built_kernel
from tests.e2e.harness import ROOT
from tests.lab import guests
from tests.lab.conftest import REPORTS
from tests.programs import CI, give_up

TESTS = """\
import os
import pathlib
import time

def test_passes():
    assert os.environ["OF_THE_HOST"] == "as it is"

def test_fails():
    asked = 3
    assert asked == 4, "told by the guest"

def test_an_hour():
    began = time.monotonic()
    time.sleep(3600)
    assert 3600 < time.monotonic() - began < 3600.001

def test_writes_next_to_its_file():
    pathlib.Path(__file__).with_name("written").touch()
"""
ENDLESS = """\
def test_computes_without_end():
    while True:
        pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder, where there is a kernel for guests."""
    if built_kernel() is None:
        give_up(f"needs a kernel for guests: {BUILD}")
    place = tmp_path / "place"
    place.mkdir()
    return place


def arguments(tests: Path) -> list[str]:
    return [str(tests), f"--rootdir={tests.parent}"]


def processes(word: str) -> list[str]:
    """Command lines of processes that contain this word, and those that work in a folder with it in its path."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            folder = os.readlink(process / "cwd")
        except OSError:
            continue  # it has just ended
        if word in line or word in folder:
            found.append(line)
    return found


def test_a_guest_that_takes_too_long_is_killed_with_all_its_processes(place: Path, tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(ENDLESS)
    with guests.booted(place, arguments(tests), seconds=4.0) as guest:
        assert processes(str(place))
        console = guest.console()
    assert "did not end in time" in console
    assert processes(str(place)) == []


def test_the_guest_reports_and_writes_nothing_else(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "as it is")
    tests = tmp_path / "test_it.py"
    tests.write_text(TESTS)
    with guests.booted(place, [*arguments(tests), "-p", "tests.lab.conftest"], seconds=120.0) as guest:
        console = guest.console()
    assert "1 failed, 3 passed" in console
    assert "told by the guest" in console
    assert not (tmp_path / "written").exists()
    outcomes = {}
    for line in (guests.shared(place) / REPORTS).read_text().splitlines():
        report = json.loads(line)
        if report["when"] == "call":
            outcomes[report["nodeid"].partition("::")[2]] = report["outcome"]
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_an_hour": "passed",
        "test_writes_next_to_its_file": "passed",
    }
    assert processes(str(place)) == []


@pytest.mark.parametrize(("ci", "summary"), [("1", "1 failed"), ("", "1 skipped")])
def test_without_a_kernel_tests_are_skipped_but_fail_in_ci(ci: str, summary: str, tmp_path: Path) -> None:
    environment = {**os.environ, CI: ci, "EDGEBED_CACHE": str(tmp_path)}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/lab/inside", "-k", "finds_netem"]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert summary in result.stdout
    assert BUILD in result.stdout
