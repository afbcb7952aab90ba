"""Memory kills of containers, from the counts of their control groups.

Podman sends no event when the kernel kills a container for its memory limit, and it removes the container's group soon
after. So the count is read as soon as the kernel reports that the container's first process has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from orchestrator.host.kernel.cgroups import memory_group, memory_kills


class _Watched(NamedTuple):
    node: str
    group: Path
    process: int  # a descriptor, readable once the process has ended (pidfd_open(2))


class MemoryWatch:
    """``report`` is called with the name of a node that the kernel has killed a process of. All calls are made in the
    thread of the event loop."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._watched: dict[str, _Watched] = {}  # by container

    def watch(self, container: str, node: str, pid: int) -> None:
        """Read the count when the process ends. Does nothing if the process is gone, or its group is not visible."""
        group = memory_group(pid, container)
        if group is None:
            return
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            self._watched[container] = _Watched(node, group, process)
            loop = asyncio.get_running_loop()
            loop.add_reader(process, self.look, container)

    def look(self, container: str) -> None:
        """Read the count of a container that has ended. Later calls do nothing."""
        watched = self._watched.pop(container, None)
        if watched is None:
            return
        self._release(watched)
        if memory_kills(watched.group):
            self._report(watched.node)

    def close(self) -> None:
        for watched in self._watched.values():
            self._release(watched)
        self._watched.clear()

    @staticmethod
    def _release(watched: _Watched) -> None:
        asyncio.get_running_loop().remove_reader(watched.process)
        os.close(watched.process)
