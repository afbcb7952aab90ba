"""What a peer can cause as often as it likes, and how much of it the record is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.assignment import Gathering
from node.messaging.delivery.association import BadMessage, Event, Received
from node.messaging.exchange import TOLD_A_SECOND, TOLD_AT_ONCE, Exchange
from node.messaging.gathering import KEPT
from node.messaging.memory import MemoryNetwork
from node.messaging.numbering import EdgeRounds
from node.messaging.wire import Message
from node.runtime.clock import run_virtual
from tests.virtual import virtual


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        self.events.append((name, fields))

    def metric(self, round: int | None, values: Any) -> None:
        raise AssertionError("no metric")


def told(events: list[Event], later: float) -> list[tuple[str, dict[str, Any]]]:
    """What is told of these events at once, and of the last of them again after so many seconds."""

    async def hear() -> list[tuple[str, dict[str, Any]]]:
        reporter = Told()
        exchange = Exchange(None, [], None, Gathering(), reporter, EdgeRounds())  # type: ignore[arg-type]
        for event in events:
            await exchange._handle(event)
        await asyncio.sleep(later)
        await exchange._handle(events[-1])
        exchange.report_unreceived()
        return reporter.events

    return run_virtual(hear())


def test_bad_messages_beyond_some_are_counted() -> None:
    events: list[Event] = [*[BadMessage("a", "odd")] * 5000, BadMessage("b", "odd")]
    said = told([*events, BadMessage("a", "odd")], 1.0)
    assert said.count(("bad_message", {"peer": "b", "reason": "odd"})) == 1  # each peer by itself
    reason = f"{5001 - TOLD_AT_ONCE} more events 'bad_message' came too fast to be recorded"
    assert said[-2:] == [
        ("bad_message", {"peer": "a", "reason": reason}),
        ("bad_message", {"peer": "a", "reason": "odd"}),
    ]
    assert len(said) == TOLD_AT_ONCE + 1 + 2
    assert TOLD_A_SECOND >= 1


def test_superseded_messages_too() -> None:
    said = told([Received("a", Message("update", "a", number)) for number in range(5000)], 0.0)
    reason = f"{5000 - KEPT - TOLD_AT_ONCE} more events 'superseded' came too fast to be recorded"
    assert [name for name, _ in said] == ["superseded"] * TOLD_AT_ONCE + ["unreceived", "bad_message"]
    assert said[-1] == ("bad_message", {"peer": "a", "reason": reason})


@virtual
async def test_an_error_in_hearing_a_message_ends_the_next_wait() -> None:
    class Full(Told):
        def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
            raise OSError(f"no room for {name}")

    network = MemoryNetwork()
    a, b = (network.transport(name, [peer]) for name, peer in (("a", "b"), ("b", "a")))
    exchange = Exchange(a, ["b"], None, Gathering(), Full(), EdgeRounds())
    exchange.membership.join("b")
    listening = asyncio.create_task(exchange.listen())
    await asyncio.sleep(0)
    await exchange.gather("update", ["b"], round=2, quorum=0, deadline=0)
    exchange._handle_message_now("b", Message("update", "b", 1))  # it is late, which is told
    with pytest.raises(OSError, match="no room for late"):
        await exchange.receive(["update"])
    listening.cancel()
    await b.close()


@virtual
async def test_a_timeout_next_to_the_role_is_not_the_end_of_a_gathering() -> None:
    exchange = Exchange(None, ["b"], None, Gathering(), Told(), EdgeRounds())  # type: ignore[arg-type]

    async def service() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(5)

    serving = asyncio.create_task(exchange.guard(service()))
    for wait in (exchange.wait_for_peers(20), exchange.gather("update", ["b"], round=1)):
        with pytest.raises(TimeoutError):
            await wait
    await serving
