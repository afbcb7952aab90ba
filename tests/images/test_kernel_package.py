"""The package of a built kernel: its wheel holds the kernel, and edgebed finds it where the wheel is installed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.drivers.virtual.kernel import PACKAGE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "images" / "kernel"
FINDS = "from orchestrator.drivers.virtual.kernel import built_kernel; print(built_kernel())"
KERNEL = b"\x7fELF: in place of a kernel"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder where pip has installed the package, with a file in place of a kernel."""
    source = tmp_path / "source"
    wheels = tmp_path / "wheels"
    target = tmp_path / "installed"
    shutil.copytree(FOLDER, source)
    linux = source / PACKAGE / "linux"
    linux.write_bytes(KERNEL)
    linux.chmod(0o755)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    alone = ("--quiet", "--no-deps", "--no-index")
    subprocess.run([*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", wheels, source], check=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", *alone, "--target", target, wheel], check=True)
    return target


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel is for x86_64")
def test_a_kernel_that_is_installed_as_a_package_is_used(installed: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", FINDS], env=environment, capture_output=True, text=True, check=True)
    kernel = Path(done.stdout.strip())
    assert kernel == installed / PACKAGE / "linux"
    assert kernel.read_bytes() == KERNEL
    assert os.access(kernel, os.X_OK)
