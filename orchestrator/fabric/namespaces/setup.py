"""Sets up the network namespaces of all nodes, in one process in the hub. A process for each node would take most of
the time of its start.

Requests are JSON objects on standard input, one per line, and so are replies, see `orchestrator.host.process.child`:

    {"id": 1, "pid": 4711, "settings": {"tcp_sack": "1"}, "lines": "link set lo up"}
    {"id": 1, "ok": true, "tcp": {}}

It writes TCP ``settings`` and runs ``lines`` in the network namespace of ``pid``, or in the hub's: see
`orchestrator.fabric.namespaces.netlink`. Lines for IPv6 switch it on there, because an Engine switches it off in its
containers. They are left out if the kernel has no IPv6. With ``"read": true`` the reply has all TCP settings of that
namespace. A setting that the kernel refuses keeps its value. The namespace of a ``pid`` is kept until it is forgotten:

    {"id": 2, "unsent": 4711}
    {"id": 2, "ok": true, "unsent": 1}                (the connections that still have something to send)
    {"id": 3, "forget": 4711}
"""

import contextlib
import ctypes
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.fabric.namespaces.netlink import Netlink

SETTINGS = Path("/proc/sys/net/ipv4")
IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")  # missing if the kernel has no IPv6
SENDING = ("04", "09", "0B")  # FIN_WAIT1, LAST_ACK and CLOSING in net/tcp_states.h
CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 0x40000


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one descriptor for each node
    if not os.access(SETTINGS / "tcp_rmem", os.W_OK):
        mount_proc(libc)
    networks = Networks(libc)
    ready = json.dumps({"event": "ready"})
    print(ready, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = networks.answer(request)
            reply = {"id": request["id"], "ok": True, **result}
        except OSError as error:
            reply = {"id": request["id"], "error": str(error)}
        print(json.dumps(reply), flush=True)


class Networks:
    """The network namespaces of nodes, entered one after the other. Each stays after its node has ended, until it is
    forgotten, so that the kernel sends what it holds for the node."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._hub = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._kept: dict[int, int] = {}  # descriptors of the namespaces, by the process id of their node

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "unsent" in request:
            return {"unsent": self.unsent(request["unsent"])}
        if "forget" in request:
            self.forget(request["forget"])
            return {}
        pid = request["pid"]
        if pid is None:
            return {"tcp": set_up(**request)}
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            with self._inside(network):
                answer = {"tcp": set_up(**request)}
        except BaseException:
            os.close(network)
            raise
        self.forget(pid)  # the kernel may give the process id of an ended node to another one
        self._kept[pid] = network
        return answer

    def unsent(self, pid: int) -> int:
        """The connections of a node that still have something to send; 0 if its namespace was not kept."""
        if pid not in self._kept:
            return 0
        with self._inside(self._kept[pid]):
            return connections_that_send()

    def forget(self, pid: int) -> None:
        """Let the namespace of a node go. The kernel removes it if no process is left in it."""
        if pid in self._kept:
            os.close(self._kept.pop(pid))

    @contextlib.contextmanager
    def _inside(self, network: int) -> Iterator[None]:
        if self._libc.setns(network, CLONE_NEWNET) != 0:
            raise OSError(f"setns: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            self._libc.setns(self._hub, CLONE_NEWNET)


def connections_that_send(proc: Path = Path("/proc/self/net")) -> int:
    """The number of closed connections of this network namespace that still send: data, or their end."""
    number = 0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            lines = (proc / name).read_text().splitlines()
            for line in lines[1:]:
                state = line.split()[3]
                number += state in SENDING
    return number


def set_up(
    settings: dict[str, str],
    lines: str,
    read: bool = False,
    **_: Any,
) -> dict[str, str]:
    for name, value in settings.items():
        with contextlib.suppress(OSError):
            (SETTINGS / name).write_text(value)
    commands = lines.splitlines()
    if any(map(needs_ipv6, commands)) and not switch_ipv6_on():
        commands = [line for line in commands if not needs_ipv6(line)]
    with Netlink() as netlink:
        for line in commands:
            netlink.run(line)
    if read:
        return settings_in_force()
    return {}


def settings_in_force() -> dict[str, str]:
    """All TCP settings of this network namespace that can be read."""
    settings = {}
    for file in sorted(SETTINGS.glob("tcp_*")):
        with contextlib.suppress(OSError):  # some are write-only
            words = file.read_text().split()
            settings[file.name] = " ".join(words)
    return settings


def needs_ipv6(line: str) -> bool:
    """Whether a line is about an IPv6 address, network or neighbour, its third word, or the fourth after the type
    of a route."""
    words = line.split()
    return any(":" in word for word in words[2:4])


def switch_ipv6_on() -> bool:
    """Switch IPv6 on in this network namespace; False if the kernel has none."""
    if not IPV6_SETTINGS.exists():
        return False
    for interfaces in ("all", "default"):
        switch = IPV6_SETTINGS / interfaces / "disable_ipv6"
        switch.write_text("0")
    return True


def mount_proc(libc: ctypes.CDLL) -> None:
    """Mount /proc again for this process only. An Engine makes it read-only in containers, such as an agent's."""
    libc.unshare(CLONE_NEWNS)
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"proc", b"/proc", b"proc", 0, None)


if __name__ == "__main__":
    main()
