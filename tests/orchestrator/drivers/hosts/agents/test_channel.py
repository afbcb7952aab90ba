"""The channel between the orchestrator and its agents, over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgpack
import pytest
import zmq

from node.messaging.gate import UNDELIVERED
from orchestrator.drivers.hosts.agents import channel
from orchestrator.drivers.hosts.agents.channel import BEAT, PIECE, PROTOCOL, AgentChannel
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.errors import DriverError, FabricError, HostError
from orchestrator.fabric.base import Fabric
from orchestrator.planning.keys import keypair

LOOPBACK = "127.0.0.1"
LEASE = 3 * BEAT
HELLO: Message = {"host": "pc-1", "incarnation": "a", "version": "1"}
PATIENCE = 20.0  # s


async def echo(call: str, arguments: Message) -> Any:
    return {"call": call, **arguments}


class Stage:
    """The orchestrator's side, and agents as a test wants them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.events: list[tuple[str, Message]] = []
        self.lost: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.found: list[str] = []
        self.notices: asyncio.Queue[Message] = asyncio.Queue()
        self.keys, self.agents_keys = keypair(), keypair()
        self._stack = stack
        self.agents = Agents(
            self.keys,
            self.agents_keys.public,
            LEASE,
            lambda host, message: self.events.append((host, message)),
            lambda host, reason, silent: self.lost.put_nowait((host, reason)),
            self.found.append,
        )
        self._open = True
        stack.push_async_callback(self.end)
        self.port = self.agents.listen(LOOPBACK)

    async def end(self) -> None:
        """The end of the orchestrator."""
        if self._open:
            self._open = False
            await self.agents.close()

    def channel(self, keys: Any = None, server: str = "") -> AgentChannel:
        address = f"tcp://{LOOPBACK}:{self.port}"
        made = AgentChannel(address, keys or self.agents_keys, server or self.keys.public, self.notices.put_nowait)
        self._stack.push_async_callback(made.close)
        return made

    async def agent(
        self, hello: Message = HELLO, answer: Callable[[str, Message], Awaitable[Any]] = echo
    ) -> tuple[AgentChannel, asyncio.Task[None]]:
        made = self.channel()
        serving = asyncio.create_task(made.serve(hello, answer, LEASE))
        self._stack.callback(serving.cancel)
        assert await self.agents.wait_for([hello["host"]], PATIENCE) == []
        return made, serving


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(stack)


async def test_requests_events_and_notices_arrive(stage: Stage) -> None:
    channel, _ = await stage.agent()
    assert stage.agents.hello("pc-1")["version"] == "1"
    data = bytes(range(256))
    assert await stage.agents.request("pc-1", "put", {"data": data}) == {"call": "put", "data": data}
    for number in range(100):
        stage.agents.tell("pc-1", "relay", number=number)
    assert [(await stage.notices.get())["number"] for _ in range(100)] == list(range(100))
    channel.tell("exit", node="device-0", code=-9)
    assert await stage.agents.request("pc-1", "later", {}) == {"call": "later"}  # messages arrive in order
    assert stage.events == [("pc-1", {"type": "event", "name": "exit", "node": "device-0", "code": -9})]


async def test_nothing_is_lost_when_connections_break(stage: Stage) -> None:
    """Each second exchange, the agent's connection ends with what is on its way."""
    agent, _ = await stage.agent()
    answers = []
    for number in range(6):
        agent.tell("exit", number=number)
        stage.agents.tell("pc-1", "relay", number=number)
        asked = asyncio.create_task(stage.agents.request("pc-1", "ask", {"number": number}))
        await asyncio.sleep(0)
        if number % 2:
            stage.agents._gate._end_all(LOOPBACK)
        answers.append(await asyncio.wait_for(asked, PATIENCE))
    await stage.agents.request("pc-1", "last", {})
    assert answers == [{"call": "ask", "number": number} for number in range(6)]
    assert [event["number"] for _, event in stage.events] == list(range(6))
    assert [stage.notices.get_nowait()["number"] for _ in range(6)] == list(range(6))
    assert (stage.found, stage.lost.empty()) == (["pc-1"], True)


async def test_an_agent_with_a_refused_key_ends_with_its_lease(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """ZeroMQ gives up a connection that was refused: no message can be sent then."""
    stranger = stage.channel(keypair())
    serving = asyncio.create_task(stranger.serve(HELLO, echo, LEASE))
    async with asyncio.timeout(PATIENCE):
        await serving
    assert "refused a stranger" in caplog.text
    assert len(stranger._tasks.running) == 1  # it still beats


async def test_an_agent_that_sends_much_is_no_flood(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The gate ends connections whose bytes never become messages. It looks each second."""
    channel, _ = await stage.agent()
    messages = UNDELIVERED // PIECE + 8
    async with asyncio.timeout(PATIENCE):
        for _ in range(messages):
            channel.tell("log", data=bytes(PIECE))
            await stage.agents.request("pc-1", "next", {})
        while sum(stage.agents._gate._taken.values()) < messages * PIECE:
            await stage.agents.request("pc-1", "looked", {})
    assert (caplog.text, len(stage.events), stage.lost.empty()) == ("", messages, True)


async def test_errors_keep_their_class_and_name_the_host(stage: Stage) -> None:
    async def refuse(call: str, arguments: Message) -> Any:
        if call == "odd":
            return object()
        raise {"host": HostError("no Engine", "start it"), "link": FabricError("no link")}.get(call, KeyError("x"))

    await stage.agent(answer=refuse)
    with pytest.raises(HostError, match=r"^pc-1: no Engine: start it$"):
        await stage.agents.request("pc-1", "host", {})
    with pytest.raises(FabricError, match=r"^pc-1: no link$"):
        await stage.agents.request("pc-1", "link", {})
    with pytest.raises(DriverError, match=r"^pc-1: KeyError: 'x' \(a bug"):
        await stage.agents.request("pc-1", "other", {})
    with pytest.raises(DriverError, match=r"^pc-1: TypeError: object cannot be sent"):
        await stage.agents.request("pc-1", "odd", {}, PATIENCE)


async def test_an_answer_that_is_invalid_is_one_error(stage: Stage) -> None:
    async def answer(call: str, arguments: Message) -> Any:
        return {"links": [], "late": "much"}

    await stage.agent(answer=answer)
    with pytest.raises(DriverError, match=r"^pc-1: its agent gave.*'Fabric.counters'"):
        await stage.agents.call("pc-1", Fabric.counters)


async def test_requests_do_not_wait_for_each_other(stage: Stage) -> None:
    released = asyncio.Event()

    async def answer(call: str, arguments: Message) -> Any:
        if call == "slow":
            await released.wait()
        return call

    await stage.agent(answer=answer)
    slow = asyncio.create_task(stage.agents.request("pc-1", "slow", {}))
    assert await stage.agents.request("pc-1", "fast", {}) == "fast"
    released.set()
    assert await slow == "slow"


async def test_a_silent_agent_is_lost_with_its_requests(stage: Stage) -> None:
    async def never(call: str, arguments: Message) -> Any:
        await asyncio.Event().wait()

    channel, serving = await stage.agent(answer=never)
    asked = asyncio.create_task(stage.agents.request("pc-1", "anything", {}))
    await asyncio.sleep(0)
    serving.cancel()
    await channel.close()
    with pytest.raises(DriverError, match="pc-1: nothing was received"):
        await asyncio.wait_for(asked, PATIENCE)
    assert (await stage.lost.get())[0] == "pc-1"
    with pytest.raises(DriverError, match="pc-1: its agent is away"):
        await stage.agents.request("pc-1", "anything", {})


async def test_an_agent_that_restarts_is_another_one(stage: Stage) -> None:
    await stage.agent()
    again = stage.channel()
    serving = asyncio.create_task(again.serve({**HELLO, "incarnation": "b"}, echo, LEASE))
    assert await asyncio.wait_for(stage.lost.get(), PATIENCE) == ("pc-1", "its agent restarted")
    assert await stage.agents.request("pc-1", "x", {}) == {"call": "x"}
    assert stage.agents.hello("pc-1")["incarnation"] == "b"
    assert stage.found == ["pc-1", "pc-1"]
    serving.cancel()


async def test_an_agent_that_was_stalled_for_its_lease_does_nothing_of_its_requests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator has given it up. What it was asked may be done on another host now."""
    done: list[str] = []

    async def answer(call: str, arguments: Message) -> Any:
        done.append(call)

    _, serving = await stage.agent(answer=answer)
    await stage.agents.request("pc-1", "early", {})
    now = channel._now
    monkeypatch.setattr(channel, "_now", lambda: now() + LEASE + 1.0)
    asked = asyncio.create_task(stage.agents.request("pc-1", "late", {}))
    await asyncio.wait_for(serving, PATIENCE)
    assert done == ["early"]
    asked.cancel()


async def test_an_agent_without_its_orchestrator_ends(stage: Stage) -> None:
    _, serving = await stage.agent()
    await stage.end()
    await asyncio.wait_for(serving, PATIENCE)


async def test_an_agent_of_another_version_is_named(stage: Stage) -> None:
    channel = stage.channel()
    hello = {"type": "hello", "host": "pi-2", "protocol": 99, "incarnation": "a", "version": "9"}
    channel._socket.send(msgpack.packb(hello))
    with pytest.raises(HostError, match="agent on pi-2 speaks protocol 99"):
        await stage.agents.wait_for(["pi-2"], PATIENCE)
    assert await stage.agents.wait_for(["pi-3"], 0.01) == ["pi-3"]


@pytest.fixture
def closing() -> Iterator[contextlib.ExitStack]:
    """Closes sockets, also of a test that fails: those that are left would make another test fail."""
    with contextlib.ExitStack() as stack:
        yield stack


async def test_strangers_and_garbage_change_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture, closing: contextlib.ExitStack
) -> None:
    await stage.agent()
    hello = {"type": "hello", "protocol": PROTOCOL, **HELLO, "host": "pc-9"}
    for stranger in (
        stage.channel(keypair()),  # no key of this run
        stage.channel(server=keypair().public),  # it takes this for another orchestrator
    ):
        stranger._socket.send(msgpack.packb(hello))
    plain: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)  # no key
    closing.callback(plain.close, linger=0)
    plain.connect(f"tcp://{LOOPBACK}:{stage.port}")
    plain.send(msgpack.packb(hello))
    raw = [closing.enter_context(socket.create_connection((LOOPBACK, stage.port))) for _ in range(40)]
    for number, each in enumerate(raw):
        with contextlib.suppress(OSError):  # the gate ends the oldest
            each.sendall(bytes([0xFF - number % 2 * 0x80]) * 4096)
    for message in (b"garbage", msgpack.packb([1]), msgpack.packb({"no": "type"}), msgpack.packb({"type": "hello"})):
        mine = stage.channel()
        mine._socket.send(message)
    async with asyncio.timeout(PATIENCE):
        while "refused a stranger" not in caplog.text or caplog.text.count("not a message of an agent") < 4:
            assert await stage.agents.request("pc-1", "still there", {}) == {"call": "still there"}
    assert await stage.agents.wait_for(["pc-9"], 0.1) == ["pc-9"]  # none of them was heard
    assert (stage.found, stage.events, stage.lost.empty()) == (["pc-1"], [], True)
    assert caplog.text.count("refused a stranger") == 1  # each key is told of once
