"""What `doctor` shows of the kernel for virtual time, and what is to be done without one."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from orchestrator.drivers.virtual import entry, kernel
from orchestrator.host.trial import Trial


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of /usr/src, on a host with x86_64 and without a built kernel."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setattr(kernel, "SOURCES", folder)
    monkeypatch.setattr(kernel, "PACKAGE", "no_package_with_a_kernel")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    return folder


def finding() -> Trial:
    (trial,) = entry.trials()
    return trial


def test_without_source_it_is_installed_before_the_kernel_is_built(sources: Path) -> None:
    trial = finding()
    assert trial.ok is None
    assert trial.commands == (kernel.INSTALL, kernel.BUILD)


def test_with_source_the_kernel_is_built(sources: Path) -> None:
    (sources / "linux-source-6.12.tar.xz").touch()
    assert finding().commands == (kernel.BUILD,)


def test_a_built_kernel_is_shown(sources: Path) -> None:
    folder = kernel.cache() / f"6.12-{kernel.fingerprint()}"
    folder.mkdir(parents=True)
    (folder / "linux").touch()
    trial = finding()
    assert (trial.ok, trial.detail, trial.commands) == (True, str(folder / "linux"), ())


def test_another_machine_has_no_user_mode(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    trial = finding()
    assert (trial.ok, trial.commands) == (None, ())
    assert "aarch64" in trial.detail


def test_an_image_without_the_configuration_has_no_kernel(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources / "linux-source-6.12.tar.xz").touch()
    monkeypatch.setattr(kernel, "CONFIGURATION", sources / "missing")
    trial = finding()
    assert (trial.ok, trial.commands) == (None, ())
