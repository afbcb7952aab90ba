"""The load of this host, from its kernel's counters: proc_stat(5), Documentation/accounting/psi.rst, softnet_stat.

Counters only grow. The load in a period is the difference of two readings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from node.resources import affinity
from orchestrator.host.kernel.small_files import text_of
from orchestrator.host.kernel.usage import of_process

PROC = Path("/proc")
LEAST = 0.25  # s; counters move in steps of 10 ms
MUCH = 0.5  # of the processors, by other programs: nodes may be late
_IDLE = (3, 4)  # idle and iowait among the columns of /proc/stat
_GUEST = 8  # the columns from here on are already included in user and nice
_DROPPED = 1  # column of /proc/net/softnet_stat


class HostLoad(NamedTuple):
    """Counters since the host started.

    busy       seconds of work of this process's processors together; in a virtual machine also for other machines
               (steal)
    idle       seconds that they were idle
    waiting    seconds in which some task was ready and had no processor; None if the kernel has no PSI
    dropped    packets dropped because a processor's backlog was full, in all network namespaces
    """

    busy: float
    idle: float
    waiting: float | None
    dropped: int


def read_load(proc: Path = PROC) -> HostLoad:
    """Read the present counters. A counter that this kernel does not show is 0, or None for ``waiting``."""
    stat, pressure, backlogs = (text_of(proc / each) or "" for each in ("stat", "pressure/cpu", "net/softnet_stat"))
    return HostLoad(*parse_stat(stat, affinity()), parse_pressure(pressure), parse_backlogs(backlogs))


def parse_stat(text: str, processors: Iterable[int], ticks: int | None = None) -> tuple[float, float]:
    """Busy and idle seconds of these processors together, from /proc/stat. ``ticks``: per second, default this
    host's."""
    per_second = ticks or os.sysconf("SC_CLK_TCK")
    labels = {f"cpu{number}" for number in processors}
    busy = idle = 0.0
    for line in text.splitlines():
        label, _, counters = line.partition(" ")
        if label in labels:
            columns = [int(word) / per_second for word in counters.split()[:_GUEST]]
            waited = sum(columns[place] for place in _IDLE)
            busy = busy + sum(columns) - waited
            idle = idle + waited
    return busy, idle


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


class Others:
    """The work of other programs on the processors of this process since this object was made."""

    def __init__(self) -> None:
        self._start, self._load, self._own = time.monotonic(), read_load(), _own_seconds()

    def busy(self, processes: Iterable[int] = ()) -> str | None:
        """A sentence if others use half of the processors or more; None if they do not, or if less than `LEAST` seconds
        have passed. ``processes``: those that this one has started since, and has not waited for."""
        seconds = time.monotonic() - self._start
        if seconds < LEAST:
            return None
        own = _own_seconds() - self._own + sum(of_process(PROC / str(pid)).cpu for pid in processes)
        now = read_load()
        return busy_host((now.busy - self._load.busy - own) / seconds, len(affinity()))


def busy_host(others: float, processors: int) -> str | None:
    """See `Others.busy`. ``others``: how many processors they use, on average."""
    if others < MUCH * processors:
        return None
    return f"this host is busy: other programs use {min(others, processors):.1f} of {processors} processors"


def _own_seconds() -> float:
    return sum(os.times()[:4])
