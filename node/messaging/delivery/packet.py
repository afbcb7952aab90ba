"""Packets: the pieces of messages, and the runtime's own signals between nodes.

A packet is one or two ZeroMQ frames. The first frame holds a prefix (type, stream, number) and content by type: hello a
msgpack map, message the header of a message, the others nothing. The second frame holds a piece of a message's body:
message the first piece, chunk a further one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from node.errors import WireError
from node.messaging.wire import Buffer

_PREFIX = struct.Struct(">BIQ")
PREFIX_SIZE = _PREFIX.size


class PacketType(IntEnum):
    HELLO = 1
    BEAT = 2
    GOODBYE = 3
    MESSAGE = 4
    CHUNK = 5


_TYPES = {int(type): type for type in PacketType}
OWN_KINDS = {
    PacketType.HELLO: "hello",
    PacketType.BEAT: "beat",
    PacketType.GOODBYE: "goodbye",
}
FRAMING = "framing"  # the kind under which packets and their prefixes are counted
RUNTIME_KINDS = frozenset({*OWN_KINDS.values(), "stale", "unknown", FRAMING})  # no message is of these kinds


class Packet(NamedTuple):
    """A packet that arrived. ``content`` is the first frame after the prefix, ``piece`` is the second frame."""

    type: PacketType
    stream: int
    number: int
    content: memoryview
    piece: Buffer

    @classmethod
    def read(cls, frames: Sequence[Buffer]) -> Packet:
        """Read the frames of a packet. WireError if they are not a packet."""
        if not 1 <= len(frames) <= 2:
            raise WireError(f"packet of {len(frames)} frames; it has one or two")
        first = frames[0]
        if len(first) < _PREFIX.size:
            raise WireError(f"packet of {len(first)} bytes; its prefix alone has {_PREFIX.size}")
        code, stream, number = _PREFIX.unpack_from(first)
        type = _TYPES.get(code)
        if type is None:
            raise WireError(f"packet of unknown type {code}")
        content = memoryview(first)[_PREFIX.size :]
        if len(frames) == 2:
            piece = frames[1]
        else:
            piece = b""
        return cls(type, stream, number, content, piece)


def prefix(type: PacketType, stream: int, number: int) -> bytes:
    """The prefix of a packet's first frame."""
    return _PREFIX.pack(type, stream, number)
