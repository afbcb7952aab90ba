"""Whether this kernel is a guest in virtual time, see `orchestrator.drivers.virtual`."""

from __future__ import annotations

from pathlib import Path

COMMAND_LINE = Path("/proc/cmdline")


def in_virtual_time(command_line: Path = COMMAND_LINE) -> bool:
    """Whether it was started as by `orchestrator.drivers.virtual.guest`: its random numbers then follow from a seed."""
    try:
        return "time-travel=inf-cpu" in command_line.read_text().split()
    except OSError:
        return False
