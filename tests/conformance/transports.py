"""What every transport must do: each case takes a `Network` that makes transports and can be cut.

The timeouts are short; a case that waits for a loss waits for it in the network's time, which may be virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest

from node.assignment import Timeouts
from node.errors import TransportError, WireError
from node.messaging.delivery.association import BadMessage, Event, Joined, Left, Lost, Received, Undelivered
from node.messaging.delivery.chunk_size import LARGEST_CHUNK
from node.messaging.delivery.stream import QUEUE_MESSAGES
from node.messaging.transport import Transport
from node.messaging.wire import Message

TIMEOUTS = Timeouts(beat=0.1, lost_after=0.8)
PATIENCE = 20.0  # s until a case that hangs fails

E = TypeVar("E", bound=Event)


class Network(Protocol):
    """Makes transports that can reach each other; ``cut`` and ``heal`` both directions between two nodes, or let them
    carry only ``rate`` bytes a second."""

    def node(self, name: str, *peers: str, incarnation: str = "first") -> Transport: ...

    def cut(self, one: str, other: str) -> None: ...

    def heal(self, one: str, other: str) -> None: ...

    def limit(self, one: str, other: str, rate: float) -> None: ...


Case = Callable[[Network], Awaitable[None]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


async def expect(transport: Transport, kind: type[E]) -> E:
    """The next event of this kind; beside it nothing but news of who is there may come."""
    async with asyncio.timeout(PATIENCE):
        while True:
            event = await transport.receive()
            if isinstance(event, kind):
                return event
            assert isinstance(event, Joined | Lost | Left | Undelivered), event


async def receive(transport: Transport) -> Message:
    return (await expect(transport, Received)).message


async def pair(network: Network, **second: Any) -> tuple[Transport, Transport]:
    """Two nodes that know each other and have met."""
    a, b = network.node("a", "b"), network.node("b", "a", **second)
    await a.start()
    await b.start()
    assert await expect(a, Joined) == Joined("b")
    assert await expect(b, Joined) == Joined("a")
    return a, b


async def close(*transports: Transport) -> None:
    for transport in transports:
        await transport.close()


def numbers(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).random(count, np.float32)


@case
async def a_message_arrives_as_it_was_sent(network: Network) -> None:
    a, b = await pair(network)
    sent = Message("model", "a", 3, {"samples": 7, "note": "é"}, {"w": numbers(5), "n": np.array(4)})
    await a.send(["b"], sent)
    got = await receive(b)
    assert (got.kind, got.sender, got.round, got.fields) == ("model", "a", 3, {"samples": 7, "note": "é"})
    assert got.tensors["n"] == 4
    np.testing.assert_array_equal(got.tensors["w"], sent.tensors["w"])
    with pytest.raises(ValueError, match="read-only"):
        got.tensors["w"][:] = 0
    await close(a, b)


@case
async def messages_arrive_in_order_whatever_their_size(network: Network) -> None:
    a, b = await pair(network)
    sizes = [0, 1, LARGEST_CHUNK, 3, 2 * LARGEST_CHUNK + 1, 0, 5]
    for place, size in enumerate(sizes):
        await a.send(["b"], Message("part", "a", place, {}, {"w": np.full(size, place, np.uint8)}))
    for place, size in enumerate(sizes):
        message = await receive(b)
        assert message.round == place
        assert message.tensors["w"].tolist() == [place] * size
    await close(a, b)


@case
async def a_tensor_may_be_changed_as_soon_as_it_was_sent(network: Network) -> None:
    a, b = await pair(network)
    weights = np.zeros(1 << 18)
    for place in range(10):
        weights[:] = place
        await a.send(["b"], Message("model", "a", place, {}, {"w": weights}))
    for place in range(10):
        assert set((await receive(b)).tensors["w"]) == {place}
    await close(a, b)


@case
async def both_directions_and_several_peers_are_independent(network: Network) -> None:
    a, b, c = network.node("a", "b", "c"), network.node("b", "a"), network.node("c", "a")
    for each in (a, b, c):
        await each.start()
    assert {(await expect(a, Joined)).peer, (await expect(a, Joined)).peer} == {"b", "c"}
    await a.send(["c", "b"], Message("model", "a", 1, {}, {"w": numbers(9)}))
    for each in (b, c):
        np.testing.assert_array_equal((await receive(each)).tensors["w"], numbers(9))
        await each.send(["a"], Message("update", "b" if each is b else "c", 1))
    assert {(await receive(a)).sender, (await receive(a)).sender} == {"b", "c"}
    await close(a, b, c)


@case
async def only_peers_are_sent_to(network: Network) -> None:
    a, b = await pair(network)
    with pytest.raises(TransportError, match=r"a has no peer 'z'; its peers are b"):
        await a.send(["b", "z"], Message("model", "a"))
    await close(a, b)


@case
async def what_was_sent_before_a_peer_came_reaches_it(network: Network) -> None:
    a = network.node("a", "b")
    await a.start()
    await a.send(["b"], Message("first", "a"))
    await a.send(["b"], Message("second", "a", None, {}, {"w": numbers(100_000)}))
    b = network.node("b", "a")
    await b.start()
    assert (await receive(b)).kind == "first"
    assert (await receive(b)).kind == "second"
    await close(a, b)


@case
async def goodbye_comes_after_what_was_queued(network: Network) -> None:
    a, b = await pair(network)
    await a.send(["b"], Message("model", "a", None, {}, {"w": numbers(500_000)}))
    await a.close(PATIENCE)
    assert (await receive(b)).kind == "model"
    assert await expect(b, Left) == Left("a")
    await b.send(["a"], Message("update", "b"))
    assert await expect(b, Undelivered) == Undelivered("a", 1, "left")
    await close(b)


@case
async def a_silent_peer_is_lost_and_nobody_waits_for_it(network: Network) -> None:
    a, b = await pair(network)
    await b.close()
    lost = await expect(a, Lost)
    assert lost.peer == "b"
    assert lost.reason.startswith("silent for")
    async with asyncio.timeout(PATIENCE):
        for _ in range(QUEUE_MESSAGES + 1):
            await a.send(["b"], Message("model", "a"))
    assert await expect(a, Undelivered) == Undelivered("b", 1, "lost")
    await close(a)


@case
async def a_restarted_peer_begins_anew(network: Network) -> None:
    a, b = await pair(network)
    await b.close()
    b = network.node("b", "a", incarnation="second")
    await b.start()
    assert (await expect(a, Lost)).peer == "b"
    assert await expect(a, Joined) == Joined("b")
    assert await expect(b, Joined) == Joined("a")
    await a.send(["b"], Message("model", "a", 2, {}, {"w": numbers(100_000)}))
    assert (await receive(b)).round == 2
    await b.send(["a"], Message("update", "b", 2))
    assert (await receive(a)).round == 2
    await close(a, b)


@case
async def both_sides_notice_a_partition_and_its_end(network: Network) -> None:
    a, b = await pair(network)
    network.cut("a", "b")
    await a.send(["b"], Message("model", "a", 1, {}, {"w": numbers(1_000_000)}))
    assert (await expect(a, Lost)).peer == "b"
    assert (await expect(b, Lost)).peer == "a"
    network.heal("a", "b")
    assert await expect(a, Joined) == Joined("b")
    assert await expect(b, Joined) == Joined("a")
    await a.send(["b"], Message("model", "a", 2))
    await b.send(["a"], Message("update", "b", 2))
    assert (await receive(b)).round == 2
    assert (await receive(a)).round == 2
    await close(a, b)


@case
async def a_short_cut_loses_nothing(network: Network) -> None:
    a, b = await pair(network)
    network.cut("a", "b")
    for place in range(3):
        await a.send(["b"], Message("part", "a", place, {}, {"w": numbers(1000)}))
    network.heal("a", "b")
    assert [(await receive(b)).round for _ in range(3)] == [0, 1, 2]
    await close(a, b)


@case
async def a_message_that_takes_long_loses_nobody(network: Network) -> None:
    a, b = await pair(network)
    size = 6_000_000
    network.limit("a", "b", size / (2 * TIMEOUTS.lost_after))
    began = asyncio.get_running_loop().time()
    await a.send(["b"], Message("model", "a", 1, {}, {"w": np.zeros(size, np.uint8)}))
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await b.receive(), Received)
    assert asyncio.get_running_loop().time() - began > 1.5 * TIMEOUTS.lost_after
    await b.send(["a"], Message("update", "b", 1))
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await a.receive(), Received)
    await close(a, b)


@case
async def a_full_queue_holds_the_sender_until_its_peer_is_lost(network: Network) -> None:
    a, b = await pair(network)
    network.cut("a", "b")

    async def flood() -> None:
        for _ in range(10 * QUEUE_MESSAGES):
            await a.send(["b"], Message("part", "a", None, {}, {"w": np.empty(1 << 16, np.uint8)}))

    async with asyncio.timeout(PATIENCE):
        await flood()
    assert await expect(a, Lost)
    await close(a, b)


@case
async def what_replaces_never_waits(network: Network) -> None:
    a, b = await pair(network)
    network.cut("a", "b")
    async with asyncio.timeout(TIMEOUTS.lost_after / 2):
        for round in range(3 * QUEUE_MESSAGES):
            await a.send(["b"], Message("model", "a", round, {}, {"w": np.empty(1 << 18, np.uint8)}), replace=True)
    network.heal("a", "b")
    rounds: list[int] = []
    while rounds[-1:] != [3 * QUEUE_MESSAGES - 1]:
        rounds.append((await receive(b)).round or 0)
    assert rounds == sorted(rounds)
    await close(a, b)


@case
async def a_message_over_the_limits_is_not_sent(network: Network) -> None:
    a, b = await pair(network)
    with pytest.raises(WireError, match="kind of 65 characters; at most 64"):
        await a.send(["b"], Message("k" * 65, "a"))
    await close(a, b)


@case
async def a_bad_message_costs_an_event_not_the_connection(network: Network) -> None:
    a, b = await pair(network)
    await a.send(["b"], Message("update", "c", None, {}, {"w": np.zeros(LARGEST_CHUNK)}))
    await a.send(["b"], Message("small", "a", None, {}, {"w": np.zeros(100)}))
    assert await expect(b, BadMessage) == BadMessage("a", "message 'update' claims to be from 'c'")
    assert (await receive(b)).kind == "small"
    await close(a, b)


@case
async def strangers_are_not_heard(network: Network) -> None:
    a, b = await pair(network)
    stranger = network.node("x", "b")
    await stranger.start()
    await stranger.send(["b"], Message("update", "a"))
    for _ in range(20):
        await a.send(["b"], Message("model", "a"))
        assert (await receive(b)).sender == "a"
    assert {row.peer for row in b.traffic()} == {"a"}
    assert not [row for row in stranger.traffic() if row.direction == "received"]
    await close(a, b, stranger)


@case
async def both_sides_count_the_same_bytes(network: Network) -> None:
    a, b = await pair(network)
    for size in (0, 10, 1_000_000):
        await a.send(["b"], Message("model", "a", None, {}, {"w": np.zeros(size, np.uint8)}))
        await receive(b)
    (sent,) = (row for row in a.traffic() if (row.kind, row.direction) == ("model", "sent"))
    (received,) = (row for row in b.traffic() if (row.kind, row.direction) == ("model", "received"))
    assert (sent.messages, sent.bytes) == (received.messages, received.bytes)
    assert (sent.peer, received.peer) == ("b", "a")
    assert sent.messages == 3
    assert 1_000_010 < sent.bytes < 1_020_000
    await close(a, b)
