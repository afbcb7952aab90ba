"""The processor time and the memory of all processes in a PID namespace, read from /proc (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from node.resources import VIRTUAL_PAUSE, Pace, proportional_bytes
from orchestrator.host.kernel.small_files import text_of
from orchestrator.host.kernel.virtual_time import in_virtual_time

_TICKS = os.sysconf("SC_CLK_TCK")
MEMORY_SHARE = 0.005
"""The share of a processor, at most, that reads the memory of all nodes of a host."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessUsage:
    """``cpu``: seconds, of living processes and of those that they have waited for. ``rss``: resident memory in bytes;
    pages that processes share are counted for each of them. ``pss``: proportional memory in bytes, in which a page that
    n processes share counts 1/n; None if it was not measured."""

    cpu: float = 0.0
    rss: int = 0
    pss: int | None = None

    def __add__(self, other: ProcessUsage) -> ProcessUsage:
        pss = None
        if self.pss is not None and other.pss is not None:
            pss = self.pss + other.pss
        return ProcessUsage(
            cpu=self.cpu + other.cpu,
            rss=self.rss + other.rss,
            pss=pss,
        )


class UsageReader:
    """Reads what PID namespaces use."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        least = VIRTUAL_PAUSE if in_virtual_time() else 0.0
        self._pace = Pace(MEMORY_SHARE, least=least)

    def read(self, members: Mapping[str, int]) -> dict[str, ProcessUsage]:
        """What the PID namespaces of these processes use. A process that has ended uses nothing. The proportional
        memory is only in some readings, since the kernel takes long for it."""
        processes = self._processes(members)
        usages = {}
        for name, folders in processes.items():
            parts = map(of_process, folders)
            usages[name] = sum(parts, ProcessUsage())

        def measure() -> dict[str, int | None]:
            return {name: _proportional(folders) for name, folders in processes.items()}

        proportional = self._pace.measured(measure)
        if proportional is None:
            return usages
        for name, usage in usages.items():
            usages[name] = replace(usage, pss=proportional[name])
        return usages

    def _processes(self, members: Mapping[str, int]) -> dict[str, list[Path]]:
        """The folders in /proc of all processes of each namespace."""
        names: dict[str, str] = {}
        for name, pid in members.items():
            space = _space(self._proc / str(pid))
            if space is not None:
                names[space] = name
        processes: dict[str, list[Path]] = {name: [] for name in members}
        if not names:
            return processes
        for folder in self._proc.glob("[0-9]*"):
            space = _space(folder)
            if space is not None and space in names:
                processes[names[space]].append(folder)
        return processes


def _proportional(processes: Iterable[Path]) -> int | None:
    """The proportional memory of all these processes in bytes. None if the kernel does not show that of each."""
    total = 0
    for process in processes:
        own = proportional_bytes(process)
        if own is None and of_process(process).rss:  # a process that has ended has none
            return None
        total += own or 0
    return total


def _space(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns" / "pid")
    except OSError:  # it has ended, or is another user's
        return None


def of_process(process: Path) -> ProcessUsage:
    """What the process with this folder of /proc uses; nothing if it has ended."""
    stat = text_of(process / "stat")
    if stat is None:
        return ProcessUsage()
    fields = stat.rpartition(")")[2].split()  # a process may name itself anything
    # utime and stime, cutime and cstime (of children that it has waited for): fields 14 to 17
    ticks = sum(map(int, fields[11:15]))
    pages = int(fields[21])
    return ProcessUsage(ticks / _TICKS, pages * _PAGE)
