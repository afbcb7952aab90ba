from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.agent import in_container
from orchestrator.drivers.hosts.agents.container import SENSOR_FOLDERS, SENSORS
from orchestrator.host.sensors.sources import discover
from tests.orchestrator.host.sensors import trees


def test_an_agent_sees_what_its_host_shows_in_these_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the host's files it has only these; the memory is that of /proc, which its container has."""
    host, seen = trees.intel_laptop(tmp_path / "host"), tmp_path / "seen"
    for there, here in SENSOR_FOLDERS.items():
        if (host / there.relative_to("/")).exists():
            shutil.copytree(host / there.relative_to("/"), seen / here.relative_to(SENSORS), symlinks=True)
    monkeypatch.setattr(in_container, "SENSORS", seen)
    names = {sensor.name for sensor in in_container.sensors()}
    assert names == {sensor.name for sensor in discover(host)}
    assert ("energy", "rapl", "package-0") in names


def test_an_agent_reads_folders_of_the_kernel_only() -> None:
    assert {str(there): str(here) for there, here in SENSOR_FOLDERS.items()} == {
        "/sys/bus": "/host/sys/bus",
        "/sys/class": "/host/sys/class",
        "/sys/devices": "/host/sys/devices",
    }
