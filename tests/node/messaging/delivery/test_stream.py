from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from node.errors import WireError
from node.messaging.delivery.chunk_size import LARGEST_CHUNK, SMALLEST_CHUNK
from node.messaging.delivery.packet import Packet, PacketType
from node.messaging.delivery.stream import QUEUE_BYTES, Inbound, Outbound, Outgoing, Sent, StreamBroken
from node.messaging.wire import Message, encode, frozen

MIB = 1 << 20


def outgoing(kind: str = "model", size: int = 0, sender: str = "a") -> Outgoing:
    return Outgoing(kind, *encode(Message(kind, sender, None, {}, {"w": np.ones(size, np.uint8)} if size else {})))


def opened() -> Outbound:
    outbound = Outbound(0.1, lambda: b"hello")
    outbound.open()
    return outbound


def drain(outbound: Outbound) -> list[tuple[Packet, Sent]]:
    """All packets that the stream has to send, as if the connection took every one."""
    packets = []
    while (frames := outbound.peek()) is not None:
        packets.append((Packet.read([bytes(frame) for frame in frames]), outbound.taken()))
    return packets


def types(packets: Sequence[tuple[Packet, Sent]]) -> list[PacketType]:
    return [packet.type for packet, _ in packets]


# Outbound


def test_a_stream_starts_with_hello_and_numbers_its_packets() -> None:
    outbound = opened()
    outbound.put(outgoing())
    outbound.beat()
    packets = drain(outbound)
    assert types(packets) == [PacketType.HELLO, PacketType.BEAT, PacketType.MESSAGE]
    assert bytes(packets[0][0].content) == b"hello"
    assert [packet.number for packet, _ in packets] == [0, 1, 2]
    assert {packet.stream for packet, _ in packets} == {outbound.stream}
    assert outbound.greeted
    assert outbound.idle


def test_a_body_travels_in_pieces_that_grow_with_what_was_taken() -> None:
    outbound = opened()
    outbound.put(outgoing(size=MIB))
    packets = drain(outbound)[1:]
    sizes = [len(packet.piece) for packet, _ in packets]
    assert sum(sizes) == MIB
    assert sizes[0] == SMALLEST_CHUNK
    assert sizes[:-1] == sorted(sizes[:-1])
    assert sizes[-2] > MIB // 32
    assert [sent.complete for _, sent in packets] == [False] * (len(packets) - 1) + [True]
    assert all(sent.size == 13 + len(packet.content) + len(packet.piece) for packet, sent in packets)


def test_large_tensors_travel_without_a_copy_and_small_ones_share_a_packet() -> None:
    outbound = opened()
    drain(outbound)
    outbound.chunk.taken(16 * LARGEST_CHUNK)  # a piece may be a sixteenth of it
    tensors = {name: np.ones(size, np.uint8) for name, size in [("v", MIB), ("a", 40), ("b", 13), ("w", MIB // 2)]}
    outbound.put(Outgoing("model", *encode(frozen(Message("model", "a", None, {}, tensors), owned=True))))
    pieces = []
    while (frames := outbound.peek()) is not None:
        pieces.append(np.frombuffer(frames[1], np.uint8))
        outbound.taken()
    assert [len(piece) for piece in pieces] == [MIB // 2, MIB // 2, 40 + 16, MIB // 2]  # 13 bytes take up 16
    assert [np.shares_memory(piece, tensors[name]) for piece, name in zip(pieces, "vvaw", strict=True)] == [
        True,
        True,
        False,
        True,
    ]


def test_received_tensors_are_sent_on_without_a_copy() -> None:
    outbound, inbound = opened(), Inbound("a")
    outbound.put(outgoing(size=100))
    (hello, _), (packet, _) = drain(outbound)
    inbound.accept(hello.stream)
    message = inbound.take(packet)
    assert message is not None
    _, (part, _) = encode(Message("update", "b", None, {}, message.tensors))
    assert np.shares_memory(np.frombuffer(part, np.uint8), message.tensors["w"])


def test_the_same_packet_is_offered_until_it_is_taken() -> None:
    outbound = opened()
    drain(outbound)
    outbound.put(outgoing(size=100))
    assert outbound.peek() == outbound.peek()
    outbound.beat()
    assert types(drain(outbound)) == [PacketType.MESSAGE, PacketType.BEAT]


def test_the_hello_says_what_is_known_when_it_goes() -> None:
    known = iter([b"little", b"more"])
    outbound = Outbound(0.1, lambda: next(known))
    outbound.open()
    outbound.peek()
    assert bytes(drain(outbound)[0][0].content) == b"more"


def test_a_beat_goes_between_pieces_and_never_twice() -> None:
    outbound = opened()
    outbound.put(outgoing(size=3 * SMALLEST_CHUNK))
    for _ in range(2):
        outbound.peek()
        outbound.taken()
    outbound.beat()
    outbound.beat()
    assert types(drain(outbound)) == [PacketType.BEAT, PacketType.CHUNK, PacketType.CHUNK]


def test_a_new_stream_starts_the_message_under_way_again() -> None:
    outbound = opened()
    first = outbound.stream
    outbound.put(outgoing(size=3 * SMALLEST_CHUNK))
    for _ in range(2):
        outbound.peek()
        outbound.taken()
    outbound.open()
    assert not outbound.greeted
    assert types(drain(outbound)) == [PacketType.HELLO, PacketType.MESSAGE, PacketType.CHUNK, PacketType.CHUNK]
    assert outbound.stream == first + 1


def test_goodbye_comes_last() -> None:
    outbound = opened()
    outbound.close()
    outbound.put(outgoing())
    assert not outbound.idle
    assert types(drain(outbound)) == [PacketType.HELLO, PacketType.MESSAGE, PacketType.GOODBYE]
    assert outbound.idle


def test_messages_of_a_kind_can_be_withdrawn_unless_under_way() -> None:
    outbound = opened()
    for kind in ("model", "model", "data", "model"):
        outbound.put(outgoing(kind, size=2 * SMALLEST_CHUNK))
    for _ in range(2):
        outbound.peek()
        outbound.taken()
    assert outbound.withdraw("model") == 2
    assert [sent.kind for _, sent in drain(outbound) if sent.complete] == ["model", "data"]


def test_withdrawing_all_takes_the_one_under_way_too() -> None:
    outbound = opened()
    for _ in range(3):
        outbound.put(outgoing(size=2 * SMALLEST_CHUNK))
    for _ in range(2):
        outbound.peek()
        outbound.taken()
    assert outbound.withdraw() == 3
    assert drain(outbound) == []


def test_room_is_bounded_by_messages_and_bytes_but_one_always_fits() -> None:
    outbound = opened()
    for _ in range(32):
        assert outbound.room
        outbound.put(outgoing())
    assert not outbound.room
    outbound = opened()
    outbound.put(Outgoing("model", b"", [memoryview(bytes(QUEUE_BYTES))]))
    assert not outbound.room
    outbound.withdraw()
    assert outbound.room


# Inbound


def accepted(outbound: Outbound, sender: str = "a") -> Inbound:
    inbound = Inbound(sender)
    inbound.accept(outbound.stream)
    return inbound


def take_all(inbound: Inbound, packets: Sequence[tuple[Packet, Sent]]) -> list[Message]:
    return [message for packet, _ in packets if (message := inbound.take(packet)) is not None]


def test_messages_are_put_together_again() -> None:
    outbound = opened()
    for size in (0, 1, 100_000):
        outbound.put(outgoing(size=size))
    hello, *packets = drain(outbound)
    messages = take_all(accepted(outbound), packets)
    assert [message.tensors["w"].sum() if message.tensors else 0 for message in messages] == [0, 1, 100_000]
    assert hello[0].number == 0


def test_a_missing_packet_breaks_the_stream() -> None:
    outbound = opened()
    outbound.put(outgoing(size=3 * SMALLEST_CHUNK))
    _, first, _, third = drain(outbound)
    inbound = accepted(outbound)
    inbound.take(first[0])
    with pytest.raises(StreamBroken, match="packet 3 where 2 was due"):
        inbound.take(third[0])


def test_a_bad_message_is_passed_over_and_the_next_one_counts() -> None:
    outbound = opened()
    outbound.put(outgoing("bad", size=3 * SMALLEST_CHUNK, sender="somebody-else"))
    outbound.put(outgoing("good", size=10))
    _, bad, *rest = drain(outbound)
    inbound = accepted(outbound)
    with pytest.raises(WireError, match=r"message 'bad' claims.*'somebody-else'"):
        inbound.take(bad[0])
    assert [message.kind for message in take_all(inbound, rest)] == ["good"]


def packet(type: PacketType, number: int, content: bytes = b"", piece: bytes = b"") -> Packet:
    return Packet(type, 5, number, memoryview(content), piece)


def test_a_body_longer_than_promised_is_refused() -> None:
    inbound = Inbound("a")
    inbound.accept(5)
    message = outgoing(size=8)
    with pytest.raises(WireError, match=r"message 'model' is longer.*header"):
        inbound.take(packet(PacketType.MESSAGE, 1, message.header, bytes(9)))
    assert inbound.take(packet(PacketType.CHUNK, 2, b"", bytes(8))) is None


def test_a_body_that_ends_early_is_refused_and_a_later_one_counts() -> None:
    inbound = Inbound("a")
    inbound.accept(5)
    message = outgoing(size=8)
    assert inbound.take(packet(PacketType.MESSAGE, 1, message.header, bytes(4))) is None
    with pytest.raises(WireError, match="message 'model' ended early"):
        inbound.take(packet(PacketType.MESSAGE, 2, message.header, bytes(8)))
    assert inbound.take(packet(PacketType.MESSAGE, 3, message.header, bytes(8))) is not None


@pytest.mark.parametrize(("missing", "room"), [(0, False), (1, True)])
def test_the_queue_takes_another_message_below_its_bytes(missing: int, room: bool) -> None:
    outbound = opened()
    outbound.put(Outgoing("model", b"x" * 100, [memoryview(bytes((1 << 28) - 100 - missing))]))
    assert outbound.room is room


def test_what_was_sent_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.delivery.stream.QUEUE_BYTES", 1000)
    outbound = opened()
    for size in (900, 99, 1):
        assert outbound.room
        outbound.put(Outgoing("model", b"x" * size))
    assert not outbound.room
    for _ in range(2):  # the hello, and the first message
        outbound.peek()
        outbound.taken()
    outbound.put(Outgoing("model", b"x" * 899))
    assert outbound.room


def test_small_parts_share_a_piece_up_to_its_size() -> None:
    """64 KiB are large: they are sent from where they are, and nothing is copied behind them."""
    sizes = (10, 20, (64 << 10) - 1, 64 << 10, 30, 40)
    parts = [memoryview(bytes([number]) * size) for number, size in enumerate(sizes, 1)]
    message = Outgoing("model", b"header", parts)
    start = 10 + 20 + (64 << 10) - 1
    assert message.size == 6 + start + (64 << 10) + 70
    assert bytes(message.piece(0, 1000)) == b"\1" * 10 + b"\2" * 20 + b"\3" * 970
    assert bytes(message.piece(5, 15)) == b"\1" * 5 + b"\2" * 10
    assert bytes(message.piece(0, 1 << 20)) == b"\1" * 10 + b"\2" * 20 + b"\3" * ((64 << 10) - 1)
    assert message.piece(10, 7) == parts[1][:7]
    large = message.piece(start, 1 << 20)
    assert large == parts[3]
    assert np.shares_memory(np.frombuffer(large, np.uint8), np.frombuffer(parts[3], np.uint8))
    assert bytes(message.piece(start + (64 << 10) - 1, 1 << 20)) == b"\4" + b"\5" * 30 + b"\6" * 40


def test_a_stream_has_a_number_that_fits_a_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 bits of 32: a node may open as many connections again."""
    monkeypatch.setattr("secrets.randbelow", lambda limit: limit - 1)
    outbound = Outbound(0.1, lambda: b"")
    assert outbound.stream == (1 << 31) - 1
    assert not outbound.greeted
    assert outbound.idle


def test_only_a_peek_can_be_taken() -> None:
    with pytest.raises(RuntimeError):
        opened().taken()


def test_the_rate_of_a_connection_starts_with_its_hello() -> None:
    """What was refused before the connection was there is no rate of it."""
    outbound = opened()
    outbound.chunk.refused(0.0)
    outbound.peek()
    outbound.taken()
    outbound.chunk.refused(50.0)
    assert not outbound.chunk._rates


def test_a_message_in_the_queue_is_replaced_before_its_first_packet_was_taken() -> None:
    outbound = opened()
    outbound.put(outgoing("model"))
    outbound.put(outgoing("model"))
    assert outbound.withdraw("model") == 2
    drain(outbound)
    outbound.put(outgoing("model", size=2 * SMALLEST_CHUNK))
    outbound.put(outgoing("model"))
    outbound.peek()
    assert outbound.withdraw("model") == 1  # the first one may be on its way
    outbound.taken()
    assert outbound.withdraw("model") == 0
    assert [sent.complete for _, sent in drain(outbound)] == [True]


def test_a_message_of_several_packets_and_no_body_is_complete_with_its_last() -> None:
    outbound = opened()
    outbound.put(outgoing(size=SMALLEST_CHUNK))
    outbound.put(outgoing(size=SMALLEST_CHUNK + 8))
    outbound.put(outgoing())
    assert [sent.complete for _, sent in drain(outbound)[1:]] == [True, False, True, True]


def test_a_kind_is_one_of_64() -> None:
    inbound = Inbound("a")
    inbound.accept(5)
    for number in range(64):
        inbound.take(packet(PacketType.MESSAGE, number + 1, outgoing(f"kind-{number}").header))
    with pytest.raises(WireError, match="of one more than 64 kinds"):
        inbound.take(packet(PacketType.MESSAGE, 65, outgoing("kind-64").header))
    assert inbound.take(packet(PacketType.MESSAGE, 66, outgoing("kind-0").header)) is not None


def test_a_new_stream_ends_the_message_of_the_former_one() -> None:
    inbound = Inbound("a")
    for closed in (False, True):
        inbound.accept(5)
        assert (inbound.stream, inbound.latest) == (5, 5)
        assert inbound.take(packet(PacketType.MESSAGE, 1, outgoing(size=8).header, bytes(4))) is None
        if closed:
            inbound.close()
        inbound.accept(5)
        assert inbound.take(packet(PacketType.CHUNK, 1, b"", bytes(4))) is None
        assert inbound.take(packet(PacketType.BEAT, 2)) is None
    inbound.close()
    assert (inbound.stream, inbound.latest) == (None, 5)
