"""What a forked node may do: as much as a container without capabilities, and nothing else.

It runs as a user who owns nothing: with root's help as a user of its own, otherwise in a user namespace of its own, in
which it is the caller with none of the caller's rights over namespaces. It has no capability and cannot gain one, makes
only the system calls that `seccomp` lets through, sees only its `FileView`, and has few processes and files.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from node.process import namespaces
from node.process.seccomp import Filter
from node.process.view import SCRATCH, FileView

PROCESSES = 256  # and threads; a node has about ten
FILES = 65536
INSIDE = 65532  # as whom a node sees itself in a user namespace of its own

_COUNTED_SINCE = (5, 14)  # Linux since then counts processes by user namespace, too (user_namespaces(7))


@dataclass(frozen=True)
class Confinement:
    """One node's. ``checkpoints``: its folder on the host. ``user``: the ids of the user and of the group that it runs
    as, None without root. ``groups``: control groups of the host that it joins."""

    checkpoints: str
    user: tuple[int, int] | None = None
    groups: tuple[str, ...] = ()


def join(groups: Sequence[str]) -> None:
    """Put this process under the limits of control groups, with all processes that it will make."""
    for group in groups:
        Path(group, "cgroup.procs").write_text("0")


def confine(confinement: Confinement, view: FileView, calls: Filter | None) -> list[str]:
    """Give up every right that a node does not need, in namespaces of its own that this process has already; the user
    namespace alone is made here. What this kernel cannot take away, in words for the record.

    Clears the parent-death signal (prctl(2)). The process must have one thread.
    """
    myself = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the host's, in which it may write
    view.enter(confinement.checkpoints)
    os.environ["HOME"] = os.environ["TMPDIR"] = str(SCRATCH)
    if confinement.user is None:
        _enter_user_namespace(myself)
    os.close(myself)
    lacking = _limit(own_user=confinement.user is not None)
    namespaces.bound_capabilities()
    if confinement.user is not None:
        uid, gid = confinement.user
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    namespaces.drop_capabilities()
    problem = f"nobody wrote down those of {os.uname().machine}" if calls is None else calls.set()
    return lacking if problem is None else [*lacking, f"the system calls of nodes are not filtered: {problem}"]


def _enter_user_namespace(myself: int) -> None:
    """Be nobody in particular inside, and outside the user that this process is."""
    uid, gid = os.geteuid(), os.getegid()
    namespaces.unshare(namespaces.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{INSIDE} {uid} 1"), ("gid_map", f"{INSIDE} {gid} 1")):
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=myself)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _limit(own_user: bool) -> list[str]:
    """Limits on files and processes; a process that dies leaves no picture of its memory, in which its keys are."""
    for kind, most in ((resource.RLIMIT_NOFILE, FILES), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    if not own_user and release() < _COUNTED_SINCE:
        return ["the number of a node's processes is not limited: without root that takes Linux 5.14"]
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    return []


def release() -> tuple[int, int]:
    """The kernel's version, as far as it matters."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)))
