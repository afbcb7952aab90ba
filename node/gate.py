"""How many connections one machine may hold to a listening socket.

libzmq takes every connection, and keeps for each what its frames announce, up to the largest message, before anybody is
asked who it is. So half-open connections could take all memory and all descriptors. A gate keeps the newest few of each
address: a peer's live connection is its newest, and whoever opens more ends connections of its own address only.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import struct
from collections import defaultdict

import zmq

from node.sockets import watch

# A peer has one, and leaves behind one for each time that it was cut off, until the kernel finds out.
CONNECTIONS = 4

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

    def close(self) -> None:
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

    def _forget(self, descriptor: int) -> None:
        holder = self._holders.pop(descriptor, None)
        if holder is not None:
            self._open[holder].remove(descriptor)
            if not self._open[holder]:
                del self._open[holder]


def _duplicate(descriptor: int) -> socket.socket:
    """A descriptor of our own for a connection of libzmq's. OSError if it is none."""
    return socket.socket(fileno=os.dup(descriptor))


def _holder(connection: socket.socket) -> Holder:
    """OSError if it is not connected, or nobody can say to whom."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, _, _ = _CREDENTIALS.unpack(credentials)
        if not process:
            raise OSError(errno.ESRCH, "it is in a process namespace that is not below ours")
        return f"process {process}", connection.getsockname()
    return connection.getpeername()[0], connection.getsockname()
