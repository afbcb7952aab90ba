"""How many connections one machine may hold to a listening socket.

libzmq takes every connection, and keeps for each what its frames announce, up to the largest message, before anybody is
asked who it is. So half-open connections could take all memory and all descriptors. A gate keeps the newest few of each
address: a peer's live connection is its newest, and whoever opens more ends connections of its own address only.

Nor does libzmq bound a message of many frames, of which it hands over none before the last has come. So a gate also
compares what libzmq has taken from an address with what was delivered of it, and ends its connections when too much is
missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import logging
import os
import socket
import struct
import termios
from collections import Counter, defaultdict

import zmq

from node.messaging.sockets import watch

logger = logging.getLogger(__name__)

# A peer has one, and leaves behind one for each time that it was cut off, until the kernel finds out.
CONNECTIONS = 4

UNDELIVERED = 64 << 20  # bytes; the largest packets that may wait in libzmq are a tenth of that
_OVERHEAD = 256  # bytes that a packet has beside its frames, at most: RFC 23 and 26 of ZeroMQ
_LOOK = 1.0  # s

_RECEIVED = struct.Struct("=128xQ")  # <linux/tcp.h>, tcpi_bytes_received of tcp_info
_UNREAD = struct.Struct("i")  # tcp(7), SIOCINQ
_EVENT = struct.Struct("=HI")  # zmq_socket_monitor(3): the event, and its value, which is a descriptor
_CREDENTIALS = struct.Struct("iII")  # unix(7), SO_PEERCRED: process, user, group
_numbers = itertools.count()


Holder = tuple[str, object]  # who holds a connection, and our own end's address, which tells it from one we made


class Gate:
    """Ends the oldest of more than ``most`` connections of one address, or of one process of this machine.

    Make it before ``listener`` binds, and close it before the listener is closed.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], listener: zmq.Socket[bytes], most: int = CONNECTIONS
    ) -> None:
        self._listener = listener
        self._most = most
        self._open: defaultdict[Holder, list[int]] = defaultdict(list)  # descriptors, the oldest first
        self._holders: dict[int, Holder] = {}
        endpoint = f"inproc://gate-{next(_numbers)}"
        listener.monitor(endpoint, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._events = context.socket(zmq.PAIR)
        self._events.linger = 0
        self._events.rcvhwm = 0  # no limit: libzmq's own thread would wait for this one
        self._events.connect(endpoint)
        self._stop = watch(self._events, self._read)
        self._taken: dict[int, int] = {}  # bytes, by descriptor
        self._delivered: Counter[str] = Counter()  # by host, since the last look
        self._missing: Counter[str] = Counter()
        self._looking = asyncio.create_task(self._look())

    def delivered(self, host: str, size: int) -> None:
        """A packet of so many bytes of this host arrived whole."""
        self._delivered[host] += size + _OVERHEAD

    def close(self) -> None:
        self._looking.cancel()
        self._stop()
        self._listener.disable_monitor()
        self._events.close()

    def _read(self) -> None:
        while not self._events.closed:
            try:
                frame, *_ = self._events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, descriptor = _EVENT.unpack_from(frame)
            self._forget(descriptor)
            if event == zmq.EVENT_ACCEPTED:
                self._accept(descriptor)

    def _accept(self, descriptor: int) -> None:
        # libzmq may have closed it already, and its number may be another's: then nobody is found, or somebody else.
        with contextlib.suppress(OSError), _duplicate(descriptor) as connection:
            holder = self._holders[descriptor] = _holder(connection)
            self._open[holder].append(descriptor)
            if len(self._open[holder]) > self._most:
                self._end(self._open[holder][0])

    def _end(self, descriptor: int) -> None:
        holder = self._holders[descriptor]
        self._forget(descriptor)
        with contextlib.suppress(OSError), _duplicate(descriptor) as connection:
            if _holder(connection) == holder:
                connection.shutdown(socket.SHUT_RDWR)  # libzmq hears of it, and lets go

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            news = Counter({host: -size for host, size in self._delivered.items()})
            self._delivered.clear()
            for descriptor, (host, _) in self._holders.items():
                with contextlib.suppress(OSError), _duplicate(descriptor) as connection:
                    if connection.family != socket.AF_UNIX:
                        taken = _taken(connection)
                        news[host] += taken - self._taken.get(descriptor, 0)
                        self._taken[descriptor] = taken
            for host, size in news.items():
                self._missing[host] = max(0, self._missing[host] + size)
                if self._missing[host] > UNDELIVERED:
                    self._end_all(host)

    def _end_all(self, host: str) -> None:
        logger.warning("%s: ended its connections, of which %d bytes never became a packet", host, self._missing[host])
        self._missing[host] = 0
        for descriptor in [each for each, (holder, _) in self._holders.items() if holder == host]:
            self._end(descriptor)

    def _forget(self, descriptor: int) -> None:
        holder = self._holders.pop(descriptor, None)
        self._taken.pop(descriptor, None)
        if holder is not None:
            self._open[holder].remove(descriptor)
            if not self._open[holder]:
                del self._open[holder]


def _duplicate(descriptor: int) -> socket.socket:
    """A descriptor of our own for a connection of libzmq's. OSError if it is none."""
    return socket.socket(fileno=os.dup(descriptor))


def _taken(connection: socket.socket) -> int:
    """How many bytes libzmq has taken from a TCP connection: what the kernel still keeps, as much as
    net.ipv4.tcp_rmem lets it, is no doing of the sender's. OSError if it is not connected."""
    data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
    received: int = _RECEIVED.unpack(data)[0]
    unread: int = _UNREAD.unpack(fcntl.ioctl(connection, termios.FIONREAD, bytes(_UNREAD.size)))[0]
    return received - unread  # counted too low by what came between the two, and right again at the next look


def _holder(connection: socket.socket) -> Holder:
    """OSError if it is not connected, or nobody can say to whom."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, _, _ = _CREDENTIALS.unpack(credentials)
        if not process:
            raise OSError(errno.ESRCH, "it is in a process namespace that is not below ours")
        return f"process {process}", connection.getsockname()
    return connection.getpeername()[0], connection.getsockname()
