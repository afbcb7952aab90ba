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
from node.messaging.delivery.association import BadMessage, Joined, Left, Lost
from node.messaging.delivery.peers import Peers
from node.messaging.gate import CONNECTIONS, Gate
from node.messaging.sockets import set_client_keys
from node.messaging.transport import ZmqTransport, _send
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
    with pytest.raises(TransportError, match=r"edge-0.*tcp://192\.0\.2\.1:\d+ .*is data0 attached\?"):
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


async def test_an_address_in_use_for_long_is_tried_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 10 s, in steps of 50 ms."""
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    a = world.transport("edge-0")
    with socket.create_server(("127.0.0.1", world.nodes.ports["edge-0"])), pytest.raises(TransportError):
        await a.start()
    assert 10.0 <= now <= 10.06


class Taking:
    """A socket that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int, bool]] = []

    def send(self, frame: bytes, flags: int, copy: bool = True) -> None:
        self.given.append((len(frame), flags, copy))


def test_only_small_frames_are_copied() -> None:
    """The last frame of a packet may be a large one. 64 KiB are large, as for pyzmq."""
    taking = Taking()
    for size in (65_535, 65_536):
        _send(taking, [b"prefix", bytes(size)])  # type: ignore[arg-type]
    _send(taking, [b"prefix"])  # type: ignore[arg-type]
    more = zmq.NOBLOCK | zmq.SNDMORE
    assert taking.given == [
        (6, more, True),
        (65_535, zmq.NOBLOCK, True),
        (6, more, True),
        (65_536, zmq.NOBLOCK, False),
        (6, zmq.NOBLOCK, True),
    ]


async def test_sockets_hold_few_packets_and_give_up_in_time(world: World) -> None:
    """A peer is lost after 8 s: a handshake that takes longer is ended, and a quarter of it is enough to connect."""
    timeouts = replace(world.assignments["edge-0"].timeouts, lost_after=8.0)
    world.assignments["edge-0"] = replace(world.assignments["edge-0"], timeouts=timeouts)
    a = world.transport("edge-0")
    await a.start()
    assert a._listener is not None
    listening = a._listener.socket
    assert (listening.rcvhwm, listening.handshake_ivl) == (4, 8000)
    assert listening.maxmsgsize == (512 << 10) + (256 << 10) + 1024  # a piece, a header, and the rest of a packet
    assert (listening.tcp_keepalive, listening.tcp_keepalive_idle) == (1, 60)
    sending = a._connections["edge-1"].socket
    assert (sending.sndhwm, sending.linger, sending.immediate) == (8, 0, 1)
    assert (sending.connect_timeout, sending.handshake_ivl, sending.reconnect_ivl) == (2000, 8000, 50)
    await a.close()


async def test_a_peer_that_left_has_no_connection(world: World) -> None:
    """It is closed at the next look, half a beat later. The goodbye of a node that closes reaches its peer."""
    quick = replace(world.assignments["edge-0"].timeouts, beat=0.1)
    world.assignments["edge-0"] = replace(world.assignments["edge-0"], timeouts=quick)
    a, b = world.transport("edge-0"), world.transport("edge-1")
    await a.start()
    await b.start()
    async with asyncio.timeout(PATIENCE):
        assert (await a.receive(), await b.receive()) == (Joined("edge-1"), Joined("edge-0"))
        await b.close(flush=5.0)
        assert await a.receive() == Left("edge-1")
        while a._connections:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.01)
    await a.close()
    await a.close()  # twice is once


async def test_a_peer_that_is_planned_to_come_later_is_not_connected_to(world: World) -> None:
    (peer,) = world.assignments["edge-0"].peers
    world.assignments["edge-0"] = replace(world.assignments["edge-0"], peers=(replace(peer, away=True),))
    a, b = world.transport("edge-0"), world.transport("edge-1")
    await a.start()
    assert not a._connections
    await b.start()
    async with asyncio.timeout(PATIENCE):
        assert (await a.receive(), await b.receive()) == (Joined("edge-1"), Joined("edge-0"))
    await a.close()
    await b.close()


async def test_a_flood_is_read_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 packets at once, and the rest after other coroutines."""
    packets = [zmq.Frame(b"x") for _ in range(200)]
    handled: list[int] = []
    a = world.transport("edge-0")
    await a.start()
    await asyncio.sleep(0.01)

    def receive(_: object) -> list[zmq.Frame]:
        if not packets:
            raise zmq.Again
        return [packets.pop()]

    monkeypatch.setattr("node.messaging.transport._receive", receive)
    monkeypatch.setattr("node.messaging.transport.sender", lambda frame: "edge-1")
    monkeypatch.setattr(Peers, "handle", lambda *_: None)
    a._read()
    for _ in range(5):
        handled.append(200 - len(packets))
        await asyncio.sleep(0)
    assert handled == [64, 128, 192, 200, 200]
    await a.close()


async def test_what_was_sent_before_a_goodbye_has_half_a_second_to_leave(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingers: list[int] = []
    usual = zmq.Socket.close

    def close(socket: zmq.Socket[bytes], linger: int | None = None) -> None:
        lingers.append(-1 if linger is None else linger)
        usual(socket, linger)

    for flush, expected in ((None, 0), (1.0, 500)):
        a = world.transport("edge-0")
        await a.start()
        with monkeypatch.context() as patched:
            patched.setattr(zmq.Socket, "close", close)
            lingers.clear()
            await a.close(flush)
        assert lingers[0] == expected  # of the connection to the peer
        assert 500 not in lingers[1:]


async def test_a_new_address_before_the_start_is_the_one_to_listen_on(world: World) -> None:
    """That of a node that is no peer changes nothing."""
    a = world.transport("edge-0")
    await a.readdress("edge-0", "127.0.0.7")
    await a.start()
    await a.readdress("edge-9", "127.0.0.1")
    for address, listening in (("127.0.0.7", True), ("127.0.0.1", False)):
        with socket.socket() as visitor:
            refused = visitor.connect_ex((address, world.nodes.ports["edge-0"]))
        assert (refused == 0) is listening
    await a.close()
