"""What is particular to the in-memory transport; what all transports share is in tests/conformance."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from node.assignment import Timeouts
from node.association import Event, Joined, Lost, Received
from node.clock import run_virtual
from node.errors import TransportError
from node.memory import Deliver, MemoryNetwork, MemoryTransport
from node.wire import Message


def run(work: Coroutine[Any, Any, None]) -> None:
    run_virtual(work)


async def pair(deliver: Deliver) -> tuple[MemoryTransport, MemoryTransport]:
    network = MemoryNetwork(deliver)
    a, b = (network.transport(name, [peer], incarnation="first") for name, peer in (("a", "b"), ("b", "a")))
    await b.start()
    await a.start()
    assert await b.receive() == Joined("a")
    assert await a.receive() == Joined("b")
    return a, b


async def message(transport: MemoryTransport) -> Message:
    event: Event = await transport.receive()
    assert isinstance(event, Received)
    return event.message


def test_a_packet_takes_as_long_as_the_network_says() -> None:
    async def work() -> None:
        a, b = await pair(lambda source, target, size: 0.25 if source == "a" else 0.1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await a.send(["b"], Message("model", "a"))
        await message(b)
        assert loop.time() - began == pytest.approx(0.25)
        began = loop.time()
        await b.send(["a"], Message("update", "b"))
        await message(a)
        assert loop.time() - began == pytest.approx(0.1)

    run(work())


def test_every_packet_is_offered_with_its_size() -> None:
    sizes: list[int] = []

    def deliver(source: str, target: str, size: int) -> float:
        if source == "a":
            sizes.append(size)
        return 0.0

    async def work() -> None:
        a, b = await pair(deliver)
        await a.send(["b"], Message("model", "a", None, {}, {"w": np.zeros(100_000, np.uint8)}))
        await message(b)
        assert sum(sizes) == sum(row.bytes for row in a.traffic() if row.direction == "sent")
        assert sum(sizes) > 100_000

    run(work())


def test_packets_keep_their_order_even_if_a_later_one_is_faster() -> None:
    delays = iter([0.0, 1.0, 0.5, 0.0, 0.7])

    async def work() -> None:
        a, b = await pair(lambda source, target, size: next(delays, 0.0) if source == "a" else 0.0)
        for round in range(4):
            await a.send(["b"], Message("model", "a", round))
        assert [(await message(b)).round for _ in range(4)] == [0, 1, 2, 3]

    run(work())


def test_a_dropped_packet_is_offered_again_after_a_time_that_doubles() -> None:
    offers: list[float] = []

    def deliver(source: str, target: str, size: int) -> float | None:
        now = asyncio.get_running_loop().time()
        if source == "a" and now >= 1.0:
            offers.append(round(now - 1.0, 6))
            return 0.0 if now >= 2.4 else None
        return 0.0

    async def work() -> None:
        a, b = await pair(deliver)
        await asyncio.sleep(1.0 - asyncio.get_running_loop().time())
        offers.clear()
        await a.send(["b"], Message("model", "a", 1))
        await a.send(["b"], Message("model", "a", 2))
        assert [(await message(b)).round for _ in range(2)] == [1, 2]

    run(work())
    assert offers[:4] == [0.0, 0.2, 0.6, 1.4]  # TCP's 200 ms, 400 ms, 800 ms after each other


def test_a_name_is_taken_while_its_transport_is_open() -> None:
    async def work() -> None:
        network = MemoryNetwork()
        first = network.transport("a", ["b"], incarnation="first")
        await first.start()
        second = network.transport("a", ["b"], incarnation="second")
        with pytest.raises(TransportError, match="a is in this network already"):
            await second.start()
        await first.close()
        await second.start()
        await second.close()

    run(work())


def test_waiting_costs_no_time_of_ones_own() -> None:
    async def work() -> None:
        network = MemoryNetwork()
        timeouts = Timeouts(beat=10.0, lost_after=3600.0)
        a, b = (
            network.transport(name, [peer], incarnation="first", timeouts=timeouts)
            for name, peer in (("a", "b"), ("b", "a"))
        )
        await b.start()
        await a.start()
        assert await a.receive() == Joined("b")
        await b.close()
        assert isinstance(await a.receive(), Lost)
        assert asyncio.get_running_loop().time() > 3600

    run(work())
