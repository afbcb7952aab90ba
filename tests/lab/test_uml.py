"""The guest as an ordinary process of the host: its results come back, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import uml

TESTS = """\
import os
import pathlib

def test_passes(record_property):
    record_property("release", pathlib.Path("/proc/version").read_text())
    assert os.environ["CI"] == "true"

def test_fails():
    asked = 3
    assert asked == 4, "told by the guest"

def test_never_ends():
    import time
    time.sleep(3600)

def test_writes_next_to_its_results():
    pathlib.Path(__file__).with_name("written").touch()
"""


@pytest.fixture
def guest() -> None:
    if why := uml.missing():
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    if why := uml.unfit():
        pytest.skip(why)


def processes(word: str) -> list[str]:
    """Command lines of processes that contain this word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        found += [line] if word in line else []
    return found


@pytest.mark.usefixtures("guest")
def test_a_guest_that_takes_too_long_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(TESTS)
    console = uml.run_pytest(tmp_path, [str(tests), "--rootdir", str(tmp_path), "-k", "never"], seconds=3.0)
    assert " timed out after " in console
    assert processes(str(tmp_path)) == []


@pytest.mark.usefixtures("guest")
def test_the_guest_writes_its_results_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    tests = tmp_path / "outside" / "test_it.py"
    tests.parent.mkdir()
    tests.write_text(TESTS)
    results = tmp_path / "results"
    results.mkdir()
    arguments = [str(tests), "--rootdir", str(tests.parent), "-k", "not never", "--junitxml=/run/results/junit.xml"]
    console = uml.run_pytest(results, arguments, seconds=30.0)
    assert "2 failed, 1 passed" in console
    assert "Read-only file system" in console
    assert not (tests.parent / "written").exists()
    assert "told by the guest" in (results / "junit.xml").read_text()


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == uml.KERNEL else f"/usr/bin/{tool}")
    assert uml.missing().startswith("linux.uml not found: apt-get install")
    assert "user-mode-linux" in uml.missing()


@pytest.mark.parametrize(("ci", "summary"), [(True, "1 failed"), (False, "1 skipped")])
def test_without_a_guest_tests_are_skipped_but_fail_in_ci(ci: bool, summary: str, tmp_path: Path) -> None:
    """On a host with neither netem nor linux.uml: a PATH that has only what is needed to find that out."""
    for tool in ("ip", "tc", "unshare"):
        (tmp_path / tool).symlink_to("/bin/false")
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | ({"CI": "true"} if ci else {})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rsf",
        "tests/lab/inside",
        "-k",
        "finds_netem",
    ]
    result = subprocess.run(
        command, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False, cwd=uml.ROOT
    )
    assert summary in result.stdout
    assert "linux.uml" in result.stdout
