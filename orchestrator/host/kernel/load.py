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
    stat = text_of(proc / "stat") or ""
    pressure = text_of(proc / "pressure/cpu") or ""
    backlogs = text_of(proc / "net/softnet_stat") or ""
    busy, idle = parse_stat(stat, affinity())
    waiting = parse_pressure(pressure)
    dropped = parse_backlogs(backlogs)
    return HostLoad(busy, idle, waiting, dropped)


def parse_stat(
    text: str,
    processors: Iterable[int],
    ticks: int | None = None,
) -> tuple[float, float]:
    """Busy and idle seconds of these processors together, from /proc/stat. ``ticks``: per second, default this
    host's."""
    per_second = ticks or os.sysconf("SC_CLK_TCK")
    labels = {f"cpu{number}" for number in processors}
    busy = 0.0
    idle = 0.0
    for line in text.splitlines():
        label, _, counters = line.partition(" ")
        if label not in labels:
            continue
        words = counters.split()[:_GUEST]
        columns = [int(word) / per_second for word in words]
        waited = sum(columns[place] for place in _IDLE)
        busy = busy + sum(columns) - waited
        idle += waited
    return busy, idle


def parse_pressure(text: str) -> float | None:
    """Seconds in which some task waited for a processor, from /proc/pressure/cpu; None without that file."""
    for line in text.splitlines():
        if not line.startswith("some "):
            continue
        for word in line.split():
            if word.startswith("total="):
                return int(word.removeprefix("total=")) / 1e6
    return None


def parse_backlogs(text: str) -> int:
    """Packets dropped by the processors' backlogs, from /proc/net/softnet_stat: one hexadecimal line per processor."""
    dropped = 0
    for line in text.splitlines():
        columns = line.split()
        dropped += int(columns[_DROPPED], 16)
    return dropped


class Others:
    """The work of other programs on the processors of this process since this object was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._load = read_load()
        self._own = _own_seconds()

    def busy(self, processes: Iterable[int] = ()) -> str | None:
        """A sentence if others use half of the processors or more; None if they do not, or if less than `LEAST` seconds
        have passed. ``processes``: those that this one has started since, and has not waited for."""
        seconds = time.monotonic() - self._start
        if seconds < LEAST:
            return None
        own = _own_seconds() - self._own
        started = [of_process(PROC / str(pid)) for pid in processes]
        own += sum(usage.cpu for usage in started)
        now = read_load()
        others = now.busy - self._load.busy - own
        return busy_host(others / seconds, len(affinity()))


def busy_host(others: float, processors: int) -> str | None:
    """See `Others.busy`. ``others``: how many processors they use, on average."""
    if others < MUCH * processors:
        return None
    used = min(others, processors)
    return f"this host is busy: other programs use {used:.1f} of {processors} processors"


def _own_seconds() -> float:
    times = os.times()
    return sum(times[:4])
