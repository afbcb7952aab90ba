"""Peers with a transport that does nothing: what is in the tests of every transport is not repeated here."""

from __future__ import annotations

import asyncio

from node.assignment import Timeouts
from node.messaging.delivery.association import Association, Undelivered
from node.messaging.delivery.peers import Peers
from node.messaging.delivery.stream import QUEUE_MESSAGES
from node.messaging.wire import Message
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
