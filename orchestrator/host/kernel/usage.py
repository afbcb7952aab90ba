"""The processor time and the memory of all processes in a PID namespace, read from /proc (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessUsage:
    """``cpu``: seconds, of living processes and of those that they have waited for. ``rss``: resident memory in bytes;
    pages that processes share are counted for each of them."""

    cpu: float = 0.0
    rss: int = 0

    def __add__(self, other: ProcessUsage) -> ProcessUsage:
        return ProcessUsage(self.cpu + other.cpu, self.rss + other.rss)


def usage(members: Mapping[str, int], proc: Path = Path("/proc")) -> dict[str, ProcessUsage]:
    """What the PID namespaces use of which these processes are members. A process that has ended uses nothing."""
    names = {space: name for name, pid in members.items() if (space := _space(proc / str(pid))) is not None}
    found = dict.fromkeys(members, ProcessUsage())
    if names:
        for folder in proc.glob("[0-9]*"):
            if (name := names.get(_space(folder) or "")) is not None:
                found[name] += of_process(folder)
    return found


def _space(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns" / "pid")
    except OSError:  # it has ended, or is another user's
        return None


def of_process(process: Path) -> ProcessUsage:
    """What the process uses that has this folder of /proc; nothing if it has ended."""
    if (stat := text_of(process / "stat")) is None:
        return ProcessUsage()
    fields = stat.rpartition(")")[2].split()  # a process may name itself anything
    own, waited_for = fields[11:13], fields[13:15]  # utime and stime, cutime and cstime: fields 14 to 17
    return ProcessUsage(sum(map(int, (*own, *waited_for))) / _TICKS, int(fields[21]) * _PAGE)
