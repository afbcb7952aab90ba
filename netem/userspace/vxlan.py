"""VXLAN (RFC 7348) by a process, for hosts whose kernel has no VXLAN device.

`python -m netem.userspace.vxlan PID INTERFACE ADDRESS PORT ID` opens a UDP socket on ADDRESS in the network namespace
in which it starts. Then it enters that of the process PID, and makes the TAP device INTERFACE there. What the device is
given goes to the host of its destination address; what comes from the hosts comes out of the device. The packets are
those of the kernel's device, which the other hosts may have. The device ends with the process.

The kernel splits super-packets and completes checksums before they reach a TAP device without offloads, so that each
frame fits in one UDP packet.

Requests and replies are lines as in netem.userspace.switch:

    forward   hosts      the IPv4 addresses of the other hosts by the hardware addresses of their nodes; replaces all
    counters  -          the counters so far, see Tunnel.counters

The process ends when its standard input ends, when the reader of its output has closed, or when the device is removed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from netem.errors import SwitchError
from netem.priority import run_promptly
from netem.userspace.console import Console, answer
from netem.userspace.port import SEND_BUFFER, enlarge_receive_buffer, parse_mac

HEADER = struct.Struct("!B3xI")  # RFC 7348, section 5: flags, and the identifier in the upper 24 bits
KNOWN = 0x08  # the flag I: the identifier is valid
LARGEST = 65_536  # bytes of a UDP packet
BURST = 32  # packets of one way before the other way is served

TAPS = "/dev/net/tun"
DEVICE_NUMBER = "10:200"  # of TAPS (Linux, Documentation/admin-guide/devices.txt)
# <linux/if_tun.h>, <linux/sched.h>
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
NAME_SIZE = 16  # IFNAMSIZ, the ending zero included

Hosts = Mapping[bytes, tuple[str, int]]


class Tunnel:
    """The frames' way out and in. ``device`` is the TAP device's descriptor, ``underlay`` a UDP socket."""

    def __init__(self, device: int, underlay: socket.socket, port: int, identifier: int) -> None:
        self._device = device
        self._underlay = underlay
        self._port = port
        self._header = HEADER.pack(KNOWN, identifier << 8)
        self._hosts: Hosts = {}
        self._known: set[str] = set()
        self.sent = 0
        self.received = 0
        self.unrouted = 0
        self.unsent = 0
        self.from_strangers = 0
        self._operations: dict[str, Callable[..., dict[str, Any]]] = {
            "forward": self.forward,
            "counters": self.counters,
        }

    def handle(self, request: object) -> dict[str, Any]:
        """The reply to one request. A request that fails changes nothing; its reply is the error."""
        return answer(request, self._operations)

    def forward(self, hosts: Mapping[str, str]) -> dict[str, Any]:
        found = {parse_mac(mac): (str(ipaddress.IPv4Address(host)), self._port) for mac, host in dict(hosts).items()}
        self._hosts, self._known = found, {host for host, _ in found.values()}
        return {}

    def counters(self) -> dict[str, Any]:
        """All counters since the start.

        sent, received  frames to the other hosts and from them
        unrouted        frames whose destination is no node of another host, such as those to all
        unsent          frames that the underlay did not take
        from_strangers  UDP packets that were dropped: from no host of the run, or with another identifier
        """
        names = ("sent", "received", "unrouted", "unsent", "from_strangers")
        return {name: getattr(self, name) for name in names}

    def send(self) -> None:
        """Send a burst of frames from the device to their hosts."""
        for _ in range(BURST):
            try:
                frame = os.read(self._device, LARGEST)
            except BlockingIOError:
                return
            host = self._hosts.get(frame[:6])
            if host is None:
                self.unrouted += 1
                continue
            try:
                self._underlay.sendto(self._header + frame, host)
            except OSError:  # no room, no way there, or larger than the underlay's MTU
                self.unsent += 1
            else:
                self.sent += 1

    def receive(self) -> None:
        """Give a burst of frames from the other hosts to the device."""
        for _ in range(BURST):
            try:
                packet, (host, _) = self._underlay.recvfrom(LARGEST)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # what an earlier packet met
                continue
            if host not in self._known or packet[: HEADER.size] != self._header:
                self.from_strangers += 1
                continue
            try:
                os.write(self._device, packet[HEADER.size :])
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EIO, errno.ENOBUFS, errno.EAGAIN):
                    raise
                self.from_strangers += 1  # no frame: the device is down, or this is too short to be one
            else:
                self.received += 1


def open_underlay(address: str, port: int) -> socket.socket:
    """A UDP socket of this network namespace. SwitchError if the port is taken or the address is not this host's."""
    underlay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        underlay.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        enlarge_receive_buffer(underlay)
        underlay.bind((address, port))
    except OSError as error:
        underlay.close()
        raise SwitchError(f"cannot open UDP port {port} of {address}: {error.strerror}") from error
    return underlay


def enter(pid: int) -> None:
    """Move this thread to the network namespace of a process (setns(2), which os has from Python 3.12 on)."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.setns(descriptor, CLONE_NEWNET):
            code = ctypes.get_errno()
            raise SwitchError(f"cannot enter the network namespace of process {pid}: {os.strerror(code)}")
    finally:
        os.close(descriptor)


def open_device(interface: str) -> int:
    """Make a TAP device in this network namespace; its descriptor. SwitchError if this host refuses."""
    try:
        if not os.path.exists(TAPS):  # as in a container
            os.makedirs(os.path.dirname(TAPS), exist_ok=True)
            os.mknod(TAPS, stat.S_IFCHR | 0o600, os.makedev(*map(int, DEVICE_NUMBER.split(":"))))
        device = os.open(TAPS, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SwitchError(f"cannot open {TAPS}: {error.strerror}") from error
    request = struct.pack(f"{NAME_SIZE}sH22x", interface.encode(), IFF_TAP | IFF_NO_PI)
    try:
        fcntl.ioctl(device, TUNSETIFF, request)
    except OSError as error:
        os.close(device)
        raise SwitchError(f"cannot make the device {interface}: {error.strerror}") from error
    return device


def run(tunnel: Tunnel, console: Console, device: int, underlay: socket.socket) -> None:
    """Serve until the console closes. OSError if the device is removed."""
    epoll = select.epoll()
    for descriptor in (device, underlay.fileno(), console.reading):
        epoll.register(descriptor, select.EPOLLIN)
    epoll.register(console.writing, 0)  # epoll always reports EPOLLERR, which comes when the reader has closed
    while console.open:
        for descriptor, _ in epoll.poll():
            if descriptor == device:
                tunnel.send()
            elif descriptor == underlay.fileno():
                tunnel.receive()
            elif descriptor == console.reading:
                for request in console.requests():
                    console.write(tunnel.handle(request))
            else:
                console.open = False


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C signals the whole group; the trunk stays until the orderly end
    pid, interface, address, port, identifier = sys.argv[1:]
    console = Console(sys.stdin.fileno(), sys.stdout.fileno())
    run_promptly()
    try:
        underlay = open_underlay(address, int(port))
        enter(int(pid))
        device = open_device(interface)
    except SwitchError as error:
        sys.exit(f"netem.userspace.vxlan: {error}")
    console.write({"event": "ready"})
    run(Tunnel(device, underlay, int(port), int(identifier)), console, device, underlay)


if __name__ == "__main__":
    main()
