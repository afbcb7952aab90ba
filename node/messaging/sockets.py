"""What both planes need of ZeroMQ: sockets that an asyncio loop watches, CURVE, and who may pass.

Contexts have threads and do not survive a fork, so nothing here makes one at import.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import zmq
from zmq.utils import z85

from node.assignment import Keypair

logger = logging.getLogger(__name__)

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # RFC 27 of ZeroMQ
_ZAP_VERSION = b"1.0"
_REFUSALS_KEPT = 1000
_LONGEST_SOCKET_PATH = 107  # bytes, unix(7)


def watch(socket: zmq.Socket[bytes], ready: Callable[[], None]) -> Callable[[], None]:
    """Call ``ready`` once, and whenever the socket may have become readable or writable; returns what stops that.

    A ZeroMQ descriptor tells of changes, not of states (zmq_getsockopt(3), ZMQ_FD): ``ready`` must read, and write what
    it has, until the socket refuses; and a write may swallow the news of something to read, so that who does both on
    one socket reads again after each write.
    """
    loop = asyncio.get_running_loop()
    descriptor: int = socket.getsockopt(zmq.FD)  # type: ignore[assignment]

    def run() -> None:
        if not socket.closed:
            socket.getsockopt(zmq.EVENTS)  # takes note of the news, or the descriptor would stay readable
            ready()

    def stop() -> None:
        loop.remove_reader(descriptor)

    loop.add_reader(descriptor, run)
    loop.call_soon(run)
    return stop


def set_client_keys(socket: zmq.Socket[bytes], keys: Keypair, server: str) -> None:
    """Make a socket that is to connect prove ``keys`` and accept the server with this public key only."""
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.curve_serverkey = server.encode()


def set_server_keys(socket: zmq.Socket[bytes], keys: Keypair) -> None:
    """Make a socket that is to bind admit CURVE clients only; who they may be is the `Authenticator`'s to say."""
    socket.curve_server = True
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()


class Authenticator:
    """Answers ZeroMQ's authentication requests in one context: only clients with a listed key pass.

    Every frame from a client that passed carries its name (`sender`). There must be one before a server socket of
    the context binds: without one, libzmq admits every client that has any key.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], names: Mapping[str, str]) -> None:
        """``names`` maps public keys (Z85) to the names of their holders."""
        self._names = dict(names)
        self._refused: set[bytes] = set()  # keys of strangers, who try again and again but are reported once
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
            key = credentials[0] if mechanism == b"CURVE" and len(credentials) == 1 else b""
            name = self._names.get(z85.encode(key).decode()) if key else None
            if name is None and key not in self._refused and len(self._refused) < _REFUSALS_KEPT:
                self._refused.add(key)
                logger.warning("refused a stranger from %s", address.decode(errors="replace"))
            status = (b"200", b"OK", name.encode()) if name else (b"400", b"unknown key", b"")
            self._socket.send_multipart([_ZAP_VERSION, identifier, *status, b""])


def sender(frame: zmq.Frame) -> str:
    """The name that the `Authenticator` gave the client that sent this frame."""
    return str(frame.get("User-Id"))


class Endpoint:
    """Where the control plane is, in words that libzmq takes, however long the path of an ``ipc://`` endpoint.

    A path too long for a unix socket (107 bytes) is reached through the descriptor of its folder, which must stay open
    as long as the socket may connect: ``close`` it after the socket.
    """

    def __init__(self, endpoint: str) -> None:
        self._folder: int | None = None
        self.address = endpoint
        self._path = Path(endpoint.removeprefix("ipc://")) if endpoint.startswith("ipc://") else None
        if self._path is not None and len(os.fsencode(self._path)) > _LONGEST_SOCKET_PATH:
            self._folder = os.open(self._path.parent, os.O_PATH | os.O_CLOEXEC)
            self.address = f"ipc:///proc/self/fd/{self._folder}/{self._path.name}"

    def remove(self) -> None:
        """Remove the file of a socket that was bound here, if it has one."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
