"""The relay of control sockets, both ends in one process; a node registers through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from orchestrator.drivers.hosts.agents.relay import NodesEnd, OrchestratorsEnd

PATIENCE = 20.0  # s


class Pair:
    """Both ends, joined by two queues as by a network, and the socket of an orchestrator that echoes."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "inside", folder / "outside"
        self.ended: list[int] = []
        self.said = b""
        self.nodes = NodesEnd(self.inside, self._up)
        self.orchestrators = OrchestratorsEnd(self.outside, self._down)

    def _up(self, connection: int, data: bytes | None) -> None:
        self.said += data or b""
        asyncio.get_running_loop().call_soon(self.orchestrators.take, connection, data)

    def _down(self, connection: int, data: bytes | None) -> None:
        if data is None:
            self.ended.append(connection)
        asyncio.get_running_loop().call_soon(self.nodes.take, connection, data)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def ended(pair: Pair, connection: int) -> None:
    """Wait until the orchestrator's end has ended this connection, and no other."""
    async with asyncio.timeout(PATIENCE):
        while pair.ended != [connection]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.nodes.close)
        stack.push_async_callback(made.orchestrators.close)
        server = await asyncio.start_unix_server(echo, made.outside)
        stack.callback(server.close)
        await made.nodes.listen()
        yield made


async def test_connections_are_carried_apart(pair: Pair) -> None:
    ends = [await asyncio.open_unix_connection(pair.inside) for _ in range(3)]
    for number, (_, writer) in enumerate(ends):
        writer.write(bytes([number]) * 300_000)
    for number, (reader, writer) in enumerate(ends):
        assert await asyncio.wait_for(reader.readexactly(300_000), PATIENCE) == bytes([number]) * 300_000
        writer.close()


async def test_connections_may_speak_in_any_order(pair: Pair) -> None:
    ends = [await asyncio.open_unix_connection(pair.inside) for _ in range(3)]
    for number in (2, 0, 1):
        reader, writer = ends[number]
        writer.write(bytes([number]))
        assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == bytes([number])
        writer.close()


async def test_a_connection_that_ends_before_the_orchestrator_is_reached_ends_there(pair: Pair) -> None:
    _, writer = await asyncio.open_unix_connection(pair.inside)
    writer.close()
    await ended(pair, 1)


async def test_the_end_of_a_connection_is_carried_both_ways(pair: Pair) -> None:
    reader, writer = await asyncio.open_unix_connection(pair.inside)
    writer.write(b"x")
    assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"x"
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    await ended(pair, 1)
    writer.close()


async def test_what_a_node_has_said_is_carried_though_it_takes_nothing_any_more(pair: Pair) -> None:
    reader, writer = await asyncio.open_unix_connection(pair.inside)
    writer.write(b"x")
    assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"x"
    writer.write(b"last words")  # at once: there is room
    writer.close()
    await asyncio.sleep(0)  # now it is closed, and nothing of it was read
    pair.nodes.take(1, b"a beat")
    await ended(pair, 1)
    assert pair.said == b"xlast words"


async def test_without_an_orchestrator_the_connection_ends(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    await pair.nodes.listen()
    reader, writer = await asyncio.open_unix_connection(pair.inside)
    writer.write(b"x")
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    writer.close()
    await pair.nodes.close()
    await pair.orchestrators.close()
