"""A unix socket for the user who made it, and for no other: one request and one reply, each a line of JSON.

Two barriers keep others out. The socket's mode is 0600, so only its owner and root can connect (unix(7)). And the
listener asks the kernel for the user id of each peer (SO_PEERCRED), and refuses any id but its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST = 64 * 1024  # bytes of a line
AVAILABLE = hasattr(socket, "SO_PEERCRED")  # only Linux shows the peer's user this way
_CREDENTIALS = struct.Struct("3i")  # process, user and group


def listen(path: Path) -> socket.socket:
    """A socket at ``path`` that listens. OSError if it cannot be made."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _near(path) as address:
            listening.bind(address)
        path.chmod(0o600)
        listening.listen()  # no process can connect before
    except BaseException:
        listening.close()
        raise
    return listening


def user_of(connected: socket.socket) -> int:
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _process, user, _group = _CREDENTIALS.unpack(credentials)
    return int(user)


def user_name(uid: int) -> str:
    """The name of a user; the id if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """Send a request to a socket. Returns the reply, None if the other side went away. OSError without a listener."""
    line = json.dumps(request).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        with _near(path) as address:
            connection.connect(address)
        with connection.makefile("rb") as replies, contextlib.suppress(ConnectionError):
            with contextlib.suppress(BrokenPipeError):  # a refusal may come before the request
                connection.sendall(line)
            reply = json.loads(replies.readline() or b"null")
            if isinstance(reply, dict):
                return reply
    return None


@contextlib.contextmanager
def _near(path: Path) -> Iterator[str]:
    """An address of ``path`` that is short enough: one of a socket has at most 107 bytes (unix(7))."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(path.parent, flags)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
