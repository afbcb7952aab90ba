"""Connections that never become anything: what they cost a node, and that they keep nobody out."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import zmq

from node.messaging.control import ControlServer
from node.messaging.delivery.association import Joined, Received
from node.messaging.gate import CONNECTIONS, Gate
from node.messaging.sockets import set_client_keys
from node.messaging.transport import ZmqTransport
from node.messaging.wire import Message
from node.resources import resident_bytes
from node.runtime.clock import run_virtual
from tests.node.assignments import Nodes, make_keys

PATIENCE = 20.0
NUMBER = 300
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)  # RFC 23 of ZeroMQ
ANNOUNCED = b"\x06" + (700_000).to_bytes(8, "big") + bytes(100_000)  # the beginning of a long command
HALVES = {"silent": b"", "greeting": GREETING, "announced": GREETING + ANNOUNCED, "garbage": b"GET / HTTP/1.1\r\n\r\n"}


class Target:
    """A node that listens on loopback, where its one peer has an address, too."""

    def __init__(self) -> None:
        self.nodes = Nodes("edge-0", "edge-1")
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.other: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.transport = ZmqTransport(self.nodes.assignment("edge-0", {"edge-1": "neighbour"}), "first", self.context)
        self.peer = ZmqTransport(self.nodes.assignment("edge-1", {"edge-0": "neighbour"}), "first", self.other)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        port = self.nodes.ports["edge-0"]
        return socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(source, 0))


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made = Target()
    await made.transport.start()
    yield made
    await made.transport.close()
    for context in (made.context, made.other):
        context.destroy(linger=0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def held(port: int) -> int:
    """How many connections to this port are open at the end that accepted them (proc_net_tcp: 01 established, 08 of
    which the other end is closed)."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] in ("01", "08") for row in rows)


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the kernel does not tell
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_half_open_connections_take_little_and_keep_no_one_out(target: Target, half: bytes) -> None:
    loop = asyncio.get_running_loop()
    port, resident = target.nodes.ports["edge-0"], resident_bytes()
    with ExitStack() as stack:

        def attack() -> None:
            connection = stack.enter_context(target.connect())
            with suppress(OSError):  # ended already
                connection.sendall(half)

        for _ in range(NUMBER):
            await loop.run_in_executor(None, attack)
        await target.peer.start()
        async with asyncio.timeout(PATIENCE):
            assert await target.transport.receive() == Joined("edge-1")
            assert await target.peer.receive() == Joined("edge-0")
        # All were accepted, for the peer was, who came last.
        await until(lambda: held(port) <= 50, "the end of the older ones")
        await target.peer.close()
    assert resident_bytes() - resident < 15e6  # without a bound what was sent, NUMBER times: 30 MB
    await until(lambda: held(port) <= CONNECTIONS, "the end of all of them")


async def test_what_never_becomes_a_packet_is_ended(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of many frames, of which libzmq hands over none before it has all."""
    monkeypatch.setattr("node.messaging.gate.UNDELIVERED", 8 << 20)
    monkeypatch.setattr("node.messaging.gate._LOOK", 0.01)
    pushing = target.other.socket(zmq.PUSH)
    set_client_keys(pushing, target.nodes.keys["edge-1"], target.nodes.keys["edge-0"].public)
    pushing.connect(f"tcp://127.0.0.1:{target.nodes.ports['edge-0']}")
    ended = pushing.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    pushing.send_multipart([bytes(500_000)] * 200)
    assert await asyncio.to_thread(ended.poll, int(1000 * PATIENCE))
    pushing.disable_monitor()
    ended.close(0)
    pushing.close(0)


async def test_what_becomes_packets_is_let_in_whatever_it_is(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.gate.UNDELIVERED", 8 << 20)
    monkeypatch.setattr("node.messaging.gate._LOOK", 0.01)
    await target.peer.start()
    async with asyncio.timeout(PATIENCE):
        assert await target.transport.receive() == Joined("edge-1")
        for number in range(20):
            await target.peer.send(["edge-0"], Message("model", "edge-1", number, {}, {"w": np.zeros(1_000_000)}))
        for number in range(20):
            event = await target.transport.receive()
            assert isinstance(event, Received)
            assert event.message.round == number
    await target.peer.close()


async def test_a_node_to_which_nothing_comes_does_not_look(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look costs a node that is asleep about 0.3 ms."""
    monkeypatch.setattr("node.messaging.gate._LOOK", 0.01)
    looks: list[socket.socket] = []

    def taken(connection: socket.socket) -> int:
        looks.append(connection)
        return 0

    monkeypatch.setattr("node.messaging.gate._taken", taken)
    coming = iter(GREETING)
    with target.connect() as neighbour:

        def seen_after_a_byte() -> bool:  # libzmq may read some before they are noticed
            neighbour.sendall(bytes([next(coming)]))
            return len(looks) > 1

        await until(lambda: len(looks) == 1, "a look at the new connection")
        await asyncio.sleep(0.2)
        assert len(looks) == 1
        await until(seen_after_a_byte, "a look at what came")


async def test_who_has_no_peers_address_is_not_let_in(target: Target) -> None:
    loop = asyncio.get_running_loop()
    with target.connect("127.0.0.2") as stranger, suppress(ConnectionResetError):
        assert await loop.run_in_executor(None, stranger.recv, 1) == b""
    with target.connect() as neighbour:
        assert await loop.run_in_executor(None, neighbour.recv, 1) == b"\xff"  # a greeting


async def test_the_control_plane_keeps_as_many_of_one_process_as_its_nodes_may_need(tmp_path: Path) -> None:
    path = tmp_path / "control"
    nodes = {name: make_keys().public for name in ("edge-0", "edge-1")}
    server = ControlServer(f"ipc://{path}", make_keys(), nodes)
    before = descriptors()
    with ExitStack() as stack:
        for _ in range(10 * CONNECTIONS):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(path))
            await asyncio.sleep(0)
        await until(lambda: descriptors() == before + 12 * CONNECTIONS, "the end of the older ones")
    await until(lambda: descriptors() == before, "the end of all of them")
    await server.close()


async def test_more_than_64_mib_that_are_no_packets_end_the_connections_of_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two connections of one address, and one of another. A packet of 1,000 bytes may have 256 more on its way."""
    monkeypatch.setattr("node.messaging.gate.watch_events", lambda *_: lambda: None)
    taken: dict[int, int] = dict.fromkeys((5, 6, 7), 0)
    monkeypatch.setattr("node.messaging.gate._taken", taken.__getitem__)
    ended: list[int] = []
    gate = Gate(None, None)  # type: ignore[arg-type]
    gate._holders = {5: ("10.0.0.1", ""), 6: ("10.0.0.1", ""), 7: ("10.0.0.2", "")}
    gate._tcp = {descriptor: descriptor for descriptor in taken}  # type: ignore[misc]
    monkeypatch.setattr(gate, "_end", ended.append)

    def compared(growth: dict[int, int], packets: int = 0) -> list[int]:
        ended.clear()
        for descriptor, size in growth.items():
            taken[descriptor] += size
        for _ in range(packets):
            gate.delivered("10.0.0.1", 1000)
        gate._compare()
        return list(ended)

    assert compared({5: 32 << 20, 6: 32 << 20, 7: 64 << 20}) == []
    assert compared({5: 1255}, packets=1) == []  # one byte less is missing
    assert compared({6: 1}) == []
    assert compared({6: 1}) == [5, 6]
    assert compared({5: 64 << 20}) == []  # from 0 again
    assert compared({5: 1256}, packets=1) == []
    assert compared({7: 1}) == [7]
    assert compared({5: 0}, packets=1) == []
    assert compared({5: 1256}) == []  # what was delivered before it was counted
    assert compared({5: 1}, packets=0) == [5, 6]
    assert compared({}, packets=5) == []
    assert compared({5: 64 << 20}) == []  # nothing is saved up
    assert compared({5: 1}) == [5, 6]
    gate._tcp.clear()
    gate.close()


def test_a_gate_looks_a_second_after_bytes_came_or_after_ten_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.gate.watch_events", lambda *_: lambda: None)
    looks: list[float] = []

    async def watch() -> None:
        gate = Gate(None, None)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(gate, "_compare", lambda: looks.append(loop.time()))
        loop.call_later(15.0, gate._came.set)
        await asyncio.sleep(30.0)
        gate.close()

    run_virtual(watch())
    assert looks == [11.0, 16.0, 27.0]
