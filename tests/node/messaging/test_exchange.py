"""What a peer can cause as often as it likes, and how much of it the record is told."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from node.assignment import Gathering
from node.errors import Finished
from node.messaging.delivery.association import BadMessage, Event, Joined, Left, Received
from node.messaging.exchange import TOLD_A_SECOND, TOLD_AT_ONCE, Exchange
from node.messaging.gathering import KEPT
from node.messaging.memory import MemoryNetwork
from node.messaging.numbering import EdgeRounds
from node.messaging.wire import Message
from node.runtime.clock import run_virtual
from tests.texts import containing
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
    reason = containing(f"{5001 - TOLD_AT_ONCE} more events 'bad_message' came too")
    assert said[-2:] == [
        ("bad_message", {"peer": "a", "reason": reason}),
        ("bad_message", {"peer": "a", "reason": "odd"}),
    ]
    assert len(said) == TOLD_AT_ONCE + 1 + 2
    assert TOLD_A_SECOND >= 1


def test_superseded_messages_too() -> None:
    said = told([Received("a", Message("update", "a", number)) for number in range(5000)], 0.0)
    reason = containing(f"{5000 - KEPT - TOLD_AT_ONCE} more events 'superseded' came too")
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


@pytest.mark.parametrize(("later", "more"), [(0.09, 0), (0.1, 1), (0.29, 2), (1.0, 10), (1000.0, 100)])
def test_a_hundred_events_and_ten_more_each_second_are_recorded(later: float, more: int) -> None:
    async def hear() -> int:
        reporter = Told()
        exchange = Exchange(None, [], None, Gathering(), reporter, EdgeRounds())  # type: ignore[arg-type]
        for pause in (later, 0.0):
            for _ in range(300):
                await exchange._handle(BadMessage("a", "odd"))
            await asyncio.sleep(pause)
        return [fields["reason"] for _, fields in reporter.events].count("odd")

    assert run_virtual(hear()) == 100 + more


class Sending:
    """A transport that notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[str], str, bool]] = []

    async def send(self, to: Iterable[str], message: Message, *, replace: bool = False) -> None:
        self.sent.append((list(to), message.kind, replace))


class Answering:
    """An exchange of a cloud with peers a, b and c, of which a and b are present, and its events."""

    def __init__(self, rule: Gathering | None = None) -> None:
        self.told = Told()
        self.transport = Sending()
        rule = rule or Gathering(quorum=0.5, deadline=10.0)
        self.exchange = Exchange(self.transport, ["a", "b", "c"], "parent", rule, self.told, EdgeRounds())  # type: ignore[arg-type]
        for peer in ("a", "b"):
            self.exchange.membership.join(peer)

    def gather(self, *peers: str, **values: Any) -> asyncio.Task[list[Message]]:
        return asyncio.create_task(self.exchange.gather("update", peers or ("a", "b"), round=1, **values))

    def answer(self, *senders: str, kind: str = "update") -> None:
        for sender in senders:
            tensors = {"w": np.zeros(1)}
            self.exchange._handle_message_now(sender, Message(kind, sender, 1, {}, tensors))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.told.events if each == name]


def senders(messages: list[Message]) -> list[str]:
    return [each.sender for each in messages]


@virtual
async def test_enough_answers_end_a_gathering_and_no_one_is_called_silent() -> None:
    it = Answering()
    gathering = it.gather(enough=1)
    await asyncio.sleep(1)
    it.answer("a")
    assert senders(await gathering) == ["a"]
    assert asyncio.get_running_loop().time() == 1.0
    assert it.told.events == []
    assert (it.exchange.gatherings, it.exchange.abandoned) == (1, 0)


@virtual
async def test_who_is_present_and_silent_until_the_deadline_is_reported() -> None:
    """Of a and b, which are there all the time; c comes after the start."""
    it = Answering()
    gathering = it.gather("a", "b", "c")
    await asyncio.sleep(1)
    it.answer("a")
    it.exchange.membership.join("c")
    assert senders(await gathering) == []  # one of three is no quorum
    assert asyncio.get_running_loop().time() == 10.0
    assert it.events("unanswered") == [{"kind": "update", "peers": ["b"], "deadline": 10.0}]
    assert it.events("round_abandoned") == [{"kind": "update", "have": 1, "need": 2, "peers": ["a"]}]
    assert (it.exchange.gatherings, it.exchange.abandoned) == (1, 1)


@virtual
async def test_who_went_away_and_came_back_is_not_called_silent() -> None:
    it = Answering()
    gathering = it.gather(deadline=5.0)
    await asyncio.sleep(1)
    it.exchange.lose("b")
    it.exchange.membership.join("b")
    it.answer("a")
    assert senders(await gathering) == ["a"]
    assert asyncio.get_running_loop().time() == 5.0
    assert it.told.events == []


@virtual
async def test_a_gathering_of_no_one_or_without_need_is_none() -> None:
    it = Answering()
    assert await it.gather(quorum=0, deadline=3.0) == []
    assert asyncio.get_running_loop().time() == 3.0
    assert await it.exchange.gather("update", [], round=2) == []
    assert (it.exchange.gatherings, it.exchange.abandoned) == (0, 0)
    assert it.told.events == []


@virtual
async def test_a_gathering_of_those_who_have_left_needs_one() -> None:
    it = Answering()
    for peer in ("a", "b"):
        await it.exchange._handle(Left(peer))
    assert await it.gather() == []
    assert it.events("round_abandoned") == [{"kind": "update", "have": 0, "need": 1, "peers": []}]


@virtual
async def test_a_rule_by_number_holds_where_no_quorum_is_given() -> None:
    it = Answering(Gathering(quorum=None, count=2, deadline=4.0))
    gathering = it.gather("a", "b", "c")
    await asyncio.sleep(1)
    it.answer("a", "b")
    assert senders(await gathering) == ["a", "b"]
    assert asyncio.get_running_loop().time() == 1.0


@virtual
async def test_a_deadline_may_be_infinite() -> None:
    it = Answering()
    gathering = it.gather(deadline=math.inf)
    await asyncio.sleep(1e6)
    it.answer("a", "b")
    assert senders(await gathering) == ["a", "b"]


@virtual
async def test_what_counted_is_reported_before_the_next_and_at_the_end() -> None:
    it = Answering()
    for _ in range(2):
        gathering = it.gather()
        await asyncio.sleep(1)
        it.answer("a", "b")
        await gathering
        it.exchange.dismiss([])
    assert it.events("contributed") == [{"kind": "update", "gathered": True, "peers": ["a", "b"]}]
    it.answer("b", kind="state")
    assert (await it.exchange.receive(["state"])).sender == "b"
    it.answer("a", kind="state")
    assert (await it.exchange.receive(["state"])).sender == "a"
    assert it.events("contributed")[1:] == [{"kind": "state", "gathered": False, "peers": ["b"]}]
    gathering = it.gather("c", deadline=1.0)
    await asyncio.sleep(0)
    it.answer("c")
    await gathering
    it.answer("a", kind="unknown")
    it.exchange.report_unreceived()
    assert it.events("contributed")[2:] == [
        {"kind": "update", "gathered": True, "peers": ["c"]},
        {"kind": "state", "gathered": False, "peers": ["a"]},
    ]
    assert it.events("unreceived") == [{"kind": "unknown", "peers": ["a"]}]


@virtual
async def test_a_gathering_with_refused_answers_only_is_abandoned() -> None:
    it = Answering()
    gathering = it.gather()
    await asyncio.sleep(1)
    it.answer("a", "b")
    for message in await gathering:
        assert it.exchange.abandoned == 0
        it.exchange.refuse(message, "has no samples")
    reasons = [(fields["peer"], fields["kind"], fields["reason"]) for fields in it.events("bad_message")]
    assert reasons == [(peer, "update", "message 'update' has no samples") for peer in ("a", "b")]
    assert it.events("round_abandoned") == [{"kind": "update", "have": 0, "need": 1, "peers": []}]
    assert it.exchange.abandoned == 1


@virtual
async def test_a_published_message_replaces_the_one_before_it_wherever_it_waits() -> None:
    it = Answering()
    await it.exchange.publish(["c", "b", "a"], Message("model", "cloud", 1))
    await it.exchange.publish_each("share", {peer: Message("share", "cloud", 1) for peer in ("c", "b", "a")})
    assert it.transport.sent == [(["a", "b"], "model", True), (["a"], "share", True), (["b"], "share", True)]
    await it.exchange._handle(Joined("c"))
    it.exchange.withdraw("share")
    it.exchange.withdraw("share")
    await it.exchange._handle(Joined("b"))
    it.exchange.dismiss(["a"])
    await it.exchange._handle(Joined("a"))
    assert it.transport.sent[3:] == [(["c"], "model", True), (["c"], "share", True), (["b"], "model", True)]
    await it.exchange.send(["a"], Message("note", "cloud"))
    assert it.transport.sent[-1] == (["a"], "note", False)


@virtual
async def test_a_peer_that_is_dismissed_has_its_allowance_again() -> None:
    it = Answering()
    for peer in ("a", "b"):
        for _ in range(150):
            await it.exchange._handle(BadMessage(peer, "odd"))
    it.exchange.dismiss(["a"])
    for peer in ("a", "b"):
        await it.exchange._handle(BadMessage(peer, "odd"))
    assert Counter(fields["peer"] for fields in it.events("bad_message")) == {"a": 101, "b": 100}


@virtual
async def test_who_is_left_out_of_what_is_received_is_named() -> None:
    it = Answering()
    for sender, value in (("a", math.nan), ("b", 1.0), ("parent", math.inf)):
        message = Message("state", sender, 1, {}, {"w": np.array([value])})
        it.exchange._handle_message_now(sender, message)
    left_out: list[str] = []
    assert (await it.exchange.receive(["state"], left_out=left_out.extend)).sender == "b"
    assert left_out == ["a"]
    assert it.events("not_finite") == [{"peer": "a", "kind": "state", "what": "w"}]
    assert (await it.exchange.receive(["state"])).sender == "parent"  # it would be waited for for ever


@virtual
async def test_a_transport_that_can_hands_messages_over_as_they_arrive() -> None:
    it = Answering()
    handlers: list[object] = []

    async def receive() -> Event:
        await asyncio.sleep(1)
        return Joined("c")

    it.transport.receive = receive  # type: ignore[attr-defined]
    for on_message in (None, handlers.append):
        if on_message is not None:
            it.transport.on_message = on_message  # type: ignore[attr-defined]
        listening = asyncio.create_task(it.exchange.listen())
        await asyncio.sleep(1.5)
        listening.cancel()
    assert handlers == [it.exchange._handle_message_now]
    assert "c" in it.exchange.membership.present


@virtual
async def test_all_expected_peers_are_waited_for_at_the_start() -> None:
    it = Answering()
    loop = asyncio.get_running_loop()
    loop.call_later(2.0, it.exchange.lose, "a")
    await it.exchange.wait_for_peers(3.0)
    assert loop.time() == 3.0
    await it.exchange._handle(Joined("c"))
    await it.exchange.wait_for_peers(3.0)
    assert loop.time() == 3.0


@virtual
async def test_the_end_of_the_run_ends_waits_and_work_at_once() -> None:
    it = Answering()
    loop = asyncio.get_running_loop()
    assert await it.exchange.unless_stopped(asyncio.sleep(1, "done")) == "done"
    loop.call_later(1.0, it.answer, "b")
    for sender in ("a", "parent"):  # only a parent's message ends it
        loop.call_later(2.0, it.exchange._handle_message_now, sender, Message("finish", sender))
    with pytest.raises(Finished):
        await it.exchange.unless_stopped(asyncio.sleep(10))
    assert (loop.time(), it.exchange.stopped) == (3.0, True)
    for wait in (it.exchange.receive(["update"]), it.exchange.gather("update", ["a"], 1)):
        with pytest.raises(Finished):
            await wait
    it.exchange.close()
