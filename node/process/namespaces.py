"""The Linux calls for a process's namespaces, memory, mounts and rights, through the C library: unshare(2),
setns(2), madvise(2), mount(2), mount_setattr(2), pivot_root(2), prctl(2), capset(2).

Python gained ``os.unshare`` and ``os.setns`` in 3.12; this module serves 3.11 too. Every function raises OSError with
the name of the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import struct
from collections.abc import Collection
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MOUNT_OPTIONS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": 0x400,
    "nodiratime": 0x800,
    "relatime": 0x200000,
}
_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_SETATTR = 442  # the same number on every processor

_HUGE = 2 << 20  # bytes
_MADV_COLLAPSE = 25

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECBIT_NOROOT = 1
_SECBIT_NOROOT_LOCKED = 2
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces, as unshare(2) does."""
    _check(_libc.unshare(flags), "unshare")


def enter(namespace: int, kind: int) -> None:
    """Move this process into the namespace behind a descriptor, as setns(2) does. ``kind``: one of CLONE_NEW*."""
    result = _libc.setns(namespace, kind)
    _check(result, "setns")


def die_with_parent(parent: int) -> None:
    """Make the kernel send SIGKILL to this process when its parent ends. ``parent`` is the parent's process id.

    Call it after every change of namespaces or credentials, since those clear the setting (prctl(2)). In a new PID
    namespace the parent is outside and getppid() is 0. Any other value means that the parent died in between.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "prctl")
    if os.getppid() not in (parent, 0):
        _kill_myself()


def begin_pid_namespace() -> None:
    """Continue in a child, the first process of a new PID namespace: when it ends, the kernel ends all others in it.
    This process waits for the end of the child, and ends with the same status."""
    unshare(CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        die_with_parent(0)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        _kill_myself()
    if code < 0:
        code = 128 - code
    os._exit(code)


def _kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def name_process(name: str) -> None:
    """Show the first 15 bytes of ``name`` as the process's command in ps and top."""
    shown = name.encode()[:15]
    _libc.prctl(_PR_SET_NAME, shown, 0, 0, 0)


def use_huge_pages() -> None:
    """Move the memory that this process has allocated so far into huge pages, where the kernel can (MADV_COLLAPSE of
    madvise(2), Linux 6.1). A fork then copies one entry of the page table instead of 512. Pages that the fork
    changes are still copied as small pages."""
    maps = Path("/proc/self/maps").read_text()
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)  # proc_pid_maps(5)
        span = fields[0]
        rights = fields[1]
        inode = fields[4]
        name = fields[5:]
        anonymous = inode == "0" and name in ([], ["[heap]"])
        if not anonymous or "w" not in rights:
            continue
        first, last = span.split("-")
        # Rounded up and down to whole huge pages.
        start = -(-int(first, 16) // _HUGE) * _HUGE
        end = int(last, 16) // _HUGE * _HUGE
        if start < end:
            size = ctypes.c_size_t(end - start)
            _libc.madvise(ctypes.c_void_p(start), size, _MADV_COLLAPSE)


# Mounts


def private_mounts() -> None:
    """Move this process into a new mount namespace. No mounts propagate into it or out of it."""
    unshare(CLONE_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, "")


def mount(
    kind: str,
    target: Path,
    flags: int = 0,
    options: str = "",
) -> None:
    """Mount a new file system of this kind, such as ``tmpfs``."""
    _mount("edgebed", str(target), kind, flags, options)


def bind(source: Path, target: Path) -> None:
    """Bind ``source``, with all mounts below it, to ``target``."""
    _mount(str(source), str(target), None, _MS_BIND | _MS_REC, "")


def restrict(target: Path, flags: int) -> None:
    """Set the flags MS_RDONLY, MS_NOSUID, MS_NODEV or MS_NOEXEC on ``target`` and all mounts below it."""
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)  # these flags have the same values in both calls
    size = ctypes.c_size_t(len(attributes))
    result = _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        attributes,
        size,
    )
    if result == 0:
        return
    if ctypes.get_errno() != errno.ENOSYS:
        _check(-1, f"mount_setattr {target}")
    remount(target, flags)


def remount(target: Path, flags: int) -> None:
    """Do the work of `restrict` on kernels before Linux 5.12: remount one mount after the other.

    Each mount keeps its flags, which cannot be cleared in a user namespace (mount_namespaces(7)).
    """
    mountinfo = Path("/proc/self/mountinfo").read_text()
    for point, present in mounts_below(mountinfo, str(target.absolute())):
        remount_one(point, present | flags)


def remount_one(target: str, flags: int) -> None:
    """Give one mount these flags, and not those below it."""
    also = _MS_REMOUNT | _MS_BIND
    _mount(None, target, None, also | flags, "")


def mounts_below(mountinfo: str, target: str) -> list[tuple[str, int]]:
    """The mount points at or below ``target``, and the flags of each mount (mountinfo in proc(5))."""
    mounts = []
    below = target.rstrip("/") + "/"
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", _character, fields[4])
        if point != target and not point.startswith(below):
            continue
        flags = 0
        for option in fields[5].split(","):
            flags |= _MOUNT_OPTIONS.get(option, 0)
        mounts.append((point, flags))
    return mounts


def _character(code: re.Match[str]) -> str:
    """The character of an octal code."""
    return chr(int(code[1], 8))


def change_root(target: Path) -> None:
    """Make the mount ``target`` the root of this process's mount namespace, and detach the old root."""
    os.chdir(target)
    result = _libc.pivot_root(b".", b".")
    _check(result, "pivot_root")  # the old root now lies over the new one, see pivot_root(2)
    result = _libc.umount2(b".", _MNT_DETACH)
    _check(result, "umount /")
    os.chdir("/")


def _mount(
    source: str | None,
    target: str,
    kind: str | None,
    flags: int,
    options: str,
) -> None:
    if kind is None:
        what = f"mount {target}"
    else:
        what = f"mount {kind} at {target}"
    result = _libc.mount(
        _encoded(source),
        _encoded(target),
        _encoded(kind),
        ctypes.c_ulong(flags),
        os.fsencode(options),
    )
    _check(result, what)


def _encoded(name: str | None) -> bytes | None:
    if name is None:
        return None
    return os.fsencode(name)


# Rights


def bound_capabilities(kept: Collection[int] = ()) -> None:
    """Drop every capability that a program executed by this process could gain, except those ``kept``. If none is
    kept, then user 0 gains none either."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        if capability not in kept:
            _prctl(_PR_CAPBSET_DROP, capability, f"prctl: dropping capability {capability}")
    if not kept:
        _prctl(_PR_SET_SECUREBITS, _SECBIT_NOROOT | _SECBIT_NOROOT_LOCKED, "prctl: securebits")


def drop_capabilities() -> None:
    """Drop every capability of this process, and every way to gain one."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, "prctl: ambient capabilities")
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    none = bytes(24)
    result = _libc.capset(header, none)
    _check(result, "capset")
    forbid_new_rights()


def forbid_new_rights() -> None:
    """Let no program that this process executes gain rights by the bits of its file (PR_SET_NO_NEW_PRIVS, prctl(2))."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl: no_new_privs")


def _prctl(option: int, argument: int, what: str) -> None:
    result = _libc.prctl(option, argument, 0, 0, 0)
    _check(result, what)


def enter_user_namespace(myself: int, user: int, group: int) -> None:
    """Enter a new user namespace, in which this process's user has the ids ``user`` and ``group``. ``myself``: a
    descriptor of /proc/self that can be written to."""
    outer_user = os.geteuid()
    outer_group = os.getegid()
    unshare(CLONE_NEWUSER)
    _write(myself, "setgroups", "deny")
    _write(myself, "uid_map", f"{user} {outer_user} 1")
    _write(myself, "gid_map", f"{group} {outer_group} 1")


def _write(folder: int, name: str, text: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
