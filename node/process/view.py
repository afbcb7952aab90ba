"""What a node sees of the host's files: a tree of its own, in which nothing stands that it does not need.

The tree is made once for all nodes of a run, in the fork server's mount namespace, and is read only: the system's
programs and libraries, Python with all that the fork server has loaded, a few devices, and below `PLACE` what the nodes
are given. Each node then adds its own /proc, the folder of its checkpoints and a scratch folder in memory, makes the
tree its root and lets go of the host's. Other nodes, their keys, the run's record and home directories are not in it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.assignment import PLACE
from node.errors import ConfinementError
from node.process import namespaces

SCRATCH = PLACE / "scratch"
SCRATCH_OPTIONS = "size=256m,mode=1777"

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix")
SETTINGS = tuple(
    f"/etc/{name}" for name in ("alternatives", "group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
)
DEVICES = tuple(f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero"))
PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Of /sys a node sees no more: libraries ask which processors there are."""

MASKED = ("acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "sysrq-trigger", "timer_list")
"""Of /proc, what container engines hide as well: it tells of the host, not of the node."""

_TEMPORARY = ("tmp", "var/tmp", "dev/shm")
_NOTHING = PLACE / "nothing"


@dataclass(frozen=True)
class FileView:
    """``tree``: an empty folder, where the tree is made. ``given``: paths of the host by their names below `PLACE`.
    ``hidden``: a folder that no node may see whatever it lies in. ``strangers``: nodes run as users who own nothing."""

    tree: str
    given: Mapping[str, str] = field(default_factory=dict)
    hidden: str = ""
    strangers: bool = False

    def make(self) -> None:
        """Make the tree, in a mount namespace of this process's own. OSError if the kernel refuses, ConfinementError if
        nodes could not read Python."""
        shown = [*SYSTEM, *SETTINGS, *DEVICES, *PROCESSORS, *python(sys.path, sys.modules)]
        if self.strangers:
            refuse_unreadable(sys.modules)
        namespaces.private_mounts()
        tree, mask = Path(self.tree), os.umask(0o022)
        try:
            namespaces.mount("tmpfs", tree, namespaces.MS_NOSUID | namespaces.MS_NODEV, "mode=755")
            for target, source in bindings(shown).items():
                _show(source, tree, target)
            for given, source in self.given.items():
                _show(source, tree, PLACE / given)
            for name in ("/proc", _NOTHING, SCRATCH, PLACE / "checkpoints"):
                _below(tree, name).mkdir(parents=True, exist_ok=True)
            for name in _TEMPORARY:
                if not (tree / name).exists():
                    (tree / name).parent.mkdir(exist_ok=True)
                    (tree / name).symlink_to(SCRATCH)
            if self.hidden and (cover := _below(tree, self.hidden)).exists():
                namespaces.mount("tmpfs", cover, namespaces.MS_NOSUID | namespaces.MS_NODEV, "mode=755")
            namespaces.restrict(tree, namespaces.MS_RDONLY | namespaces.MS_NOSUID)
        finally:
            os.umask(mask)

    def enter(self, checkpoints: str) -> None:
        """Make the tree this process's root, in a mount namespace and a PID namespace of its own. ``checkpoints``: a
        folder of the host, the only one that it can write to."""
        tree = Path(self.tree)
        quiet = namespaces.MS_NOSUID | namespaces.MS_NODEV
        namespaces.mount("proc", tree / "proc", quiet | namespaces.MS_NOEXEC | namespaces.MS_RDONLY)
        for name in MASKED:
            masked = tree / "proc" / name
            if masked.is_dir():
                namespaces.bind(_below(tree, _NOTHING), masked)
            elif masked.exists():
                namespaces.bind(tree / "dev" / "null", masked)
        namespaces.mount("tmpfs", _below(tree, SCRATCH), quiet, SCRATCH_OPTIONS)
        own = _below(tree, PLACE / "checkpoints")
        namespaces.bind(Path(checkpoints), own)
        namespaces.restrict(own, quiet)
        namespaces.change_root(tree)


def python(path: Iterable[str], modules: Mapping[str, Any]) -> set[str]:
    """Where Python and its packages are: the installation, and every package that is loaded from elsewhere.

    Not the whole ``path``: the folder that Python was started in is on it, and may be a home directory.
    """
    places = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    places |= {entry for entry in path if Path(entry).name in ("site-packages", "dist-packages")}
    for name, module in modules.items():
        if "." not in name:
            folders = getattr(module, "__path__", None)
            places |= {str(each) for each in folders or [getattr(module, "__file__", None)] if each is not None}
    return places


def bindings(shown: Iterable[str]) -> dict[str, str]:
    """Where to show what, as {place: real path}: each at the path by which it is known, and at its real one.

    What does not exist is left out, and so is what lies below something that is shown.
    """
    there = {path: os.path.realpath(path) for path in shown if os.path.isabs(path) and os.path.exists(path)}
    found: dict[str, str] = {}
    for place, source in sorted((there | {real: real for real in there.values()}).items()):
        if place != "/" and not any(str(above) in found for above in Path(place).parents):
            found[place] = source
    return found


def refuse_unreadable(modules: Mapping[str, Any]) -> None:
    """ConfinementError if a loaded module's file can be read by its owner only."""
    for module in list(modules.values()):
        file = getattr(module, "__file__", None)
        if file and os.path.exists(file) and not os.stat(file).st_mode & stat.S_IROTH:
            raise ConfinementError(
                f"nodes run as users of their own, who may not read {file}: `chmod --recursive a+rX` the folder that it"
                " was installed in"
            )


def _show(source: str, tree: Path, target: str | Path) -> None:
    place = _below(tree, target)
    if os.path.isdir(source):
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    namespaces.bind(Path(source), place)


def _below(tree: Path, path: str | Path) -> Path:
    """Where an absolute path lies in the tree."""
    return tree / str(path).lstrip("/")
