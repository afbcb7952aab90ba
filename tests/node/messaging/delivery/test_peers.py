"""Peers with a transport that does nothing: what is in the tests of every transport is not repeated here."""

from __future__ import annotations

import asyncio

from node.assignment import Timeouts
from node.messaging.delivery.association import Association, Lost, Undelivered
from node.messaging.delivery.peers import Peers
from node.messaging.delivery.stream import QUEUE_MESSAGES
from node.messaging.wire import Message
from node.runtime.clock import VirtualLoop
from tests.virtual import virtual

TIMEOUTS = Timeouts(beat=1.0, lost_after=8.0)


@virtual
async def test_every_peer_is_attended_to_at_once_and_then_twice_a_beat() -> None:
    seen: list[tuple[float, str]] = []

    def attend(association: Association) -> None:
        seen.append((asyncio.get_running_loop().time(), association.peer))

    peers = Peers("a", ["b", "c"], "first", TIMEOUTS, attend)
    peers.start()
    await asyncio.sleep(1.25)
    await peers.stop(None)
    await asyncio.sleep(10)
    assert seen == [(time, peer) for time in (0.0, 0.5, 1.0) for peer in ("b", "c")]


@virtual
async def test_a_full_queue_holds_only_who_sends_to_it() -> None:
    peers = Peers("a", ["b", "c"], "first", TIMEOUTS, lambda association: None)
    peers.associations["b"].state = "present"
    for _ in range(QUEUE_MESSAGES):
        await peers.send(["b"], Message("model", "a"), replace=False)
    both = asyncio.create_task(peers.send(["b", "c"], Message("model", "a"), replace=False))
    await asyncio.sleep(1)
    assert not both.done()
    assert not peers.associations["c"].outbound.idle  # it went to the one with room all the same
    await peers.send(["b"], Message("model", "a"), replace=True)
    assert await peers.receive() == Undelivered("b", QUEUE_MESSAGES, "superseded")
    await asyncio.wait_for(both, 1)


@virtual
async def test_a_peer_that_never_came_holds_no_one() -> None:
    peers = Peers("a", ["b"], "first", TIMEOUTS, lambda association: None)
    for _ in range(QUEUE_MESSAGES + 1):
        await asyncio.wait_for(peers.send(["b"], Message("model", "a"), replace=False), 1)
    assert await peers.receive() == Undelivered("b", 1, "unknown")


@virtual
async def test_the_time_for_which_the_node_was_frozen_is_not_the_peers_silence() -> None:
    """It looks each 0.5 s. From 1.25 s on it is frozen for 20 s: the look that was due at 1.5 s comes at 21.25 s. Of
    the 20.25 s since the one before, 1 s is usual, and 19.25 s do not count: 8 s of silence are over at 27.25 s."""
    peers = Peers("a", ["b"], "first", TIMEOUTS, lambda association: None)
    peers.associations["b"].state = "present"
    peers.start()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(1.25)
    loop._jumping.now += 20.0
    assert await peers.receive() == Lost("b", "silent for 8.5 s")
    assert loop.time() == 27.75
    await peers.stop(None)


@virtual
async def test_a_goodbye_is_waited_for_no_longer_than_it_takes() -> None:
    """A connection takes it after 0.75 s. Peers that have not come get none."""
    attended: list[str] = []
    peers = Peers("a", ["b", "c"], "first", TIMEOUTS, lambda association: attended.append(association.peer))
    present = peers.associations["b"]
    present.state = "present"

    def take() -> None:
        assert present.outbound.peek() is not None
        peers.taken(present)

    loop = asyncio.get_running_loop()
    loop.call_later(0.75, take)
    await peers.stop(2.0)
    assert (loop.time(), attended) == (0.75, ["b"])


@virtual
async def test_a_goodbye_is_not_needed_by_a_peer_that_leaves_first() -> None:
    peers = Peers("a", ["b"], "first", TIMEOUTS, lambda association: None)
    peers.associations["b"].state = "present"

    def leave() -> None:
        peers.associations["b"].state = "left"
        peers._progress.set()

    asyncio.get_running_loop().call_later(0.5, leave)
    await peers.stop(2.0)
    assert asyncio.get_running_loop().time() == 0.5


@virtual
async def test_a_new_connection_is_opened_as_soon_as_a_packet_asks_for_it() -> None:
    """The hello of a restarted peer does; its other packets do not."""
    attended: list[str] = []
    peers = Peers("a", ["b"], "first", TIMEOUTS, lambda association: attended.append(association.peer))
    near = peers.associations["b"]
    near.open(0.0)
    near.outbound.peek()
    peers.taken(near)
    for life, expected in (("first", []), ("second", ["b"])):
        far = Association("a", life, TIMEOUTS, 0.0)
        far.open(0.0)
        far.outbound.beat()
        packets = []
        while (frames := far.outbound.peek()) is not None:
            packets.append([bytes(frame) for frame in frames])
            far.taken(0.0)
        peers.handle("b", packets[0])
        assert attended == expected
        if near.reopen:
            near.open(0.0)
        peers.handle("b", packets[1])
        assert attended == expected
