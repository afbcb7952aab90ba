"""The rights of a forked node: those of a container without capabilities.

A node runs as a user who owns nothing. With root it gets its own user. Without root it gets its own user namespace, in
which it is the caller without the caller's rights over namespaces. It has no capability and cannot gain one. It can
make only the system calls that `seccomp` allows, sees only its `FileView`, and has limited processes and files.
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

PROCESSES = 256  # processes and threads; a node has about ten
FILES = 65536
INSIDE = 65532  # the id of a node's user inside its own user namespace

_COUNTED_SINCE = (5, 14)  # Linux that counts processes by user namespace, too (user_namespaces(7))


@dataclass(frozen=True)
class Confinement:
    """The confinement of one node. ``checkpoints``: its checkpoint folder on the host. ``user``: the ids of its user
    and group, None without root. ``groups``: control groups of the host that it joins."""

    checkpoints: str
    user: tuple[int, int] | None = None
    groups: tuple[str, ...] = ()


def join(groups: Sequence[str]) -> None:
    """Put this process and its future children under the limits of control groups."""
    for group in groups:
        Path(group, "cgroup.procs").write_text("0")


def confine(confinement: Confinement, view: FileView, calls: Filter | None) -> list[str]:
    """Drop every right that a node does not need. Return the restrictions that this kernel lacks, as text for the
    record.

    The process must have its own namespaces already, except the user namespace, and must have one thread. Clears the
    parent-death signal (prctl(2)).
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    myself = os.open("/proc/self", flags)  # the host's /proc, which is writable
    view.enter(confinement.checkpoints)
    os.environ["HOME"] = str(SCRATCH)
    os.environ["TMPDIR"] = str(SCRATCH)
    if confinement.user is None:
        namespaces.enter_user_namespace(myself, INSIDE, INSIDE)
    os.close(myself)
    has_own_user = confinement.user is not None
    lacking = _limit(has_own_user)
    namespaces.bound_capabilities()
    if confinement.user is not None:
        uid, gid = confinement.user
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    namespaces.drop_capabilities()
    if calls is None:
        problem: str | None = f"their numbers are not known for {os.uname().machine}"
    else:
        problem = calls.set()
    if problem is not None:
        lacking.append(f"the system calls of nodes are not filtered: {problem}")
    return lacking


def _limit(own_user: bool) -> list[str]:
    """Limit files and processes, and disable core dumps, which would hold the node's keys. Return missing limits."""
    limits = ((resource.RLIMIT_NOFILE, FILES), (resource.RLIMIT_CORE, 0))
    for kind, most in limits:
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, most))
    if not own_user and release() < _COUNTED_SINCE:
        return ["the number of a node's processes is not limited: without root that takes Linux 5.14"]
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    return []


def release() -> tuple[int, int]:
    """The kernel's major and minor version."""
    version = os.uname().release.split(".")
    major = version[0]
    minor = "".join(filter(str.isdigit, version[1]))
    return int(major), int(minor)
