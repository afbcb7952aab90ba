"""The few Linux calls that put a process into namespaces of its own: unshare(2), setns(2), prctl(2), mount(2).

Python gained ``os.unshare`` and ``os.setns`` in 3.12; this module serves 3.11 too, through the C library.
"""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces, as unshare(2) does."""
    _check(_libc.unshare(flags), "unshare")


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose own parent ends (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL to this process when its parent ends; ``parent`` is that parent's process id.

    Called after every change of namespaces or credentials, since those clear the setting (prctl(2)). In a new PID
    namespace the parent is outside and getppid() is 0, so a parent that died in between shows as any other value.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() not in (parent, 0):
        os.kill(os.getpid(), signal.SIGKILL)


def name_process(name: str) -> None:
    """Show ``name`` (its first 15 bytes) as the process's command in ps and top."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def private_mounts() -> None:
    """Give the process's new mount namespace its own /proc, and let no later mount leak out."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate /")
    _check(_libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None), "mount /proc")
