"""VXLAN (RFC 7348) by a process, for hosts with a kernel that has no VXLAN device, and for users who may not make one.

`python -m netem.userspace.vxlan PID NEAR FAR ADDRESS PORT ID` opens a UDP socket on ADDRESS in the network namespace in
which it starts. Then it enters that of the process PID, where NEAR and FAR are a veth pair. What comes out of FAR goes
to the host of its destination address; what comes from the hosts goes into it. The packets are those of the kernel's
device, which the other hosts may have, unless there is a key.

NEAR completes checksums and splits super-packets, so that each frame fits in one UDP packet.

With a key each packet ends with a tag: BLAKE2b with this key (RFC 7693, section 2.9), in TAG bytes, of all before it.
Without the key no one can write to the trunk. A host on the way can read it, and can repeat packets.

Requests and replies are lines as in netem.userspace.switch:

    forward   hosts, key the IPv4 addresses of the other hosts by the hardware addresses of their nodes; replaces all;
                         the key in hexadecimal digits, by default none
    counters  -          the counters so far, see Tunnel.counters

The process ends when its standard input ends, when the reader of its output has closed, or when the device is removed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import hmac
import ipaddress
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping

from netem.errors import SwitchError
from netem.priority import run_promptly
from netem.userspace.console import Console, Reply, answer
from netem.userspace.port import SEND_BUFFER, enlarge_receive_buffer, open_packets, parse_mac

HEADER = struct.Struct("!B3xI")  # RFC 7348, section 5: flags, and the identifier in the upper 24 bits
KNOWN = 0x08  # the flag I: the identifier is valid
LARGEST = 65_536  # bytes of a UDP packet
BURST = 32  # packets of one way before the other way is served

TAG = 16  # bytes
NOT_TAKEN = (errno.EINVAL, errno.EMSGSIZE, errno.ENETDOWN, errno.ENOBUFS, errno.EAGAIN)
"""A frame is too short or too long, or the device is down or full."""

# <linux/sched.h>, <linux/sockios.h>, <linux/ethtool.h>
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17

Hosts = Mapping[bytes, tuple[str, int]]


class Tunnel:
    """The frames' way out and in. ``device`` is the descriptor of a socket with frames, ``underlay`` a UDP socket."""

    def __init__(
        self,
        device: int,
        underlay: socket.socket,
        port: int,
        identifier: int,
    ) -> None:
        self._device = device
        self._underlay = underlay
        self._port = port
        self._header = HEADER.pack(KNOWN, identifier << 8)
        self._hosts: Hosts = {}
        self._known: set[str] = set()
        self._key = b""
        self.sent = 0
        self.received = 0
        self.unrouted = 0
        self.unsent = 0
        self.from_strangers = 0

    def handle(self, request: object) -> Reply:
        """The reply to one request. A request that fails changes nothing; its reply is the error."""
        return answer(request, {"forward": self.forward, "counters": self.counters})

    def forward(self, hosts: Mapping[str, str], key: str = "") -> Reply:
        targets = {}
        for mac, host in dict(hosts).items():
            address = parse_mac(mac)
            host_address = str(ipaddress.IPv4Address(host))
            targets[address] = (host_address, self._port)
        known = {host for host, _ in targets.values()}
        secret = bytes.fromhex(key)
        self._hosts = targets
        self._known = known
        self._key = secret
        return {}

    def counters(self) -> Reply:
        """All counters since the start.

        sent, received  frames to the other hosts and from them
        unrouted        frames to no node of another host, such as those to all
        unsent          frames that the underlay did not take
        from_strangers  UDP packets that were dropped: from no host of the run, with another identifier, or without the
                        tag of the key
        """
        return {
            "sent": self.sent,
            "received": self.received,
            "unrouted": self.unrouted,
            "unsent": self.unsent,
            "from_strangers": self.from_strangers,
        }

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
            packet = self._header + frame
            try:
                self._underlay.sendto(packet + self._tag(packet), host)
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
            end = len(packet)
            if self._key:
                end -= TAG
            known = host in self._known and packet[: HEADER.size] == self._header
            if not known or not self._is_tagged(packet, end):
                self.from_strangers += 1
                continue
            frame = packet[HEADER.size : end]
            try:
                os.write(self._device, frame)
            except OSError as error:
                if error.errno not in NOT_TAKEN:
                    raise
                self.from_strangers += 1
            else:
                self.received += 1

    def _is_tagged(self, packet: bytes, end: int) -> bool:
        """Whether the tag of the key, which starts at ``end``, is right."""
        tag = self._tag(packet[:end])
        return hmac.compare_digest(packet[end:], tag)

    def _tag(self, packet: bytes) -> bytes:
        if not self._key:
            return b""
        return hashlib.blake2b(packet, key=self._key, digest_size=TAG).digest()


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
    """Move this process, which must have one thread, to the network namespace of another one, and to its user namespace
    if that is another (setns(2), which os has from Python 3.12 on)."""
    library = ctypes.CDLL(None, use_errno=True)
    own_user = os.stat("/proc/self/ns/user")
    user = os.stat(f"/proc/{pid}/ns/user")
    namespaces = []
    if own_user.st_ino != user.st_ino:
        namespaces.append(("user", CLONE_NEWUSER))
    namespaces.append(("net", CLONE_NEWNET))
    for name, kind in namespaces:
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if library.setns(descriptor, kind):
                reason = os.strerror(ctypes.get_errno())
                raise SwitchError(f"cannot enter the {name} namespace of process {pid}: {reason}")
        finally:
            os.close(descriptor)


def complete_packets(interface: str) -> None:
    """Have the kernel complete checksums and split super-packets before they pass this end of a veth pair, which else
    leaves both to the other end. Without checksums Linux does not offload segmentation either (netdev_fix_features)."""
    value = ctypes.create_string_buffer(struct.pack("=II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def run(
    tunnel: Tunnel,
    console: Console,
    device: int,
    underlay: socket.socket,
) -> None:
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
    # Ctrl-C signals the whole group; the trunk stays until the orderly end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid, near, far, address, port, identifier = sys.argv[1:]
    console = Console(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        underlay = open_underlay(address, int(port))
        enter(int(pid))
        device = open_packets(far)
        complete_packets(near)
    except (SwitchError, OSError) as error:
        sys.exit(f"netem.userspace.vxlan: {error}")
    run_promptly()
    console.write({"event": "ready"})
    tunnel = Tunnel(device.fileno(), underlay, int(port), int(identifier))
    run(tunnel, console, device.fileno(), underlay)


if __name__ == "__main__":
    main()
