"""The socket on which a running orchestrator takes commands: a line of JSON for each request, and one for its reply.

Only the run's own user is served, see `orchestrator.host.process.user_socket`. No timer is set here: on a virtual clock
that would change the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from netem.userspace.console import answer
from orchestrator.host.process import user_socket
from orchestrator.run.context import RunContext
from orchestrator.together import Tasks

Operations = Mapping[str, Callable[..., dict[str, Any]]]
AT_ONCE = 32  # connections; further ones are closed
OVER = {"error": "the run is over"}


@contextlib.asynccontextmanager
async def accept_commands(run: RunContext, operations: Callable[[int], Operations]) -> AsyncIterator[None]:
    """Accept commands while the body runs. ``operations``: those of a user, by name. If this host has no such sockets,
    it accepts none. If it refuses one, the record has a note."""
    path = run.directory.commands
    if not user_socket.AVAILABLE:
        yield
        return
    try:
        listening = user_socket.listen(path)
    except OSError as error:
        run.note(f"this run takes no manual faults: {path} cannot be made ({error.strerror})")
        yield
        return
    connections = Tasks()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            uid = user_socket.user_of(writer.get_extra_info("socket"))
            if uid != os.geteuid():
                owner = user_socket.user_name(os.geteuid())
                _send(writer, {"error": f"this run belongs to {owner}"})
            elif len(connections.running) <= AT_ONCE:
                await _answer_all(operations(uid), reader, writer)
        except (OSError, ValueError):
            pass  # the other side is gone, or its line is too long
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.start(converse(reader, writer))

    server = await asyncio.start_unix_server(accept, sock=listening, limit=user_socket.LONGEST)
    try:
        yield
    finally:
        server.close()
        with contextlib.suppress(OSError):
            path.unlink()
        await connections.cancel()  # a request that waits for its reply learns that the run is over


async def _answer_all(operations: Operations, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            return
        try:
            reply = await _reply(line, operations)
            _send(writer, reply)
        except asyncio.CancelledError:
            _send(writer, OVER)
            raise
        await writer.drain()


async def _reply(line: bytes, operations: Operations) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    try:
        reply = answer(request, operations)
        work = reply.pop("work", None)
        if work is not None:
            reply |= await work
        return reply
    except Exception as error:  # the run continues, whatever a request does
        return {"error": f"{type(error).__name__}: {error} (a bug of edgebed: please report it)"}


def _send(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    line = json.dumps(reply).encode() + b"\n"
    writer.write(line)
