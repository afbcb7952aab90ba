"""Files and packages of others with the names of edgebed's own packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgebed import packages
from tests.e2e.harness import ROOT
from tests.texts import containing

RAISES = "raise RuntimeError('imported')\n"
COMMAND = "from edgebed.command import main; main()"
INTERRUPTS = """\
import os, signal, sys

class Finder:
    def find_spec(name, *_):
        if name == "orchestrator.host":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
"""


def run(code: str, folder: Path, *path: Path | str) -> subprocess.CompletedProcess[str]:
    """Run code as a script in ``folder``, with ``path`` and edgebed's folder on the module search path."""
    (folder / "script.py").write_text(code)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    argv = [sys.executable, "script.py", "--version"]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_signal_during_the_first_imports_ends_the_command(tmp_path: Path) -> None:
    done = run(INTERRUPTS + COMMAND, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


PARAMETERS, TESTING = "import edgebed\nedgebed.Parameters", "import edgebed.testing"


@pytest.mark.parametrize(("name", "code"), [("netem", PARAMETERS), ("node", TESTING), ("orchestrator", PARAMETERS)])
def test_a_file_next_to_the_script(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text(RAISES)
    done = run(code, tmp_path)
    told = containing(f"ImportError: {tmp_path}/{name}.py hides edgebed's package '{name}'")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, told)


def test_the_command_reports_it_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "node.py").write_text(RAISES)
    done = run(COMMAND, tmp_path, tmp_path)
    told = containing(f"error: {tmp_path}/node.py hides edgebed's package 'node'")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_an_installed_package_of_others(tmp_path: Path) -> None:
    other = tmp_path / "site-packages" / "node"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text(RAISES)
    done = run("from edgebed import Role", tmp_path, other.parent)
    remedy = "virtual environment of its own"
    assert done.stderr.splitlines()[-1] == containing(f"ImportError: {other} hides", "'node'", remedy)


def test_an_installed_package_that_has_overwritten_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "FOLDER", str(tmp_path))
    file = tmp_path / "node" / "errors.py"
    file.parent.mkdir()
    for name, record in (
        ("edgebed-0.1.0", "node/errors.py,sha256=a,4\nnode/role.py,sha256=b,9\nnode/__pycache__/errors.pyc,,\n"),
        ("node-2.0.0", "node/errors.py,sha256=c,5\nnode/base.py,sha256=d,9\nnode/__pycache__/errors.pyc,,\n"),
    ):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "RECORD").write_text(record)
    file.write_text("ours")
    assert packages._overwritten("node") is None
    assert packages._overwritten("netem") is None
    file.write_text("their")
    assert packages._overwritten("node") == str(file)


def test_a_module_that_is_imported_already(tmp_path: Path) -> None:
    (tmp_path / "node.py").write_text("")
    done = run("import node, edgebed\nedgebed.Role", tmp_path)
    assert done.stderr.splitlines()[-1].endswith("package 'node': rename it")


@pytest.mark.slow
def test_without_one_everything_works(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()  # a folder without __init__.py comes last in Python's search
    assert run("import edgebed, edgebed.testing\nedgebed.Role", tmp_path).returncode == 0
    assert run(COMMAND, tmp_path).stdout.startswith("edgebed ")
