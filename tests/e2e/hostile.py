"""A fork server whose nodes attack: ``python -m tests.e2e.hostile VIEW`` stands in for ``node.process.forkserver``.

A device tries everything in `attempts` and prints, one JSON list a line, the name of each and its error, None where it
succeeded. The params of its assignment say where on the host the worthwhile things are; all others only wait.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from node.assignment import PLACE, Assignment
from node.process import forkserver, main, namespaces
from node.process.seccomp import DENIED
from node.process.view import SCRATCH, FileView

_libc = ctypes.CDLL(None, use_errno=True)
_COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


def call(result: int) -> None:
    """OSError if a call of the C library failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def use(path: str | Path, mode: str, text: str = "") -> Callable[[], None]:
    def open_it() -> None:
        with open(path, mode) as file:
            if text:
                file.write(text)

    return open_it


def system_call(name: str, *arguments: int) -> Callable[[], None]:
    number = DENIED[name][_COLUMN]
    return lambda: call(_libc.syscall(number, *map(ctypes.c_long, arguments)))


def route(kind: int, body: bytes) -> Callable[[], None]:
    """Ask the kernel to change an interface (rtnetlink(7))."""

    def ask() -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
            request_create_acknowledge = 0x1 | 0x400 | 0x4
            netlink.send(struct.pack("=IHHII", 16 + len(body), kind, request_create_acknowledge, 1, 0) + body)
            (error,) = struct.unpack_from("=i", netlink.recv(4096), 16)
            if error:
                raise OSError(-error, os.strerror(-error))

    return ask


def address() -> bytes:
    """10.1.1.1/8 for interface 1 (struct ifaddrmsg and IFA_LOCAL of if_addr.h)."""
    return struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 1, 1, 1]))


def queue() -> bytes:
    """A pfifo as the root queue of interface 1 (struct tcmsg and TCA_KIND of rtnetlink.h)."""
    return struct.pack("=BxxxiIII", 0, 1, 0, 0xFFFFFFFF, 0) + struct.pack("=HH6sxx", 10, 1, b"pfifo\0")


def set_user_id() -> None:
    """Execute a program of root's that has the set-user-ID bit, and look at what its process was at its end."""
    program = next(path for path in ("/usr/bin/su", "/bin/su", "/usr/bin/passwd") if os.path.exists(path))
    assert os.stat(program).st_mode & 0o4000
    before, process = os.geteuid(), subprocess.Popen([program, "--version"], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    process.wait()
    if int(status["Uid"].split()[1]) == before and int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0:
        raise PermissionError(1, "its process had the same user and no capability")


def multiply() -> None:
    """More processes than a node may have; those that were made are ended."""
    made = []
    try:
        for _ in range(400):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            made.append(pid)
    finally:
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def attempts(targets: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Each by its name; one that raises OSError or ValueError has failed."""

    def connect(family: int, where: Any) -> Callable[[], Any]:
        def attempt() -> None:
            with socket.socket(family, socket.SOCK_STREAM) as opened:
                opened.settimeout(2)
                opened.connect(where)

        return attempt

    found: dict[str, Callable[[], Any]] = {
        # files of the host and of the run
        **{f"read {key}": use(path, "rb") for key, path in targets["files"].items() if key != "python"},
        **{f"write {key}": use(path, "ab") for key, path in targets["files"].items()},
        "write to the system": use("/usr/mine", "w"),
        "write to its root": use("/mine", "w"),
        "write among Python's packages": use(Path(sys.prefix, "mine"), "w"),
        "change the data": use(PLACE / "data" / "x_train.npy", "r+b"),
        "change the shards": use(PLACE / "shards.npz", "r+b"),
        "remove the control plane": lambda: os.unlink(PLACE / "control" / "socket"),
        "stand beside the control plane": use(PLACE / "control" / "mine", "w"),
        "see control groups": lambda: os.listdir("/sys/fs/cgroup"),
        "see disks": use("/dev/vda", "rb"),
        "make a device": lambda: os.mknod(SCRATCH / "disk", 0o60600, os.makedev(254, 0)),
        # the kernel
        "set a kernel parameter": use("/proc/sys/kernel/core_pattern", "w"),
        "press sysrq": use("/proc/sysrq-trigger", "w", "h"),
        "protect itself from the lack of memory": use("/proc/self/oom_score_adj", "w", "-1000"),
        "protect a thread from the lack of memory": use("/proc/self/task/1/oom_score_adj", "w", "-1000"),
        "mount": lambda: call(_libc.mount(b"none", os.fsencode(SCRATCH), b"tmpfs", 0, None)),
        "mount anew, writable": lambda: call(_libc.mount(None, b"/", None, 0x1020, None)),
        "unmount": lambda: call(_libc.umount2(b"/proc", 2)),
        "change its root": lambda: os.chroot("/usr"),
        "make a user namespace": lambda: namespaces.unshare(namespaces.CLONE_NEWUSER),
        "make a network namespace": lambda: namespaces.unshare(namespaces.CLONE_NEWNET),
        "enter a namespace": lambda: call(_libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0)),
        "rename its host": lambda: socket.sethostname("mine"),
        "set the clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        "trace": lambda: call(_libc.ptrace(0, 0, 0, 0)),
        "watch the processor": system_call("perf_event_open", 0, 0, -1, -1, 0),
        "load a program into the kernel": system_call("bpf", 0, 0, 0),
        "use io_uring": system_call("io_uring_setup", 1, 0),
        "handle page faults": system_call("userfaultfd", 1),
        "list keys": system_call("keyctl", 0, -3, 1),
        "load a module": system_call("finit_module", 0, 0, 0),
        "boot another kernel": system_call("kexec_load", 0, 0, 0, 0),
        "open by handle": system_call("open_by_handle_at", -100, 0, 0),
        "restart the host": system_call("reboot", 0, 0, 0, 0),
        # rights
        "become root": lambda: os.setuid(0),
        "join root's group": lambda: os.setgroups([0]),
        "run a program as root": set_user_id,
        "come first": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        "run in real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "leave a picture of its memory": lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1)),
        # processes
        **{f"signal {key}": partial(os.kill, pid, 0) for key, pid in targets["processes"].items()},
        "multiply": multiply,
        # networks
        "forge packets": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255),
        "listen to all packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        "reach the hypervisor": lambda: socket.socket(40, socket.SOCK_STREAM),  # AF_VSOCK
        "use the kernel's ciphers": lambda: socket.socket(38, socket.SOCK_SEQPACKET),  # AF_ALG
        "give itself an address": route(20, address()),
        "change a queue": route(36, queue()),
        "reach the host's loopback": connect(socket.AF_INET, ("127.0.0.1", targets["port"])),
        "reach the internet": connect(socket.AF_INET, ("192.0.2.1", 80)),
        "reach an abstract socket": connect(socket.AF_UNIX, targets["abstract"]),
        "reach a socket of the host": connect(socket.AF_UNIX, targets["socket"]),
    }
    return found


def status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Groups")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name in wanted}


def named() -> str:
    """The name of another thread of this process, after this thread has named it through /proc."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    name = Path(f"/proc/self/task/{thread.native_id}/comm")
    name.write_text("cuda")
    found = name.read_text()
    done.set()
    return found


def attack(assignment: Assignment, *_: object) -> int:
    """What such a node does instead of its role."""
    if assignment.tier != "device":
        signal.pause()
    targets = assignment.params
    if "megabytes" in targets:
        held = [bytearray(b"x" * (1 << 20)) for _ in range(targets["megabytes"])]
        print(json.dumps(["took memory", len(held)]), flush=True)
        return 0
    for name, attempt in attempts(targets).items():
        said = None
        try:
            attempt()
        except (OSError, ValueError) as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps([name, said]), flush=True)
    facts = {
        "status": status(),
        "files": sorted(os.listdir("/")),
        "processes": [int(name) for name in os.listdir("/proc") if name.isdigit()],
        "interfaces": [name for _, name in socket.if_nameindex()],
        "environment": dict(os.environ),
        "named": named(),
    }
    print(json.dumps(["facts", facts]), flush=True)
    for folder in (str(PLACE / "checkpoints"), tempfile.gettempdir(), "/tmp", "/dev/shm"):
        Path(folder, "mine").write_text("kept")
    return 0


if __name__ == "__main__":
    vars(main).update(preload=lambda: None, run_node=attack)
    os._exit(forkserver.main(FileView(**json.loads(sys.argv[1]))))
