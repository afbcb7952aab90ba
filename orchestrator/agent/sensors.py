"""The sensors of an agent's host. The agent's container sees them below a folder of its own: Docker hides parts of /sys
from containers, among them the counters of energy (oci.DefaultSpec, MaskedPaths)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.host.sensors.sensor import Sensor
from orchestrator.host.sensors.sources import discover, memory

HOST = Path("/host")
FOLDERS = {Path("/sys") / name: HOST / "sys" / name for name in ("bus", "class", "devices")}
"""Folders of the host, and where its agent sees them."""


def of_host() -> list[Sensor]:
    """The sensors of the host. Commands of boards are not among them."""
    return [*discover(HOST), *memory(Path("/proc"))]
