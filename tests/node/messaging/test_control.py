from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

from node.assignment import Assignment, Keypair, Timeouts
from node.errors import ControlError
from node.messaging.control import ControlClient, ControlServer
from node.messaging.sockets import set_client_keys
from node.runtime.clock import VirtualLoop, run_virtual
from tests.node.assignments import Nodes, make_keys
from tests.texts import containing
from tests.virtual import virtual

PATIENCE = 10.0


class Plane:
    """A control plane at ``path`` with the orchestrator's end, and nodes to be made."""

    def __init__(self, path: Path, keys: Keypair, nodes: Nodes, server: ControlServer) -> None:
        self.path, self.keys, self.nodes, self.server = path, keys, nodes, server
        self.contexts: list[zmq.Context[zmq.Socket[bytes]]] = []
        self._messages = server.messages()

    def assignment(self, name: str, **values: Any) -> Assignment:
        values = {"control_endpoint": f"ipc://{self.path}", "control_key": self.keys.public} | values
        return self.nodes.assignment(name, {}, **values)

    def client(self, assignment: Assignment, incarnation: str = "first") -> ControlClient:
        return ControlClient(assignment, incarnation, self.context())

    def context(self) -> zmq.Context[zmq.Socket[bytes]]:
        self.contexts.append(zmq.Context())
        return self.contexts[-1]

    async def heard(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(PATIENCE):
            return await anext(self._messages)


@asynccontextmanager
async def plane(path: Path, lease: float = 10.0) -> AsyncIterator[Plane]:
    nodes, keys = Nodes("edge-0", "edge-1"), make_keys()
    public = {name: pair.public for name, pair in nodes.keys.items()}
    server = ControlServer(f"ipc://{path}", keys, public, lease)
    made = Plane(path, keys, nodes, server)
    try:
        yield made
    finally:
        await server.close()
        for context in made.contexts:
            context.destroy(linger=0)


async def receive(client: ControlClient) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        return await client.receive()


async def test_both_ways(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.register()
        node, message = await it.heard()
        assert node == "edge-0"
        said = {key: message[key] for key in ("type", "node", "incarnation", "protocol")}
        assert said == {"type": "register", "node": "edge-0", "incarnation": "first", "protocol": 2}
        await it.server.send("edge-0", {"type": "start"})
        assert await receive(client) == {"type": "start"}
        client.event("round", round=3, phase="end")
        client.event("lost", peer="cloud", reason="silent for 9.0 s")
        client.metric(3, {"accuracy": np.float32(0.5), "scope": "global"})
        assert await it.heard() == ("edge-0", {"type": "event", "name": "round", "round": 3, "phase": "end"})
        lost = {"type": "event", "name": "lost", "peer": "cloud", "reason": "silent for 9.0 s"}
        assert await it.heard() == ("edge-0", lost)
        metric = {"type": "metric", "round": 3, "values": {"accuracy": 0.5, "scope": "global"}}
        assert await it.heard() == ("edge-0", metric)
        client.close()


async def test_a_path_too_long_for_a_unix_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    async with plane(folder / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.register()
        assert (await it.heard())[0] == "edge-0"
        client.close()
    assert list(folder.iterdir()) == []


async def test_a_path_that_cannot_be_bound(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="cannot listen there"):
        async with plane(tmp_path / "absent" / "control"):
            pass


async def test_strangers_are_refused_and_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with plane(tmp_path / "control") as it:
        stranger = it.client(it.assignment("edge-1", keys=make_keys()))
        stranger.register()
        client = it.client(it.assignment("edge-0"))
        client.register()
        async with asyncio.timeout(PATIENCE):
            while not caplog.records:
                client.event("late")
                assert (await it.heard())[0] == "edge-0"
        (record,) = caplog.records
        assert record.getMessage().startswith("refused a stranger from localhost")
        stranger.close()
        client.close()


async def test_no_one_registers_in_anothers_name(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.send({"type": "register", "node": "edge-1", "incarnation": "x", "pid": 1, "protocol": 2})
        client.register()
        assert await it.heard() == ("edge-0", {"type": "unreadable", "reason": "claims to be 'edge-1'"})
        node, message = await it.heard()
        assert (node, message["node"]) == ("edge-0", "edge-0")
        client.close()


async def test_messages_go_to_the_latest_process_of_a_node(tmp_path: Path) -> None:
    """Also if the registration of a former one is read after its own."""
    async with plane(tmp_path / "control") as it:
        assignment = it.assignment("edge-0")
        latest = it.client(replace(assignment, start=2))
        latest.register()
        _, message = await it.heard()
        assert message["start"] == 2
        former = it.client(replace(assignment, start=1))
        former.register()
        _, message = await it.heard()
        assert message["start"] == 1
        await it.server.send("edge-0", {"type": "start"})
        assert await receive(latest) == {"type": "start"}
        latest.close()
        former.close()


async def test_another_protocol_is_a_failure_of_the_node(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.send({"type": "register", "node": "edge-0", "incarnation": "x", "pid": 1, "protocol": 9})
        error = containing("speaks protocol 9, the orchestrator 2")
        assert await it.heard() == ("edge-0", {"type": "failed", "error": error})
        client.close()


async def test_bad_bytes_are_reported_and_the_next_message_counts(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        socket = it.context().socket(zmq.DEALER)
        set_client_keys(socket, it.nodes.keys["edge-0"], it.keys.public)
        socket.connect(f"ipc://{it.path}")
        no_type, beat = msgpack.packb({"no": "type"}), msgpack.packb({"type": "beat"})
        for frames in ([b"\xc1"], [b"two", b"frames"], [no_type], [beat]):
            socket.send_multipart(frames)
        for reason in ("not msgpack", "2 frames", "no type"):
            node, message = await it.heard()
            assert (node, message["type"]) == ("edge-0", "unreadable")
            assert message["reason"].startswith(reason)
        assert await it.heard() == ("edge-0", {"type": "beat"})
        socket.close(0)


async def test_what_is_left_for_the_next_turn_is_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.control._READ_AT_ONCE", 2)
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.register()
        for number in range(9):
            client.event("late", number=number)
        assert [(await it.heard())[1].get("number") for _ in range(10)] == [None, *range(9)]
        client.close()


async def test_a_restarted_node_is_the_one_that_is_spoken_to(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        first = it.client(it.assignment("edge-0"))
        first.register()
        await it.heard()
        second = it.client(it.assignment("edge-0"), "second")
        second.register()
        assert (await it.heard())[1]["incarnation"] == "second"
        await it.server.send("edge-0", {"type": "start"})
        assert await receive(second) == {"type": "start"}
        await it.server.send("edge-1", {"type": "start"})  # never registered: nobody hears it
        first.close()
        second.close()


async def test_the_orchestrators_beats_keep_the_lease(tmp_path: Path) -> None:
    async with plane(tmp_path / "control", lease=0.2) as it:
        client = it.client(it.assignment("edge-0", timeouts=Timeouts(beat=0.02, lease=0.2)))
        client.register()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.receive(), 0.4)
        client.close()


async def test_silence_ends_the_lease(tmp_path: Path) -> None:
    nodes = Nodes("edge-0")
    assignment = nodes.assignment(
        "edge-0",
        {},
        control_endpoint=f"ipc://{tmp_path}/nobody",
        control_key=make_keys().public,
        timeouts=Timeouts(beat=0.01, lease=0.05),
    )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = ControlClient(assignment, "first", context)
    with pytest.raises(ControlError, match=r"edge-0: nothing received.*orchestrator for 0\.05"):
        await receive(client)
    client.close()
    context.destroy(linger=0)


async def test_who_does_not_read_costs_messages_not_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.messaging.control._FLUSH", 0)
    caplog.set_level(logging.WARNING)
    nodes = Nodes("edge-0")
    assignment = nodes.assignment(
        "edge-0", {}, control_endpoint=f"ipc://{tmp_path}/nobody", control_key=make_keys().public
    )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = ControlClient(assignment, "first", context)
    for _ in range(10_001):
        client.event("late")
    assert "dropped a message of type event" in caplog.text
    client.close()
    context.destroy(linger=0)


def flooding(it: Plane) -> zmq.Socket[bytes]:
    """A socket of edge-0 that sends as much as is asked."""
    flood = it.context().socket(zmq.DEALER)
    flood.sndhwm = 0
    set_client_keys(flood, it.nodes.keys["edge-0"], it.keys.public)
    flood.connect(f"ipc://{it.path}")
    return flood


async def full(server: ControlServer) -> None:
    """Wait until as many messages have been read as are read ahead."""
    while server._received.qsize() < 100:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def test_others_have_their_turns_however_much_a_node_sends(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        flood, number, longest, since = flooding(it), 600, 0, 0
        for _ in range(number):
            flood.send(msgpack.packb({"type": "beat"}))

        async def take_turns() -> None:
            nonlocal since
            while True:
                since = 0
                await asyncio.sleep(0)

        await full(it.server)
        other = asyncio.create_task(take_turns())
        for _ in range(number):
            await it.heard()
            since += 1
            longest = max(longest, since)
            time.sleep(0.001)  # noqa: ASYNC251 - takes longer than the next message needs to come
        assert longest <= 2 * 64  # which are read at once
        other.cancel()
        flood.close(0)


async def test_a_flood_waits_with_the_node_that_sends_it(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        flood, number = flooding(it), 20_000
        client = it.client(it.assignment("edge-1"))
        client.register()
        assert (await it.heard())[0] == "edge-1"
        for _ in range(number):
            flood.send(msgpack.packb({"type": "beat"}))
            flood.send(b"\xc1")
        await full(it.server)
        await asyncio.sleep(0)
        assert it.server._received.qsize() == 100
        client.event("late")
        others = 0
        while (await it.heard())[0] != "edge-1":  # it need not wait for the whole flood
            others += 1
        assert others < number / 2
        heard = [await it.heard() for _ in range(2 * number - others)]
        assert {sender for sender, _ in heard} == {"edge-0"}
        assert {message["type"] for _, message in heard} == {"beat", "unreadable"}
        flood.close(0)
        client.close()


async def test_lists_in_lists_are_no_message(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.send({"type": "traffic", "peers": [[]] * 100_000})
        (_, message) = await it.heard()
        assert message["type"] == "unreadable"
        assert "more than 65536 lists and maps" in message["reason"]
        client.close()


async def test_a_message_to_a_node_that_is_gone_is_dropped(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.register()
        await it.heard()
        client.close()
        it.contexts[0].destroy(linger=0)
        for _ in range(5):
            await it.server.send("edge-0", {"type": "stop"})
        other = it.client(it.assignment("edge-1"))
        other.register()
        assert (await it.heard())[0] == "edge-1"
        other.close()


def deaf(timeouts: Timeouts) -> tuple[ControlClient, zmq.Context[zmq.Socket[bytes]]]:
    """A node that no orchestrator listens to."""
    keys = make_keys().public
    assignment = Nodes("edge-0").assignment(
        "edge-0", {}, control_endpoint="inproc://nobody", control_key=keys, timeouts=timeouts
    )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    return ControlClient(assignment, "first", context), context


@pytest.mark.parametrize(("frozen", "end"), [(0.0, 12.0), (1.4, 11.9), (20.0, 30.5)])
def test_the_lease_counts_from_the_registration_and_not_while_frozen(frozen: float, end: float) -> None:
    """The lease of 8 s starts at 3 s. The node looks each second for whether more than that is over, and is frozen at
    5.5 s. A look at 6.9 s is not late by more than a second. If it comes at 25.5 s, 18.5 s of 20.5 s do not count."""

    async def hear() -> None:
        client, context = deaf(Timeouts(beat=1.0, lease=8.0))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(3)
        client.register()

        def freeze() -> None:
            loop._jumping.now += frozen

        loop.call_later(2.5, freeze)
        assert client._socket.linger == 10_000
        with pytest.raises(ControlError):
            await client.receive()
        assert client._socket.linger == 0  # no one would read what is left
        assert loop.time() == pytest.approx(end)
        client.close()
        context.destroy(linger=0)

    run_virtual(hear())


@virtual
async def test_nodes_are_sent_eight_beats_in_a_lease(tmp_path: Path) -> None:
    nodes = {name: make_keys().public for name in ("edge-0", "edge-1")}
    server = ControlServer(f"ipc://{tmp_path}/control", make_keys(), nodes, lease=4.0)
    sent: list[tuple[float, str]] = []
    server._addresses = dict.fromkeys(nodes, b"")
    server._send = lambda node, data: sent.append((asyncio.get_running_loop().time(), node))  # type: ignore[method-assign]
    await asyncio.sleep(1.2)
    await server.close()
    await asyncio.sleep(1.0)
    assert sent == [(time, node) for time in (0.0, 0.5, 1.0) for node in nodes]


async def test_sockets_hold_much_of_events_and_little_of_one_node(tmp_path: Path) -> None:
    """Messages of 4 MiB at most; a handshake may take 10 s."""
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        for socket in (client._socket, it.server._socket):
            assert (socket.maxmsgsize, socket.sndhwm) == (4 << 20, 10_000)
        assert (client._socket.rcvhwm, client._socket.linger, client._socket.reconnect_ivl) == (10_000, 10_000, 100)
        server = it.server._socket
        assert (server.rcvhwm, server.linger, server.handshake_ivl) == (100, 0, 10_000)
        assert it.server._gate._most == 4 * 2  # connections of a node, for each of two
        client.close()


async def test_an_event_without_a_round_has_none_and_round_0_is_one(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        client.event("note", text="x")
        client.event("note", round=0)
        assert (await it.heard())[1] == {"type": "event", "name": "note", "text": "x"}
        assert (await it.heard())[1] == {"type": "event", "name": "note", "round": 0}
        client.close()


async def test_65_536_lists_and_maps_are_a_message(tmp_path: Path) -> None:
    async with plane(tmp_path / "control") as it:
        client = it.client(it.assignment("edge-0"))
        for rows in (65_534, 65_535):  # in a list, in a map
            client.send({"type": "traffic", "peers": [[]] * rows})
        assert [(await it.heard())[1]["type"] for _ in range(2)] == ["traffic", "unreadable"]
        client.close()
