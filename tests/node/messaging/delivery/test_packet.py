from __future__ import annotations

import pytest

from node.errors import WireError
from node.messaging.delivery.packet import Packet, PacketType, prefix
from node.messaging.wire import Buffer


def test_round_trip() -> None:
    packet = Packet.read([prefix(PacketType.MESSAGE, 5, 1 << 40) + b"header", b"piece"])
    assert (packet.type, packet.stream, packet.number) == (PacketType.MESSAGE, 5, 1 << 40)
    assert (bytes(packet.content), packet.piece) == (b"header", b"piece")
    assert Packet.read([prefix(PacketType.BEAT, 5, 2)]).piece == b""


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "packet of 0 frames"),
        ([b"x" * 13] * 3, "packet of 3 frames"),
        ([b"x" * 12], "packet of 12 bytes"),
        ([bytes(13)], "packet of unknown type 0"),
        ([b"\xff" * 13], "packet of unknown type 255"),
    ],
)
def test_what_is_no_packet_is_refused(frames: list[Buffer], message: str) -> None:
    with pytest.raises(WireError, match=message):
        Packet.read(frames)
