"""A node's view of the host's files: a private tree that holds only the files it needs.

The tree is made once for all nodes of a run, in the fork server's mount namespace. It is read-only and holds the
system's programs and libraries, Python with all packages that the fork server has loaded, a few devices, and below
`PLACE` the nodes' files. Each node then adds its own /proc, its checkpoint folder and a scratch folder in memory, makes
the tree its root and detaches the host's. Other nodes, their keys, the run's record and home directories are not in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.assignment import PLACE
from node.errors import ConfinementError
from node.process import namespaces

SCRATCH = PLACE / "scratch"
SCRATCH_OPTIONS = "size=256m,mode=1777"

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix")
_SETTINGS = ("alternatives", "group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
SETTINGS = tuple(f"/etc/{name}" for name in _SETTINGS)
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""The only part of /sys in the tree: libraries read the list of processors."""

MASKED = (
    "acpi",
    "asound",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
)
"""Entries of /proc that container engines hide, too: they describe the host, not the node."""

_TEMPORARY = ("tmp", "var/tmp", "dev/shm")
_NOTHING = PLACE / "nothing"


@dataclass(frozen=True)
class FileView:
    """The files that nodes see. ``tree``: an empty folder for the tree. ``given``: paths of the host by their names
    below `PLACE`. ``hidden``: a folder that no node may see, even inside a shown folder. ``strangers``: nodes run as
    users who own nothing. ``devices``: device files of accelerators, in addition to `DEVICES`."""

    tree: str
    given: Mapping[str, str] = field(default_factory=dict)
    hidden: str = ""
    strangers: bool = False
    devices: Sequence[str] = ()

    def make(self) -> None:
        """Make the tree in a new mount namespace of this process. OSError if the kernel refuses, ConfinementError if
        nodes could not read Python."""
        shown = [
            *SYSTEM,
            *SETTINGS,
            *DEVICES,
            *self.devices,
            *PROCESSORS,
            *python(sys.path, sys.modules),
        ]
        if self.strangers:
            refuse_unreadable(sys.modules)
        namespaces.private_mounts()
        tree = Path(self.tree)
        mask = os.umask(0o022)
        try:
            quiet = namespaces.MS_NOSUID | namespaces.MS_NODEV
            namespaces.mount("tmpfs", tree, quiet, "mode=755")
            for target, source in bindings(shown).items():
                _show(source, tree, target)
            for given, source in self.given.items():
                _show(source, tree, PLACE / given)
            for name in ("/proc", _NOTHING, SCRATCH, PLACE / "checkpoints"):
                folder = _below(tree, name)
                folder.mkdir(parents=True, exist_ok=True)
            for name in _TEMPORARY:
                link = tree / name
                if not link.exists():
                    link.parent.mkdir(exist_ok=True)
                    link.symlink_to(SCRATCH)
            if self.hidden:
                cover = _below(tree, self.hidden)
                if cover.exists():
                    namespaces.mount("tmpfs", cover, quiet, "mode=755")
            namespaces.restrict(tree, namespaces.MS_RDONLY | namespaces.MS_NOSUID)
        finally:
            os.umask(mask)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Let this process see files as nodes do, at the same paths. It stays in its mount namespace, and returns."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        root = os.open("/", flags)
        os.chroot(self.tree)
        try:
            yield
        finally:
            os.fchdir(root)
            os.chroot(".")
            os.close(root)

    def enter(self, checkpoints: str) -> None:
        """Make the tree this process's root. The process must have its own mount and PID namespaces.

        ``checkpoints``: a folder of the host, the only one of the host that the process can write to.
        """
        tree = Path(self.tree)
        quiet = namespaces.MS_NOSUID | namespaces.MS_NODEV
        _mount_proc(tree / "proc", quiet | namespaces.MS_NOEXEC)
        nothing = _below(tree, _NOTHING)
        for name in MASKED:
            masked = tree / "proc" / name
            if masked.is_dir():
                namespaces.bind(nothing, masked)
            elif masked.exists():
                namespaces.bind(tree / "dev" / "null", masked)
        scratch = _below(tree, SCRATCH)
        namespaces.mount("tmpfs", scratch, quiet, SCRATCH_OPTIONS)
        own = _below(tree, PLACE / "checkpoints")
        namespaces.bind(Path(checkpoints), own)
        namespaces.restrict(own, quiet)
        namespaces.change_root(tree)


def _mount_proc(place: Path, flags: int) -> None:
    """Mount a read-only /proc in which this process can name its own threads: CUDA does so, and fails if it cannot
    (error 304). Where a writable /proc cannot be mounted, all of it is read-only."""
    read_only = flags | namespaces.MS_RDONLY
    try:
        namespaces.mount("proc", place, flags)
    except PermissionError:  # the host's own is read-only
        namespaces.mount("proc", place, read_only)
        return
    process = str(os.getpid())
    threads = place / process / "task"
    namespaces.bind(threads, threads)
    namespaces.remount_one(str(place), read_only)


def python(path: Iterable[str], modules: Mapping[str, Any]) -> set[str]:
    """The folders of Python and its packages: the installation, and every package that is loaded from elsewhere.

    The whole ``path`` would be too much: it has the folder where Python was started, which may be a home directory.
    """
    places = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    for entry in path:
        if Path(entry).name in ("site-packages", "dist-packages"):
            places.add(entry)
    for name, module in modules.items():
        if "." in name:
            continue
        folders = getattr(module, "__path__", None)
        if folders:
            places.update(str(folder) for folder in folders if folder is not None)
            continue
        file = getattr(module, "__file__", None)
        if file is not None:
            places.add(str(file))
    return places


def bindings(shown: Iterable[str]) -> dict[str, str]:
    """The bind mounts to make, as {place: real path}. Each path is shown at its own name and at its real path.

    Paths that do not exist are left out, and so are paths below another shown path.
    """
    wanted: dict[str, str] = {}
    for path in shown:
        if os.path.isabs(path) and os.path.exists(path):
            wanted[path] = os.path.realpath(path)
    for real in list(wanted.values()):
        wanted[real] = real
    binds: dict[str, str] = {}
    for place, source in sorted(wanted.items()):
        parents = map(str, Path(place).parents)
        covered = any(parent in binds for parent in parents)
        if place != "/" and not covered:
            binds[place] = source
    return binds


def refuse_unreadable(modules: Mapping[str, Any]) -> None:
    """Raise ConfinementError if other users cannot read the file of a loaded module."""
    for module in list(modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not os.path.exists(file):
            continue
        readable = os.stat(file).st_mode & stat.S_IROTH
        if not readable:
            raise ConfinementError(
                f"nodes run as users of their own, who may not read {file}: `chmod --recursive a+rX` the folder that it"
                " was installed in"
            )


def _show(source: str, tree: Path, target: str | Path) -> None:
    place = _below(tree, target)
    if os.path.isdir(source):
        place.mkdir(parents=True, exist_ok=True)
    else:
        folder = place.parent
        folder.mkdir(parents=True, exist_ok=True)
        place.touch()
    namespaces.bind(Path(source), place)


def _below(tree: Path, path: str | Path) -> Path:
    """The place of an absolute path in the tree."""
    return tree / str(path).lstrip("/")
