"""The container of an agent: its name, and where it sees what it needs of its host."""

from __future__ import annotations

from pathlib import Path

HANDLERS_HERE = Path("/host/binfmt_misc")  # where the agent sees which processors its host can emulate
SENSORS = Path("/host")
SENSOR_FOLDERS = {
    Path("/sys/bus"): SENSORS / "sys/bus",
    Path("/sys/class"): SENSORS / "sys/class",
    Path("/sys/devices"): SENSORS / "sys/devices",
}
"""Folders of the host with sensors, and where its agent sees them: Docker hides parts of /sys from containers, among
them the counters of energy (oci.DefaultSpec, MaskedPaths)."""


def name_of(run: str) -> str:
    """The name of the container of an agent."""
    return f"{run}-agent"
