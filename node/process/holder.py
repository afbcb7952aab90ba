"""The holder of a node that runs programs: the first process in the node's namespaces, and the parent of its programs.

A program sees the host's files and runs as the user who started the run, in the node's network. It has the rights of a
process in an ordinary container: it can change neither its links nor the host's network. The names of all nodes
resolve, because the node has its own /etc/hosts.

The holder reads orders, one JSON object a line, from a socket, and answers there. The fork server passes both on:

    {"id": 2, "op": "run", "program": "cloud", "argv": ["mosquitto"], "environment": {}, "folder": "/", "log": "/a.log",
     "follow": true}
    {"id": 2, "ok": true}                            (or with "refused": the reason)
    {"id": 3, "op": "signal", "program": "cloud", "number": 15}
    {"id": 4, "op": "release", "code": 0}            (the holder ends with this code, and with it all its programs)
    {"event": "program", "node": "cloud", "program": "cloud", "code": 0}

A signal reaches all processes of a program. With ``follow``, a program with a command that ended with exit code 0
ends when its other processes have ended: a start script or a daemon leaves its command. After a signal this holds for
any code.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.process import namespaces
from node.process.children import wake_up_for_children
from node.process.program_processes import MARK, processes_of

KEPT = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_MKNOD": 27,
    "CAP_SETFCAP": 31,
}
"""The capabilities of a program that root starts, by name (linux/capability.h): Docker's default, without the one to
write audit records."""

HOSTS = Path("/etc/hosts")
SYS = Path("/sys")
GROUPS = Path("/sys/fs/cgroup")
NO_OWN_SYS = (
    "programs see the host's /sys, and in /sys/class/net the host's interfaces: the kernel refuses another ({})"
)


@dataclass(frozen=True)
class Openness:
    """What the programs of one node may do and see. ``hosts``: the file that becomes its /etc/hosts. ``user``: ids of
    the user and group that programs run as, None for those of this process. ``groups``: control groups of the host."""

    hosts: str
    user: tuple[int, int] | None = None
    groups: tuple[str, ...] = ()


def open_up(openness: Openness) -> list[str]:
    """Give this process the view and the rights of a program. It must have its own mount and PID namespaces already.
    Returns what this kernel lacks.

    OSError if the kernel refuses. Clears the parent-death signal (prctl(2)).
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    myself = os.open("/proc/self", flags)
    quiet = namespaces.MS_NOSUID | namespaces.MS_NODEV | namespaces.MS_NOEXEC
    namespaces.mount("proc", Path("/proc"), quiet)
    lacking = show_own_network(quiet)
    make_place(HOSTS)
    hosts = Path(openness.hosts)
    namespaces.bind(hosts, HOSTS)
    if openness.user is None:
        namespaces.bound_capabilities(KEPT.values())
    else:
        user, group = openness.user
        namespaces.enter_user_namespace(myself, user, group)
        namespaces.bound_capabilities()
    os.close(myself)
    namespaces.forbid_new_rights()
    return lacking


def make_place(file: Path) -> None:
    """Let an empty file exist in this mount namespace. If the host lacks it, its folder becomes a new one with the
    same entries, and the host's stays as it is."""
    if file.exists():
        return
    folder = file.parent
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    host = os.open(folder, flags)
    entries = sorted(os.listdir(folder))
    quiet = namespaces.MS_NOSUID | namespaces.MS_NODEV
    namespaces.mount("tmpfs", folder, quiet, "mode=755")
    for name in entries:
        source = Path(f"/proc/self/fd/{host}/{name}")
        place = folder / name
        if source.is_symlink():
            place.symlink_to(os.readlink(source))
            continue
        if source.is_dir():
            place.mkdir()
        else:
            place.touch()
        namespaces.bind(source, place)
    os.close(host)
    file.unlink(missing_ok=True)  # a link to nowhere
    file.touch()


def show_own_network(flags: int) -> list[str]:
    """Mount /sys again, read-only. It shows the interfaces of the network namespace in which it was mounted. The
    control groups of the host stay in it. Returns a note if the kernel refuses."""
    groups = None
    if GROUPS.is_dir():
        groups = os.open(GROUPS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        namespaces.mount("sysfs", SYS, flags | namespaces.MS_RDONLY)
        if groups is not None:
            kept = Path(f"/proc/self/fd/{groups}")
            namespaces.bind(kept, GROUPS)
    except OSError as error:
        return [NO_OWN_SYS.format(error.strerror)]
    finally:
        if groups is not None:
            os.close(groups)
    return []


class Holder:
    """Starts programs on orders, and reports their ends."""

    def __init__(self, node: str, orders: socket.socket) -> None:
        self._node = node
        self._orders = orders
        self._programs: dict[int, str] = {}  # by the process id of their command
        self._followed: set[str] = set()  # programs that end with the last of their processes
        self._signalled: set[str] = set()  # programs that were sent a signal
        self._ending: dict[int, tuple[str, int]] = {}  # programs with a command that has ended, and its exit code

    def hold(self) -> int:
        """Obey until the order to end, or until the fork server is gone. Return the exit code."""
        children = wake_up_for_children()
        selector = selectors.DefaultSelector()
        selector.register(self._orders, selectors.EVENT_READ)
        selector.register(children, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = selector.select()
            for key, _ in ready:
                if key.fd == children:
                    os.read(children, 4096)
                    self._reap()
                    continue
                data = self._orders.recv(65536)
                if not data:
                    return os.EX_SOFTWARE
                lines, pending = lines_of(pending + data)
                for line in lines:
                    order = json.loads(line)
                    if order["op"] == "release":
                        self._answer(order)
                        return int(order["code"])
                    self._obey(order)

    def _obey(self, order: dict[str, Any]) -> None:
        try:
            if order["op"] == "run":
                self._run(order)
            else:
                self._signal(order)
        except OSError as error:
            what = f": {error.filename}" if error.filename else ""
            self._answer(order, refused=f"{error.strerror}{what}")
        else:
            self._answer(order)

    def _run(self, order: dict[str, Any]) -> None:
        label = order["program"]
        environment = order["environment"] | {MARK: label}
        with open(order["log"], "ab", buffering=0) as log:
            program = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=order["folder"],
                env=environment,
                start_new_session=True,
            )
        program.returncode = 0  # `_reap` waits for it
        self._programs[program.pid] = label
        self._followed.discard(label)
        if order["follow"]:
            self._followed.add(label)

    def _signal(self, order: dict[str, Any]) -> None:
        """Send a signal to all processes of a program; without a program to all of the node, except this one."""
        wanted = order.get("program")
        if wanted is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, order["number"])
            return
        commands = dict(self._programs)
        for command, (program, _) in self._ending.items():
            commands[command] = program
        for command, program in commands.items():
            if program != wanted:
                continue
            self._signalled.add(program)
            for process in processes_of(program, command):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, order["number"])

    def _reap(self) -> None:
        """Report which programs have ended. Other processes are what programs have left behind."""
        for command, code in _ended_children():
            program = self._programs.pop(command, None)
            if program is not None:
                self._ending[command] = (program, code)
        for command, (program, code) in list(self._ending.items()):
            followed = program in self._followed and code == 0
            waits = followed or program in self._signalled
            if waits and processes_of(program, command):
                continue
            del self._ending[command]
            self._signalled.discard(program)
            self._write(
                {
                    "event": "program",
                    "node": self._node,
                    "program": program,
                    "code": code,
                }
            )

    def _answer(self, order: dict[str, Any], **fields: Any) -> None:
        self._write({"id": order["id"], "ok": True, **fields})

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._orders.sendall(data + b"\n")


def lines_of(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete lines in what was read so far, and the start of the next one."""
    lines = data.split(b"\n")
    rest = lines.pop()
    return lines, rest


def _ended_children() -> Iterator[tuple[int, int]]:
    """The process ids and exit codes of this process's children that have ended."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        yield child, os.waitstatus_to_exitcode(status)
