"""Every transport of `node` against the same cases."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest
import zmq

from node.assignment import Assignment, DataAssignment, Keypair, PeerAddress, Stop
from node.messaging.delivery.pair import Delay
from node.messaging.memory import MemoryNetwork
from node.messaging.transport import Transport, ZmqTransport
from node.runtime.clock import run_virtual
from tests.conformance.transports import CASES, TIMEOUTS, Case
from tests.node.assignments import free_port, make_keys


class Metered(Delay):
    """A flow of 1 ms that carries ``rate`` bytes a second."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.rate = math.inf
        self._free = 0.0

    def send(self, now: float, size: int) -> float:
        self._free = max(self._free, now) + size / self.rate
        return super().send(self._free, size)


class Memory:
    """Nodes in one process, on virtual time; a packet takes 1 ms."""

    def __init__(self) -> None:
        self._flows: defaultdict[tuple[str, str], Metered] = defaultdict(Metered)
        self._network = MemoryNetwork(lambda source, target: self._flows[source, target])

    def node(self, name: str, *peers: str, incarnation: str = "first") -> Transport:
        return self._network.transport(name, peers, timeouts=TIMEOUTS)

    def cut(self, one: str, other: str) -> None:
        for ends in ((one, other), (other, one)):
            self._network.cut(*ends)

    def heal(self, one: str, other: str) -> None:
        for ends in ((one, other), (other, one)):
            self._network.restore(*ends)

    def limit(self, one: str, other: str, rate: float) -> None:
        self._flows[one, other].rate = self._flows[other, one].rate = rate


class Relay:
    """A TCP relay on loopback to the port ``target``; while cut it takes no connections and moves no bytes."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.rate = math.inf  # bytes per second and direction
        self._target = target
        self._open = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[socket.socket] = []
        self.listen()

    def listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.setblocking(False)
        self._open.set()
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def cut(self) -> None:
        self._open.clear()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    async def close(self) -> None:
        if self._open.is_set():
            self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        self._spawn(self._relay(connection))

    async def _relay(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection, socket.socket() as onward:
            for each in (connection, onward):
                each.setblocking(False)
            with contextlib.suppress(OSError):
                await loop.sock_connect(onward, ("127.0.0.1", self._target))
                pipes = [self._spawn(self._pipe(*ends)) for ends in ((connection, onward), (onward, connection))]
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                for pipe in pipes:
                    pipe.cancel()
                await asyncio.gather(*pipes, return_exceptions=True)

    async def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, 1 << 16):
                await self._open.wait()
                await asyncio.sleep(len(data) / self.rate)
                await loop.sock_sendall(target, data)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Loopback:
    """Nodes with ZeroMQ sockets on 127.0.0.1; what goes from one to another goes through a `Relay`."""

    def __init__(self) -> None:
        self._keys: defaultdict[str, Keypair] = defaultdict(make_keys)
        self._ports: defaultdict[str, int] = defaultdict(free_port)
        self._relays: dict[tuple[str, str], Relay] = {}
        self._contexts: list[zmq.Context[zmq.Socket[bytes]]] = []

    def node(self, name: str, *peers: str, incarnation: str = "first") -> Transport:
        assignment = Assignment(
            run="test",
            node=name,
            tier="edge",
            index=1,
            seed=1,
            host="127.0.0.1",
            port=self._ports[name],
            keys=self._keys[name],
            control_endpoint="",
            control_key="",
            algorithm="fedavg",
            model="cnn",
            leads=False,
            peers=tuple(self._address(name, peer) for peer in peers),
            stop=Stop(rounds=1),
            checkpoint_directory="",
            data=DataAssignment(dataset="digits", directory="", shards=""),
            timeouts=TIMEOUTS,
        )
        self._contexts.append(zmq.Context())
        return ZmqTransport(assignment, incarnation, self._contexts[-1])

    def cut(self, one: str, other: str) -> None:
        for ends in ((one, other), (other, one)):
            self._relays[ends].cut()

    def heal(self, one: str, other: str) -> None:
        for ends in ((one, other), (other, one)):
            self._relays[ends].listen()

    def limit(self, one: str, other: str, rate: float) -> None:
        for ends in ((one, other), (other, one)):
            self._relays[ends].rate = rate

    async def close(self) -> None:
        for relay in self._relays.values():
            await relay.close()
        for context in self._contexts:
            context.destroy(linger=0)

    def _address(self, name: str, peer: str) -> PeerAddress:
        if (name, peer) not in self._relays:
            self._relays[name, peer] = Relay(self._ports[peer])
        return PeerAddress(
            name=peer,
            tier="edge",
            relation="neighbour",
            host="127.0.0.1",
            port=self._relays[name, peer].port,
            public_key=self._keys[peer].public,
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_memory(case: Case) -> None:
    async def run() -> None:
        await case(Memory())

    run_virtual(run())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_zmq(case: Case) -> None:
    async def run() -> None:
        network = Loopback()
        try:
            await case(network)
        finally:
            await network.close()

    asyncio.run(run())
