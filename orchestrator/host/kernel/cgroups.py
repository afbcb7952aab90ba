"""CPU and memory limits for nodes by control groups, if this user may write them.

A run has one group, `edgebed-<run>`, with one group below it for each node. The groups lie under cgroup v2 (a delegated
or root hierarchy) or under the v1 controllers cpu and memory. If neither is writable, the limits are not applied, and
the run's record says so. The stretching of `compute` to the hardware's speed does not depend on them. A node gets no
swap beyond its memory, if the kernel counts swap for each group.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
PREFIX = "edgebed-"
CONTROLLERS = ("cpu", "memory")
SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")  # files that not every kernel has
SWAPS = Path("/proc/swaps")
UNLIMITED = "{} limits of the hardware are not enforced: {}; computing is still stretched to the hardware's speed"
CAN_SWAP = "a node may hold more than its hardware's memory by swapping: swap cannot be limited here"
_PERIOD = 100_000  # microseconds; CFS bandwidth control's default period


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy in which groups can be made. ``controllers`` are cpu, memory or both."""

    path: Path
    controllers: tuple[str, ...]
    version: int


def writable_hierarchies(root: Path = ROOT) -> list[Hierarchy]:
    """The hierarchies in which this process may make groups: one for v2, one per controller for v1, else none."""
    unified = root / "cgroup.subtree_control"
    if unified.exists():
        offered = unified.read_text().split()
        controllers = tuple(name for name in CONTROLLERS if name in offered)
        if controllers and os.access(root, os.W_OK):
            return [Hierarchy(root, controllers, 2)]
        return []
    hierarchies = []
    for name in CONTROLLERS:
        path = root / name
        mounted = (path / "cgroup.procs").exists()
        if mounted and os.access(path, os.W_OK):
            hierarchies.append(Hierarchy(path, (name,), 1))
    return hierarchies


def limits(
    hierarchy: Hierarchy,
    cores: float | None,
    memory: int | None,
) -> dict[str, str]:
    """The files to write, in this order, and their contents, to limit a node to ``cores`` and ``memory`` bytes."""
    files: dict[str, str] = {}
    if "cpu" in hierarchy.controllers and cores is not None:
        quota = str(round(cores * _PERIOD))
        if hierarchy.version == 2:
            files["cpu.max"] = f"{quota} {_PERIOD}"
        else:
            files["cpu.cfs_period_us"] = str(_PERIOD)
            files["cpu.cfs_quota_us"] = quota
    if "memory" in hierarchy.controllers and memory is not None:
        limit = str(memory)
        if hierarchy.version == 2:
            files["memory.max"] = limit
            files["memory.swap.max"] = "0"
        else:
            files["memory.limit_in_bytes"] = limit
            files["memory.memsw.limit_in_bytes"] = limit  # memory and swap together
    return files


def may_swap(groups: list[Path], swaps: Path = SWAPS) -> bool:
    """Whether nodes in these groups can exceed their memory: the host has swap, and the kernel cannot limit it."""
    try:
        lines = swaps.read_text().splitlines()
    except FileNotFoundError:  # the kernel has no swap
        return False
    swapping = len(lines) > 1  # the first line has the headings
    if not swapping:
        return False
    for group in groups:
        for name in SWAP:
            if (group / name).exists():
                return False
    return True


class NodeGroups:
    """The groups of one run."""

    def __init__(self, run: str, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._name = f"{PREFIX}{run}"

    def create(self) -> list[Path]:
        """Make the run's groups and return their paths, for their removal."""
        groups = []
        for hierarchy in self._hierarchies:
            group = hierarchy.path / self._name
            group.mkdir(exist_ok=True)
            if hierarchy.version == 2:
                enabled = " ".join(f"+{name}" for name in hierarchy.controllers)
                (group / "cgroup.subtree_control").write_text(enabled)
            groups.append(group)
        return groups

    def make(
        self,
        node: str,
        cores: float | None,
        memory: int | None,
    ) -> list[Path]:
        """Make groups with the limits of a node, for its process to join. None without a limit, because joining a group
        is slow."""
        groups = []
        for hierarchy in self._hierarchies:
            files = limits(hierarchy, cores, memory)
            if not files:
                continue
            group = hierarchy.path / self._name / node
            group.mkdir(exist_ok=True)
            for name, value in files.items():
                file = group / name
                if name not in SWAP or file.exists():
                    file.write_text(value)
            groups.append(group)
        return groups

    def killed(self, node: str) -> int:
        """How often the kernel has killed a process of the node for its memory limit; 0 if the kernel does not show
        it."""
        for hierarchy in self._hierarchies:
            if "memory" in hierarchy.controllers:
                group = hierarchy.path / self._name / node
                return memory_kills(group)
        return 0


def memory_kills(group: Path) -> int:
    """How often the kernel has killed a process of a group for its memory limit; 0 if the kernel does not show it, or
    the group is gone. Version 2 also counts kills because the host had no memory left: then the limit was never hit
    (oom 0)."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            text = (group / name).read_text()
            counts = {}
            for line in text.splitlines():
                key, count = line.split()
                counts[key] = int(count)
            if counts.get("oom", 1):
                return counts.get("oom_kill", 0)
            return 0
    return 0


def memory_group(
    pid: int,
    container: str,
    proc: Path = PROC,
    root: Path = ROOT,
) -> Path | None:
    """The group with the memory limit of a container, found by the container's id in the group's name; ``pid``: any of
    its processes. None if no group is visible."""
    try:
        text = (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return None
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    hierarchy = root
    path = paths.get("", "")
    for controllers, path_of_version_1 in paths.items():
        if "memory" in controllers.split(","):
            hierarchy = root / "memory"
            path = path_of_version_1 or path
            break
    parts = path.strip("/").split("/")
    # Processes may be in a group below the one with the limit.
    for place, part in enumerate(parts):
        if container in part:
            return hierarchy.joinpath(*parts[: place + 1])
    return None


def has_controller(name: str, root: Path = ROOT) -> bool:
    """Whether this host's kernel can limit groups by a controller, such as "pids"."""
    if (root / name).is_dir():
        return True
    with contextlib.suppress(OSError):
        controllers = (root / "cgroup.controllers").read_text()
        return name in controllers.split()
    return False


def left_behind(run: str | None = None) -> list[Path]:
    """The groups of one run, or of every run, that exist now."""
    name = run if run is not None else "*"
    groups: list[Path] = []
    for hierarchy in writable_hierarchies():
        groups += hierarchy.path.glob(f"{PREFIX}{name}")
    return sorted(groups)
