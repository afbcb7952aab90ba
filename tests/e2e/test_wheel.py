"""edgebed as pip installs it: from a wheel, without the project's folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PACKAGES = ("edgebed", "netem", "node", "orchestrator")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a virtual environment with edgebed's wheel. Its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels, home = folder / "source", folder / "wheels", folder / "bare"
    without = shutil.ignore_patterns("__pycache__")
    for package in (*PACKAGES, "docs", "images", "scenarios"):
        shutil.copytree(ROOT / package, source / package, ignore=without, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    alone = ("--quiet", "--no-deps", "--no-index")
    subprocess.run([*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", wheels, source], check=True)
    shutil.rmtree(source)
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "--python", python, "install", *alone, "--no-compile", wheel], check=True)
    libraries = "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site,) = home.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(libraries)  # after the wheel's packages; its own .pth files are not read
    return home / "bin"


def call(argv: list[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_project_of_its_own_runs(bare: Path, tmp_path: Path) -> None:
    where = f"import {', '.join(PACKAGES)}; print({', '.join(f'{each}.__file__' for each in PACKAGES)})"
    for file in call([bare / "python", "-c", where], tmp_path).stdout.split():
        assert Path(file).is_relative_to(bare.parent)
    call([bare / "edgebed", "init", "lab"], tmp_path)
    done = call([bare / "edgebed", "up", "scenario.yaml", "--driver", "sim", "--json"], tmp_path / "lab")
    summary = json.loads(done.stdout)
    assert (summary["ended"], summary["verdict"]) == ("rounds", "pass")
    (run,) = (tmp_path / "lab" / "runs").iterdir()
    assert "<html" in (run / "report.html").read_text()


def test_every_file_of_the_packages_is_installed(bare: Path) -> None:
    """Also those that are no modules, such as the pages of reports and the script that a guest starts with."""
    (site,) = bare.parent.glob("lib/python*/site-packages")
    listed = subprocess.run(["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [Path(name) for name in listed.stdout.split("\0") if name]
    missing = []
    for file in files:
        is_left_out = (ROOT / file).is_symlink() or file.name.startswith(".")  # settings of linters
        if not is_left_out and not (site / file).exists():
            missing.append(str(file))
    assert missing == []


def test_examples_arrive_and_run_from_where_they_are_installed(bare: Path, tmp_path: Path) -> None:
    (installed,) = bare.parent.glob("lib/python*/site-packages/orchestrator/verbs/scenarios")
    found, ours = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        for folder in (installed, ROOT / "scenarios")
    )
    assert found == ours
    assert call([bare / "edgebed", "docs", "hosts"], tmp_path).stdout == (ROOT / "docs/guides/hosts.md").read_text()
    done = call([bare / "edgebed", "up", "on-the-move", "--set", "algorithm.rounds=1", "--driver", "sim"], tmp_path)
    assert "accuracy" in done.stdout
    call([bare / "python", "-m", "orchestrator.verbs.scenarios.traces.convert", "--help"], tmp_path)
    call([bare / "edgebed", "new", "sweeps/selection", "copy"], tmp_path)
    call([bare / "edgebed", "validate", "copy/population.yaml"], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "runs"}


def test_an_image_can_be_built(bare: Path, tmp_path: Path) -> None:
    """`tests/orchestrator/verbs/test_image.py` holds the folder against what the Dockerfiles copy."""
    call([bare / "edgebed", "image", "build"], tmp_path)
    for name in ("edgebed", "images", "node"):
        ours = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*") if path.is_file()}
        found = {path.relative_to(tmp_path / "build") for path in (tmp_path / "build" / name).rglob("*")}
        assert {path for path in ours if path.suffix != ".pyc"} <= found
