"""The relay of control sockets: a node's connection to the unix socket on its host ends at the orchestrator's socket.

Both ends speak in notices and events ``relay {connection, data}``. The first data of a connection are empty, so that
connections come in the order of their numbers, whichever node speaks first; data of None end it. The bytes are those of
CURVE between node and orchestrator, so the agent between them can neither read nor change messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import select
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from pathlib import Path

from node.messaging.sockets import Endpoint
from orchestrator.together import Tasks

PIECE = 1 << 16  # bytes

Send = Callable[[int, bytes | None], None]


class Relay:
    """One end, at the unix socket ``path``: its connections by number. ``send`` carries bytes to the other end, or None
    for a connection's end."""

    def __init__(self, path: Path, send: Send) -> None:
        self._endpoint = Endpoint(f"ipc://{path}")
        address = self._endpoint.address
        self._path = address.removeprefix("ipc://")
        self._send = send
        self._writers: dict[int, StreamWriter] = {}
        self._tasks = Tasks()

    def take(self, connection: int, data: bytes | None) -> None:
        """Bytes, or the end of the connection, from the other end."""
        writer = self._writers.get(connection)
        if writer is None or writer.is_closing():
            return
        if data is None:
            writer.close()
        elif not _hung_up(writer):
            writer.write(data)

    async def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        await self._tasks.cancel()
        self._endpoint.close()

    async def _pump(self, connection: int, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry what is read to the other end until either end is done."""
        self._writers[connection] = writer
        try:
            with contextlib.suppress(OSError):
                data = await reader.read(PIECE)
                while data:
                    self._send(connection, data)
                    data = await reader.read(PIECE)
        finally:
            del self._writers[connection]
            writer.close()
            self._send(connection, None)


def _hung_up(writer: StreamWriter) -> bool:
    """Whether the reader has gone. A write would then fail, and drop what was sent before and is not read yet."""
    connection = writer.get_extra_info("socket")
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLHUP)
    events = poll.poll(0)
    return bool(events)


class NodesEnd(Relay):
    """The end at the nodes, which connect to the socket."""

    def __init__(self, path: Path, send: Send) -> None:
        super().__init__(path, send)
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await super().close()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        number = next(self._numbers)
        self._send(number, b"")
        await self._pump(number, reader, writer)


class OrchestratorsEnd(Relay):
    """The end at the orchestrator: each connection continues to the socket."""

    def __init__(self, path: Path, send: Send) -> None:
        super().__init__(path, send)
        self._latest = 0
        self._early: dict[int, list[bytes | None]] = {}  # what came before the socket was connected

    def take(self, connection: int, data: bytes | None) -> None:
        if connection in self._early:
            self._early[connection].append(data)
        elif data is not None and connection > self._latest:
            self._latest = connection
            self._early[connection] = [data]
            connecting = self._connect(connection)
            self._tasks.start(connecting)
        else:
            super().take(connection, data)

    async def _connect(self, connection: int) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            del self._early[connection]
            self._send(connection, None)
            return
        self._writers[connection] = writer
        for data in self._early.pop(connection):
            super().take(connection, data)
        await self._pump(connection, reader, writer)
