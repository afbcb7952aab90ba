"""Resource usage of processes, read from /proc (proc(5))."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

VIRTUAL_PAUSE = 10.0
"""Virtual seconds between two measurements of memory where computing takes no time."""

OF_JOB = "SLURM_CPUS_ON_NODE"
OF_POD = "EDGEBED_PROCESSORS"
"""The variables with the number of a job's processors on its node (sbatch(1)), and of a pod's."""


def affinity() -> set[int]:
    """The numbers of the processors on which the kernel lets this process run."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    count = os.cpu_count() or 1
    return set(range(count))


def processors() -> int:
    """The number of processors that this process may use: those of its affinity, or those of its job or its pod if
    they are fewer. A batch system does not always set the affinity."""
    fewest = min(len(affinity()), sys.maxsize)
    for variable in (OF_JOB, OF_POD):
        number = os.environ.get(variable, "")
        if number.isdecimal():
            fewest = min(fewest, int(number))
    return fewest


def resident_bytes() -> int:
    """Resident set size in bytes, with pages shared with other processes. 0 if there is no /proc."""
    try:
        fields = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0
    pages = int(fields[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Proportional set size in bytes of the process with this folder of /proc: a page that n processes share counts
    1/n. None if the kernel does not show it, or the process has ended or belongs to another user.

    Takes milliseconds for a large process.
    """
    try:
        text = (process / "smaps_rollup").read_text()
    except OSError:
        return None
    return _bytes_of("Pss:", text)


class Pace:
    """When to repeat a measurement that takes long: so rarely that it takes at most this ``share`` of the time.

    The kernel walks all pages of a process for its proportional set size, which takes 10 ms for one with PyTorch.
    ``least``: the seconds between two measurements at least, for a clock that does not see how long they take.
    """

    def __init__(
        self,
        share: float = 0.001,
        clock: Callable[[], float] = time.monotonic,
        least: float = 0.0,
    ) -> None:
        self._share = share
        self._least = least
        self._clock = clock
        self._next = clock()

    def measured(self, measure: Callable[[], T]) -> T | None:
        """What ``measure`` returns, or None if it is too early to measure again."""
        start = self._clock()
        if start < self._next:
            return None
        value = measure()
        end = self._clock()
        took = end - start
        self._next = end + max(self._least, took / self._share)
        return value


def available_bytes() -> int:
    """The memory that a program can still get without swapping, in bytes (MemAvailable of proc_meminfo(5)). The largest
    integer if the kernel does not report it."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return sys.maxsize
    size = _bytes_of("MemAvailable:", text)
    if size is None:
        return sys.maxsize
    return size


def _bytes_of(label: str, text: str) -> int | None:
    """The bytes in the line with this label, which gives them in KiB; None if there is none."""
    for line in text.splitlines():
        if line.startswith(label):
            return int(line.split()[1]) * 1024
    return None
