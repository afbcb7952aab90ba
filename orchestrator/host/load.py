"""The load of this host, from its kernel's counters: proc_stat(5), Documentation/accounting/psi.rst, softnet_stat.

Counters only grow. The load in a period is the difference of two readings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_IDLE = (3, 4)  # idle and iowait among the columns of /proc/stat
_GUEST = 8  # the columns from here on are already included in user and nice
_DROPPED = 1  # column of /proc/net/softnet_stat


class HostLoad(NamedTuple):
    """Counters since the host started.

    busy       seconds of work of all processors together; in a virtual machine also for other machines (steal)
    idle       seconds that all processors together were idle
    waiting    seconds in which some task was ready and had no processor; None if the kernel has no PSI
    dropped    packets dropped because a processor's backlog was full, in all network namespaces
    """

    busy: float
    idle: float
    waiting: float | None
    dropped: int


def read_load(proc: Path = PROC) -> HostLoad:
    """Read the present counters. A counter that this kernel does not show is 0, or None for ``waiting``."""
    busy, idle = parse_stat(_text(proc / "stat"))
    return HostLoad(
        busy, idle, parse_pressure(_text(proc / "pressure" / "cpu")), parse_backlogs(_text(proc / "net/softnet_stat"))
    )


def parse_stat(text: str, ticks: int | None = None) -> tuple[float, float]:
    """Busy and idle seconds of all processors together, from /proc/stat. ``ticks``: per second, default this host's."""
    per_second = ticks or os.sysconf("SC_CLK_TCK")
    for line in text.splitlines():
        if line.startswith("cpu "):
            columns = [int(word) / per_second for word in line.split()[1:]][:_GUEST]
            idle = sum(columns[place] for place in _IDLE)
            return sum(columns) - idle, idle
    return 0.0, 0.0


def parse_pressure(text: str) -> float | None:
    """Seconds in which some task waited for a processor, from /proc/pressure/cpu; None without that file."""
    for line in text.splitlines():
        if line.startswith("some "):
            facts = dict(word.split("=") for word in line.split()[1:])
            return int(facts["total"]) / 1e6
    return None


def parse_backlogs(text: str) -> int:
    """Packets dropped by the processors' backlogs, from /proc/net/softnet_stat: one hexadecimal line per processor."""
    return sum(int(line.split()[_DROPPED], 16) for line in text.splitlines())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
