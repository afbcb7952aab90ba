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
        controllers = tuple(name for name in ("cpu", "memory") if name in offered)
        if controllers and os.access(root, os.W_OK):
            return [Hierarchy(root, controllers, 2)]
        return []
    return [
        Hierarchy(root / name, (name,), 1)
        for name in ("cpu", "memory")
        if (root / name / "cgroup.procs").exists() and os.access(root / name, os.W_OK)
    ]


def limits(hierarchy: Hierarchy, cores: float | None, memory: int | None) -> dict[str, str]:
    """The files to write, in this order, and their contents, to limit a node to ``cores`` and ``memory`` bytes."""
    files: dict[str, str] = {}
    if "cpu" in hierarchy.controllers and cores is not None:
        quota = str(round(cores * _PERIOD))
        if hierarchy.version == 2:
            files["cpu.max"] = f"{quota} {_PERIOD}"
        else:
            files |= {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": quota}
    if "memory" in hierarchy.controllers and memory is not None:
        limit = str(memory)
        if hierarchy.version == 2:
            files |= {"memory.max": limit, "memory.swap.max": "0"}
        else:
            files |= {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}  # memory and swap together
    return files


def may_swap(groups: list[Path], swaps: Path = SWAPS) -> bool:
    """Whether nodes in these groups can exceed their memory: the host has swap, and the kernel cannot limit it."""
    swapping = len(swaps.read_text().splitlines()) > 1  # the first line has the headings
    return swapping and not any((group / name).exists() for group in groups for name in SWAP)


class NodeGroups:
    """The groups of one run."""

    def __init__(self, run: str, hierarchies: list[Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self._name = f"{PREFIX}{run}"

    def create(self) -> list[Path]:
        """Make the run's groups and return their paths, for their removal."""
        made = []
        for hierarchy in self._hierarchies:
            group = hierarchy.path / self._name
            group.mkdir(exist_ok=True)
            if hierarchy.version == 2:
                (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in hierarchy.controllers))
            made.append(group)
        return made

    def make(self, node: str, cores: float | None, memory: int | None) -> list[Path]:
        """Make groups with the limits of a node, for its process to join. None without a limit, because joining a group
        is slow."""
        made = []
        for hierarchy in self._hierarchies:
            files = limits(hierarchy, cores, memory)
            if not files:
                continue
            group = hierarchy.path / self._name / node
            group.mkdir(exist_ok=True)
            for name, value in files.items():
                if name not in SWAP or (group / name).exists():
                    (group / name).write_text(value)
            made.append(group)
        return made

    def killed(self, node: str) -> int:
        """How often the kernel has killed a process of the node for its memory limit; 0 if the kernel does not tell."""
        for hierarchy in self._hierarchies:
            if "memory" in hierarchy.controllers:
                return memory_kills(hierarchy.path / self._name / node)
        return 0


def memory_kills(group: Path) -> int:
    """How often the kernel has killed a process of a group for its memory limit; 0 if the kernel does not tell, or the
    group is gone. Version 2 also tells of kills because the host had no memory left: then the limit was never hit
    (oom 0)."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            text = (group / name).read_text()
            counts = {key: int(count) for key, count in map(str.split, text.splitlines())}
            if counts.get("oom", 1):
                return counts.get("oom_kill", 0)
            return 0
    return 0


def memory_group(pid: int, container: str, proc: Path = PROC, root: Path = ROOT) -> Path | None:
    """The group with the memory limit of a container, whose id is in the group's name; ``pid``: any of its processes.
    None if there is none to be seen."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    version_1 = next((path for names, path in groups.items() if "memory" in names.split(",")), None)
    hierarchy = root if version_1 is None else root / "memory"
    parts = (version_1 or groups.get("", "")).strip("/").split("/")
    # Processes may be in a group below the one with the limit.
    named = next((place for place, part in enumerate(parts) if container in part), None)
    if named is None:
        return None
    return hierarchy.joinpath(*parts[: named + 1])


def has_controller(name: str, root: Path = ROOT) -> bool:
    """Whether this host's kernel can limit groups by a controller, such as "pids"."""
    if (root / name).is_dir():
        return True
    with contextlib.suppress(OSError):
        return name in (root / "cgroup.controllers").read_text().split()
    return False


def left_behind(run: str | None = None) -> list[Path]:
    """The groups of one run, or of every run, that exist now."""
    pattern = f"{PREFIX}{run if run is not None else '*'}"
    return sorted(path for hierarchy in writable_hierarchies() for path in hierarchy.path.glob(pattern))
