"""What is particular to the ZeroMQ transport; what all transports share is in tests/conformance."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import zmq

from node.errors import TransportError
from node.messaging.delivery.association import BadMessage, Joined, Lost
from node.messaging.gate import CONNECTIONS, Gate
from node.messaging.sockets import set_client_keys
from node.messaging.transport import ZmqTransport
from tests.node.assignments import Nodes

PATIENCE = 10.0


class World:
    """Two nodes on loopback that know each other, and contexts that are gone at the end."""

    def __init__(self) -> None:
        self.nodes = Nodes("edge-0", "edge-1")
        self.contexts: list[zmq.Context[zmq.Socket[bytes]]] = []
        self.assignments = {
            "edge-0": self.nodes.assignment("edge-0", {"edge-1": "neighbour"}),
            "edge-1": self.nodes.assignment("edge-1", {"edge-0": "neighbour"}),
        }

    def context(self) -> zmq.Context[zmq.Socket[bytes]]:
        self.contexts.append(zmq.Context())
        return self.contexts[-1]

    def transport(self, name: str) -> ZmqTransport:
        return ZmqTransport(self.assignments[name], "first", self.context())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for context in made.contexts:
        context.destroy(linger=0)


async def test_an_address_that_comes_later_is_waited_for(world: World) -> None:
    a, b = world.transport("edge-0"), world.transport("edge-1")
    port = world.nodes.ports["edge-0"]
    with socket.create_server(("127.0.0.1", port)):
        starting = asyncio.create_task(a.start())
        await b.start()
        await asyncio.sleep(0)  # the first attempt
        assert not starting.done()
    async with asyncio.timeout(PATIENCE):
        await starting
        assert await b.receive() == Joined("edge-0")
    await a.close()
    await b.close()


async def test_an_address_that_never_comes_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.transport._ADDRESS_PATIENCE", 0.0)
    world.assignments["edge-0"] = replace(world.assignments["edge-0"], host="192.0.2.1")  # RFC 5737: nobody's
    with pytest.raises(TransportError, match=r"edge-0: cannot listen on tcp://192\.0\.2\.1:\d+ .*is data0 attached\?"):
        await world.transport("edge-0").start()


async def test_junk_of_a_peer_costs_an_event(world: World) -> None:
    a = world.transport("edge-0")
    await a.start()
    junk = world.context().socket(zmq.PUSH)
    set_client_keys(junk, world.nodes.keys["edge-1"], world.nodes.keys["edge-0"].public)
    junk.connect(f"tcp://127.0.0.1:{world.nodes.ports['edge-0']}")
    for frames in ([b""], [b"x" * 40], [b"x"] * 5):
        junk.send_multipart(frames)
    async with asyncio.timeout(PATIENCE):
        events = [await a.receive() for _ in range(3)]
    assert all(isinstance(event, BadMessage) and event.peer == "edge-1" for event in events)
    junk.close(0)
    await a.close()


async def test_peers_at_one_address_keep_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one peer may have connections."""
    ended: list[int] = []
    monkeypatch.setattr(Gate, "_end", lambda gate, descriptor: ended.append(descriptor))
    devices = [f"device-{place}" for place in range(CONNECTIONS + 2)]
    nodes, contexts = Nodes("cloud", *devices), [zmq.Context[zmq.Socket[bytes]]() for _ in range(len(devices) + 1)]
    below = nodes.assignment("cloud", {name: "child" for name in devices})
    assignments = [below, *(nodes.assignment(name, {"cloud": "parent"}) for name in devices)]
    cloud, *others = [ZmqTransport(each, "first", own) for each, own in zip(assignments, contexts, strict=True)]
    async with asyncio.timeout(PATIENCE):
        for each in (cloud, *others):
            await each.start()
        assert {await cloud.receive() for _ in devices} == {Joined(name) for name in devices}
        for each in others:
            assert await each.receive() == Joined("cloud")
    for each in (cloud, *others):
        await each.close()
    for context in contexts:
        context.destroy(linger=0)
    assert not ended


async def once_free(host: str, port: int) -> socket.socket:
    """A listener at an address that another one leaves: ZeroMQ closes its listeners a while after unbind() returned."""
    while True:
        try:
            return socket.create_server((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        await asyncio.sleep(0.01)


async def test_a_node_with_a_new_address_is_connected_again(world: World) -> None:
    for name, assignment in world.assignments.items():
        quick = replace(assignment.timeouts, beat=0.1, lost_after=0.5)
        world.assignments[name] = replace(assignment, timeouts=quick, network="127.0.0.0/8")
    a, b = world.transport("edge-0"), world.transport("edge-1")
    await a.start()
    await b.start()
    async with asyncio.timeout(PATIENCE):
        assert (await a.receive(), await b.receive()) == (Joined("edge-1"), Joined("edge-0"))
        await a.readdress("edge-0", "127.0.0.7")
        await b.readdress("edge-0", "127.0.0.7")
        port = world.nodes.ports["edge-0"]
        with await once_free("127.0.0.1", port):  # a gave the former address up, and b's connection there is broken
            events = [await b.receive() for _ in range(2)]
            assert isinstance(events[0], Lost)
            assert events[1] == Joined("edge-0")
    await a.close()
    await b.close()


async def test_addresses_outside_the_network_stay_refused(world: World) -> None:
    """A peer may come from another address only where addresses change."""
    world.assignments["edge-0"] = replace(world.assignments["edge-0"], network="127.0.0.0/29")
    a = world.transport("edge-0")
    await a.start()
    came = []
    for address in ("127.0.0.9", "127.0.0.5"):
        with socket.create_connection(("127.0.0.1", world.nodes.ports["edge-0"]), 5, (address, 0)) as peer:
            peer.settimeout(PATIENCE)
            try:
                came.append(len(peer.recv(10)) > 0)  # libzmq begins with its greeting
            except ConnectionError:
                came.append(False)
    assert came == [False, True]
    await a.close()
