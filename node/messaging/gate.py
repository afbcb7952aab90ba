"""Limits on the connections of one machine to a listening socket.

libzmq accepts every connection. It allocates what the frames of each announce, up to the largest message, before it
authenticates the client. So half-open connections could take all memory and all descriptors. A gate keeps the newest
few connections of each address. A peer's live connection is its newest. A machine that opens more ends only connections
of its own address.

libzmq does not limit a message of many frames either, and delivers none of them before the last has arrived. So a gate
also compares the bytes that libzmq has taken from an address with the bytes delivered. It ends the connections of the
address when too many bytes are missing. It looks only after bytes have come: a thousand idle nodes that looked once a
second would use a third of a processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import struct
import termios
from collections import Counter, defaultdict

import zmq

from node.messaging.sockets import Context, Socket, watch_events

logger = logging.getLogger(__name__)

# A peer has one, plus one for each time that it was cut off, until the kernel closes the old connection.
CONNECTIONS = 4

UNDELIVERED = 64 << 20  # bytes; the largest packets that may wait in libzmq are a tenth of that
_OVERHEAD = 256  # bytes of a packet besides its frames, at most: RFC 23 and 26 of ZeroMQ
_LOOK = 1.0  # s from the arrival of bytes to a look
_SELDOM = 10.0  # s to a look without: libzmq may read what comes before this thread notices it

_RECEIVED = struct.Struct("=128xQ")  # <linux/tcp.h>, tcpi_bytes_received of tcp_info
_UNREAD = struct.Struct("i")  # tcp(7), SIOCINQ
_CREDENTIALS = struct.Struct("iII")  # unix(7), SO_PEERCRED: process, user, group


Holder = tuple[str, object]  # holder of a connection, and the local address, which excludes connections made here


class Gate:
    """Ends the oldest connections of one address, or of one process of this machine, if there are more than ``most``.

    Make it before ``listener`` binds, and close it before the listener.
    """

    def __init__(
        self,
        context: Context,
        listener: Socket,
        most: int = CONNECTIONS,
    ) -> None:
        self._most = most
        self._open: defaultdict[Holder, list[int]] = defaultdict(list)  # descriptors, oldest first
        self._holders: dict[int, Holder] = {}
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        self._stop = watch_events(context, listener, events, self._handle)
        self._came = asyncio.Event()  # bytes, or a connection
        self._tcp: dict[int, socket.socket] = {}  # duplicates of the TCP connections, by descriptor
        self._taken: Counter[int] = Counter()  # bytes by descriptor
        self._delivered: Counter[str] = Counter()  # bytes by host since the last check
        self._missing: Counter[str] = Counter()
        self._looking = asyncio.create_task(self._look())

    def delivered(self, host: str, size: int) -> None:
        """Account for a complete packet of ``size`` bytes from this host."""
        self._delivered[host] += size + _OVERHEAD

    def close(self) -> None:
        self._looking.cancel()
        for descriptor in list(self._tcp):
            self._forget(descriptor)
        self._stop()

    def _handle(self, event: int, descriptor: int) -> None:
        self._forget(descriptor)
        if event == zmq.EVENT_ACCEPTED:
            self._accept(descriptor)

    def _accept(self, descriptor: int) -> None:
        # libzmq may have closed the descriptor, and its number may be reused: then no holder or another one is found.
        with contextlib.suppress(OSError), _duplicate(descriptor) as connection:
            holder = _holder(connection)
            self._holders[descriptor] = holder
            self._open[holder].append(descriptor)
            if connection.family != socket.AF_UNIX:
                self._tcp[descriptor] = _duplicate(descriptor)  # socket.dup would make it wait
                self._came.set()
            if len(self._open[holder]) > self._most:
                oldest = self._open[holder][0]
                self._end(oldest)

    def _end(self, descriptor: int) -> None:
        holder = self._holders[descriptor]
        self._forget(descriptor)
        with contextlib.suppress(OSError), _duplicate(descriptor) as connection:
            if _holder(connection) == holder:
                connection.shutdown(socket.SHUT_RDWR)  # libzmq sees the end, and closes the connection

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._came.clear()
            for connection in self._tcp.values():
                loop.add_reader(connection, self._came.set)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SELDOM):
                    await self._came.wait()
            for connection in self._tcp.values():
                loop.remove_reader(connection)
            await asyncio.sleep(_LOOK)
            self._compare()

    def _compare(self) -> None:
        """Compare what libzmq has taken since the last call with what was delivered."""
        growth: Counter[str] = Counter()
        for host, size in self._delivered.items():
            growth[host] = -size
        self._delivered.clear()
        for descriptor, connection in self._tcp.items():
            with contextlib.suppress(OSError):
                taken = _taken(connection)
                host, _ = self._holders[descriptor]
                growth[host] += taken - self._taken[descriptor]
                self._taken[descriptor] = taken
        for host, size in growth.items():
            missing = max(0, self._missing[host] + size)
            self._missing[host] = missing
            if missing > UNDELIVERED:
                self._end_all(host)

    def _end_all(self, host: str) -> None:
        missing = self._missing[host]
        logger.warning("%s: ended its connections; %d bytes of them were no complete packet", host, missing)
        self._missing[host] = 0
        for descriptor, holder in list(self._holders.items()):
            if holder[0] == host:
                self._end(descriptor)

    def _forget(self, descriptor: int) -> None:
        holder = self._holders.pop(descriptor, None)
        self._taken.pop(descriptor, None)
        connection = self._tcp.pop(descriptor, None)
        if connection is not None:
            asyncio.get_running_loop().remove_reader(connection)
            connection.close()
        if holder is not None:
            self._open[holder].remove(descriptor)
            if not self._open[holder]:
                del self._open[holder]


def _duplicate(descriptor: int) -> socket.socket:
    """A duplicate of the descriptor of a libzmq connection. OSError if the descriptor is no socket."""
    copy = os.dup(descriptor)
    return socket.socket(fileno=copy)


def _taken(connection: socket.socket) -> int:
    """The number of bytes libzmq has taken from a TCP connection. OSError if it is not connected.

    The kernel's receive buffer, up to net.ipv4.tcp_rmem, is not counted: the sender is not responsible for it."""
    data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
    received: int = _RECEIVED.unpack(data)[0]
    empty = bytes(_UNREAD.size)
    answer = fcntl.ioctl(connection, termios.FIONREAD, empty)
    unread: int = _UNREAD.unpack(answer)[0]
    return received - unread  # too low by the bytes that came between the two calls; right again at the next check


def _holder(connection: socket.socket) -> Holder:
    """The holder of a connection. OSError if it is not connected, or its peer cannot be identified."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, _, _ = _CREDENTIALS.unpack(credentials)
        if not process:
            raise OSError(errno.ESRCH, "it is in a process namespace that is not below ours")
        return f"process {process}", connection.getsockname()
    host = connection.getpeername()[0]
    return host, connection.getsockname()
