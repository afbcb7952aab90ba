"""How busy this host is, as its kernel counts it: proc_stat(5), Documentation/accounting/psi.rst, softnet_stat.

Counters only grow; what happened in a stretch of time is the difference of two readings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_IDLE = (3, 4)  # idle and iowait among the columns of /proc/stat
_GUEST = 8  # the columns from here on are counted in user and nice already
_DROPPED = 1  # column of /proc/net/softnet_stat


class HostLoad(NamedTuple):
    """Counters since the host started.

    busy       seconds its processors worked, all together; also for others where it is a virtual machine (steal)
    idle       seconds they had nothing to do
    waiting    seconds in which some task was ready and had no processor; None where the kernel does not say (PSI)
    dropped    packets for which the processors' backlogs had no room, of all network namespaces
    """

    busy: float
    idle: float
    waiting: float | None
    dropped: int


def read_load(proc: Path = PROC) -> HostLoad:
    """The counters of now; zeros for what this kernel does not show."""
    busy, idle = parse_stat(_text(proc / "stat"))
    return HostLoad(
        busy, idle, parse_pressure(_text(proc / "pressure" / "cpu")), parse_backlogs(_text(proc / "net/softnet_stat"))
    )


def parse_stat(text: str, ticks: int | None = None) -> tuple[float, float]:
    """Busy and idle seconds of all processors together, from /proc/stat. ``ticks`` a second: default this host's."""
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
    """Packets dropped by the processors' backlogs, from /proc/net/softnet_stat: a line each, in hexadecimal."""
    return sum(int(line.split()[_DROPPED], 16) for line in text.splitlines())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
