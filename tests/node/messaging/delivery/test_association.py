from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from node.assignment import Timeouts
from node.messaging.delivery.association import (
    HELLOS,
    LONGEST_HELLO,
    Association,
    BadMessage,
    Event,
    Joined,
    Left,
    Lost,
    Received,
    Refused,
    Traffic,
    Undelivered,
)
from node.messaging.delivery.packet import FRAMING, PacketType, prefix
from node.messaging.delivery.stream import KINDS, Outgoing
from node.messaging.wire import PROTOCOL, Buffer, Message, encode
from tests.texts import containing

TIMEOUTS = Timeouts(beat=1.0, lost_after=8.0)

Packet = list[bytes]


def outgoing(kind: str = "model", size: int = 0, sender: str = "a") -> Outgoing:
    return Outgoing(kind, *encode(Message(kind, sender, 1, {}, {"w": np.ones(size, np.uint8)} if size else {})))


class Side:
    """One end of an association; ``packets`` what it would send on its connection."""

    def __init__(self, name: str, peer: str, incarnation: str = "first", now: float = 0.0) -> None:
        self.name = name
        self.association = Association(peer, f"{name}-{incarnation}", TIMEOUTS, now)

    def packets(self, now: float) -> list[Packet]:
        """Open a new connection if one is wanted, and let it take everything."""
        if self.association.reopen:
            self.association.open(now)
        packets = []
        while (frames := self.association.outbound.peek()) is not None:
            packets.append([bytes(frame) for frame in frames])
            self.association.taken(now)
        return packets

    def hear(self, packets: list[Packet], now: float) -> list[Event]:
        return [event for packet in packets for event in self.association.receive(packet, now)]


def meet(now: float = 0.0) -> tuple[Side, Side]:
    a, b = Side("a", "b"), Side("b", "a")
    to_b, to_a = a.packets(now), b.packets(now)
    assert a.hear(to_a, now) == [Joined("b")]
    assert b.hear(to_b, now) == [Joined("a")]
    return a, b


def kinds(events: list[Event]) -> list[Any]:
    return [type(event) for event in events]


def test_a_beat_follows_silence_and_keeps_the_peer() -> None:
    a, b = meet()
    for second in range(1, 30):
        for one, other in ((a, b), (b, a)):
            assert one.association.tick(second, 0.0) == []
            assert other.hear(one.packets(second), second) == []
    assert [row.messages for row in b.association.traffic() if row.kind == "beat"] == [29, 29]  # each way


def test_a_node_that_sends_needs_no_beat() -> None:
    a, _ = meet()
    a.association.put(outgoing())
    a.packets(0.9)
    a.association.tick(1.0, 0.0)
    assert a.packets(1.0) == []


def test_pieces_of_a_message_are_signs_of_life() -> None:
    a, b = meet()
    a.association.put(outgoing(size=40_000))
    pieces = a.packets(0.0)
    assert len(pieces) > 5
    for place, piece in enumerate(pieces):
        now = 7.0 * (place + 1)
        b.packets(now)  # its beats are taken
        events = b.hear([piece], now)
        assert b.association.tick(now, 0.0) == []
    assert kinds(events) == [Received]


def test_silence_loses_the_peer_and_what_is_queued() -> None:
    a, _ = meet()
    a.association.put(outgoing())
    assert a.association.tick(8.0, 0.0) == []
    assert a.association.tick(8.1, 0.0) == [Lost("b", "silent for 8.1 s"), Undelivered("b", 1, "lost")]
    assert a.association.reopen
    assert a.association.put(outgoing()) == [Undelivered("b", 1, "lost")]


def test_ones_own_absence_is_not_counted_against_the_peer() -> None:
    a, b = meet()
    assert a.association.tick(60.0, stalled=59.5) == []
    b.association.tick(60.5, 0.0)
    a.hear(b.packets(60.5), 60.5)
    assert a.association.tick(68.0, 0.0) == []
    assert kinds(a.association.tick(69.0, 0.0)) == [Lost]


def test_a_node_that_was_lost_loses_in_turn() -> None:
    a, b = meet()
    assert kinds(a.association.tick(9.0, 0.0)) == [Lost]
    b.association.put(outgoing(sender="b"))
    assert b.hear(a.packets(9.0), 9.0) == [
        Lost("a", "the peer had lost this node"),
        Undelivered("a", 1, "lost"),
        Joined("a"),
    ]
    assert a.hear(b.packets(9.0), 9.0) == [Joined("b")]
    assert b.hear(a.packets(9.1), 9.1) == []  # no further loss: the two agree again
    a.association.put(outgoing())
    assert kinds(b.hear(a.packets(9.2), 9.2)) == [Received]


def test_packets_missing_from_a_stream_lose_the_peer() -> None:
    a, b = meet()
    for _ in range(3):
        a.association.put(outgoing())
    first, _, third = a.packets(1.0)
    assert kinds(b.hear([first], 1.0)) == [Received]
    (lost,) = b.hear([third], 1.0)
    assert isinstance(lost, Lost)
    assert lost.reason == containing("some of its data was lost")
    assert kinds(a.hear(b.packets(1.0), 1.0)) == [Lost, Joined]
    assert kinds(b.hear(a.packets(1.1), 1.1)) == [Joined]


def test_what_an_old_connection_still_delivers_is_passed_over() -> None:
    a, b = meet()
    a.association.put(outgoing())
    old = a.packets(1.0)
    a.association.tick(9.0, 0.0)
    b.hear(a.packets(9.0), 9.0)
    assert b.hear(old, 9.1) == []
    assert [row.messages for row in b.association.traffic() if row.kind == "stale"] == [1]


def test_a_restarted_peer_is_lost_and_joins_and_gets_a_new_connection() -> None:
    a, b = meet()
    old_hello = Side("b", "a").packets(0.0)
    a.association.put(outgoing())
    again = Side("b", "a", "second", now=2.0)
    assert a.hear(again.packets(2.0), 2.0) == [Lost("b", "it was restarted"), Undelivered("b", 1, "lost"), Joined("b")]
    assert a.association.reopen
    assert again.hear(a.packets(2.0), 2.0) == [Joined("a")]
    assert a.hear(old_hello, 2.1) == []  # its predecessor's hello comes late
    del b


def test_goodbye_is_no_loss_and_a_later_hello_is_welcome() -> None:
    a, b = meet()
    b.association.outbound.close()
    a.association.put(outgoing())
    assert a.hear(b.packets(1.0), 1.0) == [Left("b"), Undelivered("b", 1, "left")]
    assert a.association.tick(100.0, 0.0) == []
    assert not a.association.reopen
    assert a.hear(Side("b", "a", "second").packets(101.0), 101.0) == [Joined("b")]
    assert a.association.reopen


def test_a_peer_that_never_comes_is_not_lost_but_tried_again() -> None:
    a = Side("a", "b")
    a.packets(0.0)
    assert a.association.tick(8.0, 0.0) == []
    assert not a.association.reopen
    assert a.association.tick(8.5, 0.0) == []
    assert a.association.reopen


def test_another_protocol_is_refused_once() -> None:
    a = Side("a", "b")
    hello = Side("b", "a").packets(0.0)[0][0]
    other = hello[:13] + msgpack.packb({"protocol": 3, "incarnation": "x", "heard": None})
    expected = Refused("b", containing("protocol 3, this node 2"))
    assert a.hear([[other], [other]], 0.0) == [expected]
    assert a.association.put(outgoing()) == [Undelivered("b", 1, "refused")]
    assert a.association.tick(100.0, 0.0) == []


def test_bad_bytes_cost_an_event() -> None:
    a, _ = meet()
    hello = Side("b", "a").packets(0.0)[0][0]
    for packet in ([b""], [hello[:13]], [hello[:13] + msgpack.packb({"protocol": 2})]):
        assert kinds(a.hear([packet], 0.0)) == [BadMessage]
    assert a.association.state == "present"


def test_a_newer_message_replaces_those_of_its_kind_that_wait() -> None:
    a, b = meet()
    assert a.association.put(outgoing("model")) == []
    assert a.association.put(outgoing("data")) == []
    assert a.association.put(outgoing("model"), replace=True) == [Undelivered("b", 1, "superseded")]
    events = b.hear(a.packets(1.0), 1.0)
    assert [event.message.kind for event in events if isinstance(event, Received)] == ["data", "model"]


def test_traffic_is_counted_alike_on_both_sides() -> None:
    a, b = meet()
    a.association.put(outgoing(size=100_000))
    packets: list[list[Buffer]] = [[*packet] for packet in a.packets(1.0)]
    for packet in packets:
        b.association.receive(packet, 1.0)
    # Header and body count for the message; the packets' prefixes, type, stream and number, 1 + 4 + 8 bytes, do not.
    size = outgoing(size=100_000).size
    assert sum(len(frame) for packet in packets for frame in packet) == size + 13 * len(packets)
    assert Traffic("b", "model", "sent", 1, size) in a.association.traffic()
    assert Traffic("a", "model", "received", 1, size) in b.association.traffic()
    (framing,) = (row for row in a.association.traffic() if (row.kind, row.direction) == (FRAMING, "sent"))
    assert framing.bytes == 13 * framing.messages
    assert framing.messages > len(packets)  # the hello has a packet of its own


def hello(stream: int, **said: Any) -> Packet:
    saying = {"protocol": PROTOCOL, "incarnation": "b-first", "heard": None} | said
    return [prefix(PacketType.HELLO, stream, 0) + msgpack.packb(saying)]


def test_a_peer_that_restarts_all_the_time_is_passed_over_and_admitted_again_later() -> None:
    a, b = Side("a", "b"), Side("b", "a")
    a.packets(0.0)
    events = a.hear([hello(1, incarnation=f"b-{number}") for number in range(1000)], 0.0)
    assert sum(isinstance(event, Joined) for event in events) == HELLOS
    assert len(a.association._predecessors) < HELLOS
    later = TIMEOUTS.beat * 1.5
    assert kinds(a.hear(b.packets(later), later)) == [Lost, Joined]


def test_restarts_over_a_long_time_are_remembered_for_a_while() -> None:
    a = Side("a", "b")
    for number in range(200):
        a.hear([hello(1, incarnation=f"b-{number}")], float(10 * number))
    assert len(a.association._predecessors) == 64
    assert a.hear([hello(9, incarnation="b-198")], 2000.0) == []  # of one that has ended


def test_a_hello_is_short() -> None:
    a = Side("a", "b")
    for packet in (hello(1, incarnation="x" * 65), hello(1, incarnation=7), hello(1, more="x" * LONGEST_HELLO)):
        assert kinds(a.hear([packet], 0.0)) == [BadMessage]
    (refused,) = a.hear([hello(1, protocol="x" * 900)], 0.0)
    assert isinstance(refused, Refused)
    assert len(refused.reason) < 300


def test_a_peer_that_takes_nothing_is_lost_although_it_beats() -> None:
    a, b = meet()
    a.association.put(outgoing())
    for second in range(1, 34):
        assert a.association.tick(second - 1, 0.0) == []
        b.association.outbound.beat()
        a.hear(b.packets(second), second)
    assert a.association.tick(33.0, 0.0) == [Lost("b", "took nothing for 33.0 s"), Undelivered("b", 1, "lost")]


def test_who_says_hello_after_goodbye_is_connected_to_again() -> None:
    a, b = meet()
    b.association.outbound.close()
    assert a.hear(b.packets(1.0), 1.0) == [Left("b")]
    b.association.open(2.0)
    assert a.hear(b.packets(2.0), 2.0) == [Joined("b")]
    assert a.association.reopen


def test_a_message_has_one_of_few_kinds_and_none_of_the_runtimes() -> None:
    a, b = meet()
    for number in range(KINDS + 1):
        a.association.put(outgoing(f"kind-{number}"))
    for kind in ("beat", "stale", FRAMING):
        a.association.put(Outgoing("disguised", outgoing(kind).header))
    a.association.put(outgoing("kind-0"))
    events = b.hear(a.packets(0.0), 0.0)
    assert kinds(events) == [Received] * KINDS + [BadMessage] * 4 + [Received]
    assert {row.kind for row in b.association.traffic() if row.kind.startswith("kind")} == {
        f"kind-{number}" for number in range(KINDS)
    }


def test_a_hello_may_have_a_kibibyte_and_an_incarnation_64_characters() -> None:
    """The text fills what the other keys and msgpack's own bytes leave of it."""
    (rest,) = hello(1, more="x" * 256)
    room = 1024 - (len(rest) - 13 - 256)
    for more, expected in ((room, [Joined]), (room + 1, [BadMessage])):
        assert kinds(Side("a", "b").hear([hello(1, more="x" * more)], 0.0)) == expected
    assert kinds(Side("a", "b").hear([hello(1, incarnation="x" * 64)], 0.0)) == [Joined]


def test_a_hello_is_counted_and_a_repeated_one_ignored() -> None:
    a = Side("a", "b")
    b = Side("b", "a")
    for _ in range(2):
        b.association.put(outgoing(sender="b"))
    greeting, first, second = b.packets(0.0)
    assert kinds(a.hear([greeting, first, greeting, second], 0.0)) == [Joined, Received, Received]
    (row,) = (row for row in a.association.traffic() if (row.kind, row.direction) == ("hello", "received"))
    assert (row.messages, row.bytes) == (2, 2 * (len(greeting[0]) - 13))


def test_a_piece_of_a_message_takes_an_eighth_of_a_beat() -> None:
    """A connection that carries 800 kB a second, after more than the largest pieces."""
    chunk = Side("a", "b").association.outbound.chunk
    chunk.taken(1 << 26)
    chunk.refused(5.0)
    chunk.taken(800_000)
    chunk.refused(6.0)
    assert chunk.size == 100_000


def test_a_peer_that_is_kept_away_is_not_looked_for_and_welcome() -> None:
    a, b = Side("a", "b"), Side("b", "a")
    a.association.keep_away()
    assert a.association.tick(1000.0, 0.0) == []
    assert a.packets(1000.0) == []
    assert a.association.put(outgoing()) == [Undelivered("b", 1, "left")]
    assert a.hear(b.packets(1000.0), 1000.0) == [Joined("b")]
    assert b.hear(a.packets(1000.0), 1000.0) == [Joined("a")]


def test_ones_own_absence_is_no_attempt_and_no_silence_of_ones_own() -> None:
    """Of 20 s, the node did not run for 15: its attempt is 5 s old, and the peer took nothing for 5 s."""
    a = Side("a", "b")
    a.packets(0.0)
    a.association.tick(20.0, stalled=15.0)
    assert not a.association.reopen
    a.association.tick(23.0, 0.0)
    assert not a.association.reopen
    a.association.tick(23.1, 0.0)
    assert a.association.reopen
    a, b = meet()
    a.association.tick(20.0, stalled=15.0)
    for now in (27.0, 34.0, 41.0):
        b.association.outbound.beat()
        a.hear(b.packets(now), now)
    assert a.association.tick(47.0, 0.0) == []  # 32 s, four times 8
    assert a.association.tick(47.1, 0.0)[0] == Lost("b", "took nothing for 32.1 s")


def test_a_beat_is_due_after_three_quarters_of_its_time() -> None:
    a, _ = meet()
    a.association.tick(0.74, 0.0)
    assert a.packets(0.74) == []
    a.association.tick(0.75, 0.0)
    assert len(a.packets(0.75)) == 1


def test_no_beat_goes_ahead_of_the_hello() -> None:
    a = Side("a", "b")
    a.association.tick(5.0, 0.0)
    a.association.open(5.0)
    a.association.tick(7.0, 0.0)
    (packet,) = a.packets(7.0)
    assert packet[0][0] == PacketType.HELLO


def test_a_restart_is_regained_with_each_beat() -> None:
    a = Side("a", "b")
    for number in range(16):
        assert kinds(a.hear([hello(1, incarnation=f"b-{number}")], 0.0))[-1] is Joined
    times = [(0.99, False), (0.995, False), (1.0, True), (1.9, False), (2.0, True), (100.0, True)]
    for number, (now, accepted) in enumerate(times):
        events = a.hear([hello(1, incarnation=f"b-late-{number}")], now)
        assert bool(events) is accepted
    for number in range(15):  # no more than 16 are saved up
        assert a.hear([hello(1, incarnation=f"b-again-{number}")], 100.0)
    assert not a.hear([hello(1, incarnation="b-once-more")], 100.0)
