"""Nodes in network namespaces of their own, wired to a hub with a switch, for tests and benchmarks.

Works as root and, through a user namespace, as anybody. Everything belongs to processes that end when the Lab is closed
or the process that made it is gone, so nothing is left behind.

The namespaces are held by small processes that open sockets in them on request and hand them over (SCM_RIGHTS). So one
program can talk from any node to any other through ordinary socket objects.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

ROOT = Path(__file__).resolve().parents[2]


class NamespacesRefusedError(Exception):
    """This host lets us make no network namespaces, or no veth pairs in them; the message says what was refused."""


class Namespace:
    """A network namespace, held by a process that opens sockets in it. `prefix` runs a command inside."""

    def __init__(self, command: list[str], *, user: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._holder = subprocess.Popen(
                [*command, sys.executable, "-I", "-S", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._broker = ours
        if not ours.recv(1):
            _, said = self._holder.communicate()
            ours.close()
            raise NamespacesRefusedError(f"{' '.join(command)}: {said.decode().strip()}")
        self.pid = self._holder.pid
        entering = ["-U", "--preserve-credentials"] if user else []
        self.prefix = ["nsenter", "-t", str(self.pid), *entering, "-n"]

    def socket(
        self, kind: int, bound: tuple[str, int] | None = None, protocol: int = 0, *, family: int = socket.AF_INET
    ) -> socket.socket:
        """A socket of this namespace, raw ones included; bound if an address is given."""
        self._broker.sendall(bytes([family, kind, protocol]))
        _, (descriptor,), _, _ = socket.recv_fds(self._broker, 1, 1)
        opened = socket.socket(fileno=descriptor)
        opened.settimeout(5.0)
        if bound is not None:
            opened.bind(bound)
        return opened

    def run(self, *command: str, check: bool = True, given: str | None = None) -> str:
        """Standard output of a command run in this namespace."""
        result = subprocess.run([*self.prefix, *command], capture_output=True, text=True, input=given, check=False)
        if check and result.returncode:
            raise NamespacesRefusedError(f"{' '.join(command)}: {result.stderr.strip()}")
        return result.stdout

    def close(self) -> None:
        self._broker.close()  # its end of file ends the holder
        self._holder.wait(10)
        assert self._holder.stderr is not None
        self._holder.stderr.close()


class SwitchProcess:
    """A running `python -m netem.userspace.switch` and the conversation with it."""

    def __init__(self, prefix: list[str]) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "netem.userspace.switch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.events: list[dict[str, Any]] = []
        self._identity = 0
        assert self.read() == {"event": "ready"}

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the switch has ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """The reply to a request, errors included; events that arrive before it are kept in `events`."""
        assert self.process.stdin is not None
        self._identity += 1
        self.process.stdin.write(json.dumps({"id": self._identity, "op": op, **arguments}) + "\n")
        self.process.stdin.flush()
        while (message := self.read()).get("id") != self._identity:
            self.events.append(message)
        return message

    def close(self) -> int:
        """Ends the switch by the end of its input; its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        status = self.process.wait(10)
        self.process.stdout.close()
        return status


class Wiring(Protocol):
    """Nodes that traffic can be sent between: their namespaces and the IPv4 addresses they have there."""

    nodes: dict[str, Namespace]

    def address(self, name: str) -> str: ...

    def bound(self, name: str, kind: int) -> socket.socket:
        """A socket in a node's namespace, bound to a free port of its address."""


class Lab:
    """Nodes a, b, c ... each with data0, and one switch in the hub. A context manager."""

    def __init__(self, nodes: int) -> None:
        """Raises NamespacesRefusedError where the host refuses."""
        for tool in ("ip", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                raise NamespacesRefusedError(f"{tool} is not installed (packages iproute2 and util-linux)")
        self.names = [chr(ord("a") + index) for index in range(nodes)]
        self.nodes: dict[str, Namespace] = {}
        self.switch: SwitchProcess | None = None
        root = os.geteuid() == 0
        self._user = not root
        self.hub = Namespace(["unshare", "-n"] if root else ["unshare", "-Urn"], user=not root)
        try:
            for name in self.names:
                self.add(name)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def add(self, name: str) -> None:
        """A node with data0, whose other end is the hub's v-<name>."""
        node = Namespace([*self.hub.prefix, "unshare", "-n"], user=self._user)
        self.nodes[name] = node
        self.hub.run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "name", "data0", "netns", str(node.pid))
        # No link-local addresses: neither end says anything of its own accord.
        self.hub.run("ip", "link", "set", f"v-{name}", "addrgenmode", "none", "up")
        neighbours = [
            f"neigh replace {self.address(other)} lladdr {self.mac(other)} dev data0 nud permanent"
            for other in self.names
            if other != name
        ]
        commands = [
            f"link set data0 addrgenmode none address {self.mac(name)}",
            "link set lo up",
            "link set data0 up",
            f"address add {self.address(name)}/24 dev data0",
            *neighbours,
        ]
        node.run("ip", "-batch", "-", given="\n".join(commands))

    def remove(self, name: str) -> None:
        """The node's namespace goes, and with it both ends of its veth pair."""
        self.nodes.pop(name).close()
        self.hub.run("ip", "link", "delete", f"v-{name}", check=False)

    def index(self, name: str) -> int:
        return ord(name) - ord("a") + 1

    def address(self, name: str) -> str:
        return f"10.77.0.{self.index(name)}"

    def mac(self, name: str) -> str:
        return f"02:ed:00:00:00:{self.index(name):02x}"

    def bound(self, name: str, kind: int) -> socket.socket:
        """A socket in a node's namespace, bound to a free port of its data0 address."""
        return self.nodes[name].socket(kind, (self.address(name), 0))

    def segment_offload(self, name: str, on: bool) -> None:
        """Whether the node's kernel makes super-packets (by their largest number of segments)."""
        self.nodes[name].run("ip", "link", "set", "data0", "gso_max_segs", "65535" if on else "1")

    def start_switch(self) -> SwitchProcess:
        """A switch that holds all nodes' interfaces; there are no links yet."""
        self.switch = SwitchProcess(self.hub.prefix)
        for name in self.names:
            self.attach(name)
        return self.switch

    def attach(self, name: str) -> None:
        self.ask("attach", port=name, interface=f"v-{name}", mac=self.mac(name))

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """The switch's reply; an error is an AssertionError."""
        assert self.switch is not None
        reply = self.switch.ask(op, **arguments)
        assert "error" not in reply, reply
        return reply

    def shape(
        self, source: str, target: str, profile: Mapping[str, Any], back: Mapping[str, Any] | None = None
    ) -> None:
        """Set the link and its return (the same profile unless given)."""
        self.ask("link", source=source, target=target, profile=profile, seed=7)
        self.ask("link", source=target, target=source, profile=profile if back is None else back, seed=8)

    def counters(self, source: str, target: str) -> dict[str, Any]:
        """The counters of one direction."""
        links: list[dict[str, Any]] = self.ask("counters")["links"]
        return next(link for link in links if (link["source"], link["target"]) == (source, target))

    def close(self) -> None:
        if self.switch is not None and self.switch.process.returncode is None:
            self.switch.close()
        for node in self.nodes.values():
            node.close()
        self.hub.close()


def bridge(lab: Lab) -> None:
    """Connect the hub's ends by a kernel bridge instead of a switch: the same veth pairs, nothing in between."""
    lab.hub.run("ip", "link", "add", "bridge0", "type", "bridge")
    lab.hub.run("ip", "link", "set", "bridge0", "addrgenmode", "none", "up")
    for name in lab.names:
        lab.hub.run("ip", "link", "set", f"v-{name}", "master", "bridge0")


def hold(broker: socket.socket) -> None:
    """Open sockets for whoever is at the other end, until that end is closed."""
    broker.sendall(b"!")
    while request := broker.recv(3):
        with socket.socket(*request) as opened:
            socket.send_fds(broker, [b"!"], [opened.fileno()])


if __name__ == "__main__":
    hold(socket.socket(fileno=int(sys.argv[1])))
