"""Sets up the network namespaces of all nodes, in one process in the hub. A process for each node would take most of
the time of its start.

Requests are JSON objects on standard input, one per line, and so are replies, see `orchestrator.host.process.child`:

    {"id": 1, "pid": 4711, "settings": {"tcp_sack": "1"}, "lines": "link set lo up"}
    {"id": 1, "ok": true, "tcp": {}}

It writes TCP ``settings`` and runs ``lines`` in the network namespace of ``pid``, or in the hub's: see
`orchestrator.fabric.namespaces.netlink`. Lines for IPv6 switch it on there, because an Engine switches it off in its
containers. They are left out if the kernel has no IPv6. With ``"read": true`` the reply has all TCP settings of that
namespace. A setting that the kernel refuses keeps its value.
"""

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from orchestrator.fabric.namespaces.netlink import Netlink

SETTINGS = Path("/proc/sys/net/ipv4")
IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")  # missing if the kernel has no IPv6
CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_PRIVATE = 0x00020000, 0x40000000, 0x4000, 0x40000


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    hub = os.open("/proc/self/ns/net", os.O_RDONLY)
    if not os.access(SETTINGS / "tcp_rmem", os.W_OK):
        mount_proc(libc)
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with contextlib.ExitStack() as stack:
                if request["pid"] is not None:
                    node = os.open(f"/proc/{request['pid']}/ns/net", os.O_RDONLY)
                    stack.callback(os.close, node)
                    stack.callback(libc.setns, hub, CLONE_NEWNET)
                    if libc.setns(node, CLONE_NEWNET) != 0:
                        raise OSError(f"setns: {os.strerror(ctypes.get_errno())}")
                print(json.dumps({"id": request["id"], "ok": True, "tcp": set_up(**request)}), flush=True)
        except OSError as error:
            print(json.dumps({"id": request["id"], "error": str(error)}), flush=True)


def set_up(settings: dict[str, str], lines: str, read: bool = False, **_: Any) -> dict[str, str]:
    for name, value in settings.items():
        with contextlib.suppress(OSError):
            (SETTINGS / name).write_text(value)
    commands = lines.splitlines()
    if any(map(needs_ipv6, commands)) and not switch_ipv6_on():
        commands = [line for line in commands if not needs_ipv6(line)]
    with Netlink() as netlink:
        for line in commands:
            netlink.run(line)
    settings_in_force = {}
    for file in sorted(SETTINGS.glob("tcp_*")) if read else ():
        with contextlib.suppress(OSError):  # some are write-only
            settings_in_force[file.name] = " ".join(file.read_text().split())
    return settings_in_force


def needs_ipv6(line: str) -> bool:
    """Whether a line is about an IPv6 address, network or neighbour, which is its third word."""
    return ":" in line.split()[2]


def switch_ipv6_on() -> bool:
    """Switch IPv6 on in this network namespace; False if the kernel has none."""
    if not IPV6_SETTINGS.exists():
        return False
    for interfaces in ("all", "default"):
        (IPV6_SETTINGS / interfaces / "disable_ipv6").write_text("0")
    return True


def mount_proc(libc: ctypes.CDLL) -> None:
    """Mount /proc again for this process only. An Engine makes it read-only in containers, such as an agent's."""
    libc.unshare(CLONE_NEWNS)
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"proc", b"/proc", b"proc", 0, None)


if __name__ == "__main__":
    main()
