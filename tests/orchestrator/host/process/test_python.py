"""Files in the working directory with the names of our packages, or of a library, are never imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.host.process import python

NAMES = ("node", "netem", "torch", "orchestrator", "click")
TELL_PATH = "import json, sys\nprint(json.dumps([sys.path, sys.argv[1:], __name__]))"


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(
            "raise RuntimeError(f'{__name__} was imported from the working directory')"
        )
    return tmp_path


def run(argv: list[str], folder: Path, python_path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {} if python_path is None else {"PYTHONPATH": python_path}
    return subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_a_module_has_the_path_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "tell.py").write_text(TELL_PATH)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), *sys.path])
    done = run(python.module("tell", "a", "{}"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [sys.path, ["a", "{}"], "__main__"]


@pytest.mark.parametrize("module", ["netem.userspace.switch", "netem.measurement.endpoints", "node.process.forkserver"])
def test_a_module_of_ours_next_to_files_of_the_same_name(traps: Path, module: str) -> None:
    done = run(python.module(module, "{"), traps)
    assert "working directory" not in done.stderr, done.stderr


@pytest.mark.parametrize("python_path", [f":{python.ROOT}", python.ROOT])
def test_the_command_line_next_to_such_files(traps: Path, python_path: str) -> None:
    (traps / "orchestrator.py").unlink()  # which `python -m orchestrator` would take for the program
    done = run([sys.executable, "-m", "orchestrator", "--help"], traps, python_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_command_next_to_such_files(traps: Path) -> None:
    entry = f"import sys; sys.path[:0] = [{python.ROOT!r}]; from orchestrator.__main__ import main; main()"
    done = run([sys.executable, "-P", "-c", entry, "--help"], traps)
    assert (done.returncode, done.stderr) == (0, "")


def test_our_own_folder_stays_on_the_path() -> None:
    done = run([sys.executable, "-m", "orchestrator", "--help"], Path(python.ROOT))
    assert (done.returncode, done.stderr) == (0, "")


def left(folder: Path, monkeypatch: pytest.MonkeyPatch, python_path: str = "") -> bool:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", python_path)
    monkeypatch.setattr(sys, "path", [str(folder), "/usr/lib/python3"])
    python.leave_working_directory()
    return str(folder) not in sys.path


def test_a_folder_that_pythonpath_names_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert left(tmp_path, monkeypatch)
    assert left(tmp_path, monkeypatch, ":/opt")
    assert not left(tmp_path, monkeypatch, f"/opt:{tmp_path}")
    assert not left(tmp_path, monkeypatch, ".")
    assert not left(Path(python.ROOT), monkeypatch)
