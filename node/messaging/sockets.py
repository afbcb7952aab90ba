"""ZeroMQ for the control plane and the data plane: sockets in an asyncio loop, CURVE, and authentication.

Contexts have threads and do not survive a fork, so this module creates none at import.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import zmq
from zmq.utils import z85

from node.assignment import Keypair

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]

logger = logging.getLogger(__name__)

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # RFC 27 of ZeroMQ
_ZAP_VERSION = b"1.0"
_REFUSALS_KEPT = 1000
_LONGEST_SOCKET_PATH = 107  # bytes, unix(7)
_EVENT = struct.Struct("=HI")  # zmq_socket_monitor(3): the event, and its value
_monitors = itertools.count()


def watch(socket: Socket, ready: Callable[[], None]) -> Callable[[], None]:
    """Call ``ready`` once, and whenever the socket may have become readable or writable. Return a function that stops
    the calls.

    A ZeroMQ descriptor is edge-triggered (zmq_getsockopt(3), ZMQ_FD). So ``ready`` must read, and write its data, until
    the socket refuses. A write may consume the notification of readable data. Code that does both on one socket must
    read again after each write.
    """
    loop = asyncio.get_running_loop()
    descriptor: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]

    def run() -> None:
        if not socket.closed:
            socket.getsockopt(zmq.EVENTS)  # processes the notification, or the descriptor would stay readable
            ready()

    def stop() -> None:
        loop.remove_reader(descriptor)

    loop.add_reader(descriptor, run)
    loop.call_soon(run)
    return stop


def watch_events(
    context: Context,
    socket: Socket,
    events: int,
    handle: Callable[[int, int], None],
) -> Callable[[], None]:
    """Call ``handle`` with each of these ``events`` of a socket and its value, zmq_socket_monitor(3). Return a function
    that stops the calls. Call it before the socket is closed."""
    endpoint = f"inproc://events-{next(_monitors)}"
    socket.monitor(endpoint, events)
    reports = context.socket(zmq.PAIR)
    reports.linger = 0
    reports.rcvhwm = 0  # no limit: with one, libzmq's thread would wait for this thread
    reports.connect(endpoint)

    def read() -> None:
        while not reports.closed:
            try:
                frames = reports.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, value = _EVENT.unpack_from(frames[0])
            handle(event, value)

    stop_watching = watch(reports, read)

    def stop() -> None:
        stop_watching()
        if not socket.closed:
            socket.disable_monitor()
        reports.close()

    return stop


def set_client_keys(socket: Socket, keys: Keypair, server: str) -> None:
    """Make a client socket prove ``keys`` and accept only the server with this public key. Call it before connect."""
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.curve_serverkey = server.encode()


def set_server_keys(socket: Socket, keys: Keypair) -> None:
    """Make a server socket admit CURVE clients only. The `Authenticator` decides which. Call it before bind."""
    socket.curve_server = True
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()


class Authenticator:
    """Answers ZeroMQ's authentication requests in one context. Only clients with a listed key are admitted.

    Every frame from an admitted client carries its name (`sender`). Make the authenticator before a server socket of
    the context binds: without it, libzmq admits every client that has any key.
    """

    def __init__(self, context: Context, names: Mapping[str, str]) -> None:
        """``names`` maps public keys (Z85) to the names of their holders."""
        self._names = dict(names)
        self._refused: set[bytes] = set()  # unknown keys; their clients try again and again, but are reported once
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ZAP_ENDPOINT)
        self._stop = watch(self._socket, self._answer)

    def close(self) -> None:
        self._stop()
        self._socket.close()

    def _answer(self) -> None:
        while True:
            try:
                request = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            _version, identifier, _domain, address, _identity, mechanism, *credentials = request
            key = b""
            if mechanism == b"CURVE" and len(credentials) == 1:
                key = credentials[0]
            name = None
            if key:
                encoded = z85.encode(key).decode()
                name = self._names.get(encoded)
            if name is None:
                self._report_refusal(key, address)
            if name:
                status = (b"200", b"OK", name.encode())
            else:
                status = (b"400", b"unknown key", b"")
            self._socket.send_multipart([_ZAP_VERSION, identifier, *status, b""])

    def _report_refusal(self, key: bytes, address: bytes) -> None:
        if key in self._refused or len(self._refused) >= _REFUSALS_KEPT:
            return
        self._refused.add(key)
        logger.warning("refused a stranger from %s", address.decode(errors="replace"))


def sender(frame: zmq.Frame) -> str:
    """The name that the `Authenticator` gave the client that sent this frame."""
    return str(frame.get("User-Id"))


class Endpoint:
    """The address of the control plane for libzmq, for any length of the path of an ``ipc://`` endpoint.

    A path too long for a unix socket (107 bytes) is reached through the descriptor of its folder. The descriptor must
    stay open as long as the socket may connect: ``close`` it after the socket.
    """

    def __init__(self, endpoint: str) -> None:
        self._folder: int | None = None
        self._path: Path | None = None
        self.address = endpoint
        if not endpoint.startswith("ipc://"):
            return
        self._path = Path(endpoint.removeprefix("ipc://"))
        length = len(os.fsencode(self._path))
        if length > _LONGEST_SOCKET_PATH:
            flags = os.O_PATH | os.O_CLOEXEC
            self._folder = os.open(self._path.parent, flags)
            self.address = f"ipc:///proc/self/fd/{self._folder}/{self._path.name}"

    def remove(self) -> None:
        """Remove the file of the socket that was bound to this address, if there is one."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
