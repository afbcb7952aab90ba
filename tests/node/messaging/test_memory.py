"""What is particular to the in-memory transport; what all transports share is in tests/conformance."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from node.assignment import Timeouts
from node.errors import TransportError
from node.messaging.delivery.association import Event, Joined, Left, Lost, Received, Undelivered
from node.messaging.delivery.pair import Delay
from node.messaging.memory import MemoryNetwork, MemoryTransport
from node.messaging.wire import Message
from node.runtime.clock import run_virtual
from tests.virtual import virtual


def now() -> float:
    return asyncio.get_running_loop().time()


async def pair(network: MemoryNetwork) -> tuple[MemoryTransport, MemoryTransport]:
    """Two nodes that have met; peers are lost after 8 s."""
    a, b = (network.transport(name, [peer]) for name, peer in (("a", "b"), ("b", "a")))
    await b.start()
    await a.start()
    assert await b.receive() == Joined("a")
    assert await a.receive() == Joined("b")
    return a, b


async def message(transport: MemoryTransport) -> Message:
    event: Event = await transport.receive()
    assert isinstance(event, Received), event
    return event.message


def cut(network: MemoryNetwork) -> None:
    network.cut("a", "b")
    network.cut("b", "a")


def heal(network: MemoryNetwork) -> None:
    network.restore("a", "b")
    network.restore("b", "a")


@virtual
async def test_a_message_takes_as_long_as_the_flow_says() -> None:
    a, b = await pair(MemoryNetwork(lambda source, target: Delay(0.25 if source == "a" else 0.1)))
    began = now()
    await a.send(["b"], Message("model", "a"))
    await message(b)
    assert now() - began == pytest.approx(0.25)
    began = now()
    await b.send(["a"], Message("update", "b"))
    await message(a)
    assert now() - began == pytest.approx(0.1)


@virtual
async def test_a_flow_receives_the_size_of_each_message() -> None:
    class Noting(Delay):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []

        def send(self, now: float, size: int) -> float:
            self.sizes.append(size)
            return super().send(now, size)

    flows = {"a": Noting(), "b": Noting()}
    a, b = await pair(MemoryNetwork(lambda source, target: flows[source]))
    await a.send(["b"], Message("model", "a", None, {}, {"w": np.zeros(100_000, np.uint8)}))
    await message(b)
    (sent,) = a.traffic()
    assert flows["a"].sizes == [sent.bytes]
    assert 100_000 < sent.bytes < 100_200


@virtual
async def test_processing_takes_time_after_the_flow_and_keeps_the_order() -> None:
    """A large message takes 1 s in addition to the flow's 0.1 s, a small one sent with it none of its own."""
    a, b = await pair(MemoryNetwork(lambda *_: Delay(0.1), lambda size: 1.0 if size > 1000 else 0.0))
    began = now()
    await a.send(["b"], Message("model", "a", None, {}, {"w": np.zeros(2000, np.uint8)}))
    await a.send(["b"], Message("note", "a"))
    assert [(await message(b)).kind for _ in range(2)] == ["model", "note"]
    assert now() - began == pytest.approx(1.1)
    began = now()
    await a.send(["b"], Message("note", "a"))
    await message(b)
    assert now() - began == pytest.approx(0.1)


@virtual
async def test_changes_of_a_link_do_not_start_the_processing_again() -> None:
    """A message that takes 1 s after its arrival arrives on time, though its link changes every 0.3 s."""
    network = MemoryNetwork(lambda *_: Delay(0.1), lambda size: 1.0 if size > 1000 else 0.0)
    a, b = await pair(network)
    began = now()
    await a.send(["b"], Message("model", "a", None, {}, {"w": np.zeros(2000, np.uint8)}))
    for _ in range(3):
        await asyncio.sleep(0.3)
        network.line("a", "b").reschedule([])  # the flow counts it as arrived
    await message(b)
    assert now() - began == pytest.approx(1.1)


@virtual
async def test_what_a_short_cut_holds_up_arrives_in_order() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    began = now()
    await a.send(["b"], Message("model", "a", 1))
    await asyncio.sleep(0.05)
    cut(network)
    await a.send(["b"], Message("model", "a", 2))
    await asyncio.sleep(5)
    heal(network)
    for round in (1, 2):
        assert (await message(b)).round == round
        assert now() - began == pytest.approx(5.15)


@virtual
async def test_a_cut_longer_than_the_patience_loses_the_peer_and_all_in_flight() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    began = now()
    cut(network)
    await a.send(["b"], Message("model", "a", 1))
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    assert await b.receive() == Lost("a", "silent for 8.0 s")
    assert now() - began == pytest.approx(8.0)
    await asyncio.sleep(3.3)
    heal(network)
    assert await a.receive() == Joined("b")
    # Attempts to connect come at 8, 9, 10, 11, 12 s: the first after 11.3 s succeeds, and a hello takes 0.1 s.
    assert now() - began == pytest.approx(12.1)
    assert await b.receive() == Joined("a")
    await a.send(["b"], Message("model", "a", 2))
    assert (await message(b)).round == 2


@virtual
async def test_nothing_reaches_or_leaves_a_frozen_node() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    network.freeze("b", True)
    await a.send(["b"], Message("model", "a", 1))
    await b.send(["a"], Message("update", "b", 7))
    await asyncio.sleep(4)
    network.freeze("b", False)
    began = now()
    assert (await message(b)).round == 1
    assert now() == began
    assert (await message(a)).round == 7
    assert now() - began == pytest.approx(0.1)


@virtual
async def test_a_node_frozen_for_long_is_lost_and_learns_it_when_it_continues() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    network.freeze("b", True)
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    network.freeze("b", False)
    assert await a.receive() == Joined("b")
    assert await b.receive() == Lost("a", "the peer had lost this node")
    assert await b.receive() == Joined("a")


@pytest.mark.parametrize("flush", [None, 1.0], ids=["it printed nothing", "in order"])
@virtual
async def test_a_frozen_node_whose_peer_ended_notices_the_silence(flush: float | None) -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    network.freeze("b", True)
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    await a.close(flush)
    await asyncio.sleep(100)
    network.freeze("b", False)
    thawed = now()
    assert await b.receive() == Lost("a", "silent for 8.0 s")
    assert now() - thawed == pytest.approx(8.0)


@virtual
async def test_a_node_with_a_peer_that_ends_before_they_have_met_again_notices_the_silence() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    network.freeze("b", True)
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    await asyncio.sleep(0.3)
    network.freeze("b", False)  # the next attempt to connect is 0.7 s away
    await asyncio.sleep(0.3)
    await a.close(1.0)
    assert await b.receive() == Lost("a", "silent for 8.0 s")


@virtual
async def test_a_frozen_node_whose_peer_is_restarted_meets_it_again() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    network.freeze("b", True)
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    await a.close()
    again = network.transport("a", ["b"])
    await again.start()
    network.freeze("b", False)
    assert await again.receive() == Joined("b")
    assert await b.receive() == Lost("a", "it was restarted")
    assert await b.receive() == Joined("a")


@virtual
async def test_a_farewell_that_does_not_arrive_is_silence() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    await b.close(1.0)
    cut(network)
    assert isinstance(await a.receive(), Lost)
    await a.close()


@virtual
async def test_a_name_is_taken_while_its_transport_is_open() -> None:
    network = MemoryNetwork()
    first = network.transport("a", ["b"])
    await first.start()
    second = network.transport("a", ["b"])
    with pytest.raises(TransportError, match="a is in this network already"):
        await second.start()
    await first.close()
    await second.start()
    await second.close()


@virtual
async def test_waiting_costs_no_time_of_ones_own() -> None:
    network = MemoryNetwork()
    timeouts = Timeouts(beat=10.0, lost_after=3600.0)
    a, b = (network.transport(name, [peer], timeouts=timeouts) for name, peer in (("a", "b"), ("b", "a")))
    await b.start()
    await a.start()
    assert await a.receive() == Joined("b")
    await b.close()
    assert isinstance(await a.receive(), Lost)
    assert now() >= 3600


@virtual
async def test_a_connection_that_gave_up_is_made_again() -> None:
    class Hopeless(Delay):
        gave_up = False

        def send(self, now: float, size: int) -> float:
            return math.inf if self.gave_up else super().send(now, size)

        def open(self, now: float) -> float:
            self.gave_up = False
            return super().open(now)

    flows = {"a": Hopeless(0.1), "b": Hopeless(0.1)}
    a, b = await pair(MemoryNetwork(lambda source, target: flows[source]))
    flows["a"].gave_up = True
    await a.send(["b"], Message("model", "a", 1))
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    assert await b.receive() == Lost("a", "silent for 8.0 s")
    assert await a.receive() == Joined("b")
    await a.send(["b"], Message("model", "a", 2))
    assert await b.receive() == Joined("a")
    assert (await message(b)).round == 2


def test_a_farewell_over_a_connection_that_gave_up_is_silence() -> None:
    class GivesUp(Delay):
        def send(self, now: float, size: int) -> float:
            return math.inf

    async def work() -> None:
        a, b = await pair(MemoryNetwork(lambda source, target: GivesUp()))
        await a.close(flush=1.0)
        assert isinstance(await b.receive(), Lost)
        assert now() == pytest.approx(8.0)

    run_virtual(asyncio.wait_for(work(), 100.0))


@virtual
async def test_a_node_frozen_before_it_starts_is_met_when_it_is_thawed() -> None:
    network = MemoryNetwork()
    a, b = (network.transport(name, [peer]) for name, peer in (("a", "b"), ("b", "a")))
    network.freeze("b", True)
    await a.start()
    await b.start()
    asyncio.get_running_loop().call_later(3.0, network.freeze, "b", False)
    assert await a.receive() == Joined("b")
    assert now() == pytest.approx(3.0)


@virtual
async def test_a_node_that_was_ended_while_it_was_frozen_starts_thawed() -> None:
    network = MemoryNetwork()
    _, b = await pair(network)
    network.freeze("b", True)
    await b.close()
    again = network.transport("b", ["a"])
    await again.start()
    assert await again.receive() == Joined("a")


@virtual
async def test_peers_may_be_admitted_and_forgotten_while_a_node_runs() -> None:
    network = MemoryNetwork(lambda *_: Delay(1.0))
    cloud = network.transport("cloud", [])
    await cloud.start()
    for number in range(2):  # the same client twice, as two incarnations
        cloud.admit("client")
        client = network.transport("client", ["cloud"])
        await client.start()
        assert await cloud.receive() == Joined("client")
        assert await client.receive() == Joined("cloud")
        await client.send(["cloud"], Message("update", "client", number))
        assert (await message(cloud)).round == number
        await client.send(["cloud"], Message("update", "client", 7))  # in flight when it ends
        await client.close()
        cloud.forget(["client"])
    await asyncio.sleep(60)
    assert not len(cloud._events)  # neither the message in flight nor a loss
    with pytest.raises(TransportError, match="has no peer 'client'"):
        await cloud.send(["client"], Message("model", "cloud", 1))
    assert [(row.peer, row.messages) for row in cloud.traffic()] == [("client", 2)]


@virtual
async def test_events_of_a_forgotten_peer_are_dropped() -> None:
    network = MemoryNetwork()
    cloud = network.transport("cloud", ["other"])
    await cloud.start()
    cloud.admit("client")
    client, other = network.transport("client", ["cloud"]), network.transport("other", ["cloud"])
    await client.start()
    await other.start()
    await asyncio.sleep(1)
    cloud.forget(["client"])
    assert await cloud.receive() == Joined("other")
    assert not len(cloud._events)


@virtual
async def test_a_peer_may_be_forgotten_while_the_node_is_frozen() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.25))
    cloud, client = network.transport("cloud", ["client"]), network.transport("client", ["cloud"])
    await cloud.start()
    await client.start()
    assert await cloud.receive() == Joined("client")
    await client.send(["cloud"], Message("update", "client"))
    network.freeze("cloud", True)
    await asyncio.sleep(1)
    await cloud.send(["client"], Message("model", "cloud"))
    cloud.forget(["client"])
    network.freeze("cloud", False)
    assert not len(cloud._events)


@virtual
async def test_a_listener_receives_messages_when_they_arrive_and_after_the_events_before_them() -> None:
    heard: list[tuple[str, int | None, float]] = []

    def hear(peer: str, message: Message) -> None:
        heard.append((peer, message.round, now()))

    network = MemoryNetwork(lambda source, target: Delay(0.25))
    a, b = (network.transport(name, [peer]) for name, peer in (("a", "b"), ("b", "a")))
    a.on_message(hear)
    await a.start()
    await b.start()
    assert await b.receive() == Joined("a")
    joined = now()
    await b.send(["a"], Message("update", "b", 1))
    await asyncio.sleep(1)
    assert heard == []  # nobody has taken the event before it
    assert await a.receive() == Joined("b")
    assert (await message(a)).round == 1
    await b.send(["a"], Message("update", "b", 2))
    await asyncio.sleep(1)
    assert heard == [("b", 2, joined + 1.25)]
    await b.send(["a"], Message("update", "b", 3))
    network.freeze("a", True)
    await asyncio.sleep(1)
    network.freeze("a", False)
    assert (await message(a)).round == 3
    assert len(heard) == 1


@virtual
async def test_what_waits_for_a_peer_is_replaced_by_its_kind_only_if_asked() -> None:
    network = MemoryNetwork()
    a = network.transport("a", ["b"])
    await a.start()
    for kind, round, replace in (
        ("model", 1, False),
        ("model", 2, False),
        ("data", 3, False),
        ("model", 4, True),
        ("model", 5, False),
    ):
        await a.send(["b"], Message(kind, "a", round), replace=replace)
    b = network.transport("b", ["a"])
    await b.start()
    assert await b.receive() == Joined("a")
    assert [(await message(b)).round for _ in range(3)] == [3, 4, 5]
    assert await a.receive() == Joined("b")
    assert not len(a._events)  # nothing was undelivered


@virtual
async def test_messages_and_their_bytes_are_counted_by_peer_kind_and_direction() -> None:
    a, b = await pair(MemoryNetwork())
    for kind in ("model", "model", "data"):
        await a.send(["b"], Message(kind, "a"))
        await message(b)
    for rows, peer, direction in ((a.traffic(), "b", "sent"), (b.traffic(), "a", "received")):
        counts = [(row.peer, row.kind, row.direction, row.messages) for row in rows]
        assert counts == [(peer, "data", direction, 1), (peer, "model", direction, 2)]
        assert rows[1].bytes == 2 * (rows[0].bytes + len("model") - len("data"))
    assert now() == 0.0  # neither a flow nor a host takes time unless it is said


@virtual
async def test_a_farewell_takes_no_bytes_and_no_processing() -> None:
    sizes: list[int] = []

    def processing(size: int) -> float:
        sizes.append(size)
        return 0.0

    a, b = await pair(MemoryNetwork(processing=processing))
    await a.close(flush=1.0)
    assert await b.receive() == Left("a")
    assert sizes == [0]
    await b.send(["a"], Message("model", "b"))
    assert await b.receive() == Undelivered("a", 1, "left")


@virtual
async def test_a_message_over_a_link_that_is_cut_is_not_a_connection_that_gave_up() -> None:
    """Both wait for the end of the cut, which loses no one."""
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    for _ in range(3):
        network.cut("a", "b")
        network.cut("a", "b")  # twice is once
        await a.send(["b"], Message("model", "a"))
        await asyncio.sleep(7.0)
        network.restore("a", "b")
        network.restore("a", "b")
        await message(b)
        await asyncio.sleep(7.0)
    assert not len(a._events)
    assert not len(b._events)


@virtual
async def test_a_cut_of_exactly_the_patience_loses_the_peer_and_the_next_attempt_finds_it() -> None:
    """The silence starts when the link is cut, and attempts are whole seconds after the loss."""
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    await asyncio.sleep(0.4)
    network.cut("b", "a")
    cut_at = now()
    assert await a.receive() == Lost("b", "silent for 8.0 s")
    assert await b.receive() == Lost("a", "silent for 8.0 s")
    assert now() - cut_at == pytest.approx(8.0)
    await a.send(["b"], Message("model", "a"))
    assert await a.receive() == Undelivered("b", 1, "lost")
    await asyncio.sleep(1.0)
    network.restore("b", "a")
    assert await a.receive() == Joined("b")
    assert now() - cut_at == pytest.approx(9.1)  # an attempt comes at that very moment
    assert await b.receive() == Joined("a")


@virtual
async def test_a_peer_is_lost_by_the_shorter_patience_of_both() -> None:
    network = MemoryNetwork()
    a = network.transport("a", ["b"], timeouts=Timeouts(beat=1.0, lost_after=3.0))
    b = network.transport("b", ["a"], timeouts=Timeouts(beat=1.0, lost_after=5.0))
    await a.start()
    await b.start()
    assert (await a.receive(), await b.receive()) == (Joined("b"), Joined("a"))
    cut(network)
    assert await b.receive() == Lost("a", "silent for 3.0 s")
    heal(network)
    assert await b.receive() == Joined("a")
    await a.close()
    since = now()
    assert await b.receive() == Lost("a", "silent for 5.0 s")  # its own is all that is left
    assert now() - since == pytest.approx(5.0)


@virtual
async def test_a_node_restarted_in_time_is_lost_and_joins_with_what_was_not_sent() -> None:
    network = MemoryNetwork(lambda source, target: Delay(0.1))
    a, b = await pair(network)
    await b.send(["a"], Message("update", "b", 1))  # in flight when a ends
    await a.close()
    again = network.transport("a", ["b"])
    await again.start()
    assert await again.receive() == Joined("b")
    assert now() == pytest.approx(0.2)
    assert await b.receive() == Lost("a", "it was restarted")
    assert await b.receive() == Joined("a")
    await b.send(["a"], Message("update", "b", 2))
    assert (await message(again)).round == 2


@virtual
async def test_who_does_not_know_a_node_does_not_meet_it() -> None:
    network = MemoryNetwork()
    a, b = network.transport("a", ["b"]), network.transport("b", [])
    await a.start()
    await b.start()
    await asyncio.sleep(100)
    assert not len(a._events)
    b.admit("a")
    assert await a.receive() == Joined("b")
    assert now() == pytest.approx(100.0)


@virtual
async def test_a_transport_that_was_closed_or_never_started_closes_no_other() -> None:
    network = MemoryNetwork()
    a, b = await pair(network)
    await network.transport("a", ["b"]).close(flush=1.0)
    await a.send(["b"], Message("model", "a"))
    assert (await message(b)).kind == "model"
    await a.close()
    again = network.transport("a", ["b"])
    await again.start()
    await a.close(flush=1.0)
    assert await again.receive() == Joined("b")
    assert await b.receive() == Lost("a", "it was restarted")


@virtual
async def test_messages_under_way_keep_their_order_when_the_link_gets_faster() -> None:
    """At 1 s, the flow says that the second of three arrives at 2 s and the third at 4 s; the first has arrived, and
    its processing ends at 3.1 s. So the second waits for it."""
    network = MemoryNetwork(lambda *_: Delay(0.1), lambda size: 3.0 if size > 1000 else 0.0)
    a, b = await pair(network)
    began = now()
    await a.send(["b"], Message("model", "a", 1, {}, {"w": np.zeros(2000, np.uint8)}))
    for round in (2, 3):
        await a.send(["b"], Message("note", "a", round))
    await asyncio.sleep(1.0)
    network.line("a", "b").reschedule([began + 2.0, began + 4.0])
    times = []
    for round in (1, 2, 3):
        assert (await message(b)).round == round
        times.append(now() - began)
    assert times == pytest.approx([3.1, 3.1, 4.0])
