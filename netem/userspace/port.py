"""The switch's kernel interface: packet sockets on the hub's ends of the nodes' veth pairs, and one timer."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable

from netem.errors import SwitchError
from netem.userspace.frame import link_size

# <linux/if_packet.h> and <linux/if_ether.h>; the socket module has no names for these.
SOL_PACKET = 263
PACKET_STATISTICS = 6
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 0x0003
SO_RCVBUFFORCE = 33
SIOCGSTAMPNS = 0x8907  # <asm-generic/sockios.h>
_STAMP = struct.Struct("@ll")

FAR = 1e9  # s; upper bound of due times, because the system call might refuse later ones

RECEIVE_BUFFER = 32 * 1024 * 1024
SEND_BUFFER = 4 * 1024 * 1024
LARGEST_PACKET = 66_000  # a super-packet is at most 64 KiB, plus the headers


class Port:
    """One node's attachment: a packet socket on the hub's end of its veth pair.

    `receive(LARGEST_PACKET)` and `send(packet)` are the socket's own methods, stored as attributes because they run per
    packet. Neither blocks. Packets carry a virtio header (netem.userspace.frame).
    """

    def __init__(self, name: str, interface: str, mac: bytes) -> None:
        """Open the packet socket on `interface`; SwitchError if that fails."""
        self.name = name
        self.interface = interface
        self.mac = mac
        self._drops = 0
        try:
            self._socket = open_packets(interface, virtio=True)
        except SwitchError as error:
            raise SwitchError(f"port {name}: {error}") from error
        self.fd = self._socket.fileno()
        self._stamp = bytearray(_STAMP.size)
        self._ahead = time.time() - time.monotonic()  # of the wall clock, s
        self.receive = self._socket.recv
        self.send = self._socket.send

    def drops(self) -> int:
        """Number of packets dropped so far because they were not read in time (packet(7), PACKET_STATISTICS)."""
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        _, dropped = struct.unpack("II", statistics)
        self._drops += dropped  # the kernel resets its count at each reading
        return self._drops

    def waited(self) -> float:
        """Seconds between the arrival and the reading of the last packet; 0.0 if the kernel has no arrival time.

        The kernel records arrival times from the first query on (socket(7), SIOCGSTAMP).
        """
        try:
            fcntl.ioctl(self.fd, SIOCGSTAMPNS, self._stamp)
        except OSError:
            return 0.0
        seconds, nanoseconds = _STAMP.unpack(self._stamp)
        now = time.time()
        ahead = now - time.monotonic()
        # The kernel's stamps are of the wall clock. If that was set since the last query, this packet may be older.
        step = ahead - self._ahead
        self._ahead = ahead
        arrived: float = seconds + nanoseconds / 1e9
        return max(0.0, now - arrived - max(0.0, step))

    def close(self) -> None:
        self._socket.close()


class Remote:
    """A node of another host, as the target of links: its address, `send` of the trunk's port, and how many packets
    were `sent`; a super-packet counts as its segments."""

    def __init__(self, mac: bytes, send: Callable[[bytes], int]) -> None:
        self.mac = mac
        self.sent = 0
        self._send = send

    def send(self, packet: bytes) -> int:
        size = self._send(packet)
        _, packets = link_size(packet)
        self.sent += packets
        return size


def parse_mac(text: str) -> bytes:
    """Six bytes from "02:ed:00:00:00:0c"; SwitchError for anything else."""
    try:
        mac = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        mac = b""
    if len(mac) != 6:
        raise SwitchError(f"{text!r} is no hardware address; write six bytes like 02:ed:00:00:00:0c")
    return mac


def open_packets(interface: str, *, virtio: bool = False) -> socket.socket:
    """A packet socket on an interface, which does not block. With ``virtio`` packets carry a virtio header. SwitchError
    if that fails."""
    try:
        # Protocol 0 receives nothing yet: all options are set before the first packet can arrive.
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError as error:
        raise SwitchError("packet sockets need CAP_NET_RAW; run as root or within unshare -Urn") from error
    try:
        packets.setsockopt(SOL_PACKET, PACKET_VNET_HDR, int(virtio))
        packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        enlarge_receive_buffer(packets)
        packets.bind((interface, ETH_P_ALL))
    except OSError as error:
        packets.close()
        missing = "no such interface in the switch's network namespace"
        reason = missing if error.errno == errno.ENODEV else error.strerror
        raise SwitchError(f"cannot open {interface}: {reason}") from error
    return packets


def enlarge_receive_buffer(packets: socket.socket) -> None:
    """Make it as large as allowed: SO_RCVBUFFORCE needs CAP_NET_ADMIN on the host, SO_RCVBUF is limited by rmem_max."""
    try:
        packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class Timer:
    """A timer descriptor (timerfd_create(2)) on the clock of time.monotonic(); readable from the armed time on.

    epoll's own timeout has a resolution of milliseconds, which is too coarse; the os module has timerfd only from
    Python 3.13.
    """

    TIMER_ABSTIME = 1

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.fd = self._library.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        spec = _TimerSpec()
        self._value = spec.value  # a view, which keeps `spec` alive
        self._reference = ctypes.byref(spec)
        self._set = self._library.timerfd_settime

    def arm(self, at: float) -> None:
        """Fire at `at` (time.monotonic()), immediately if that has passed. Replaces the previous time."""
        nanoseconds = max(1, int(min(at, FAR) * 1e9))  # zero would disarm
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        self._value.seconds = seconds
        self._value.nanoseconds = rest
        self._set(self.fd, self.TIMER_ABSTIME, self._reference, None)
