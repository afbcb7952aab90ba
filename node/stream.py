"""One direction between two nodes: messages cut into packets, and packets put together again. No sockets, no clock.

A packet is one ZeroMQ frame: a prefix (type, stream, number, length of the header) and what the type says:
hello a msgpack map; beat and goodbye nothing; message the header of a message and the first piece of its body;
chunk a further piece. Large messages travel in pieces because a peer is known to live only by what arrives of it.

A *stream* is the packets of one connection, numbered from 0, which is always a hello. Whoever opens a connection anew
begins a stream with a higher number, so that what an old connection still delivers is not mistaken for the new one's;
a number that is missing means that something was lost with a connection.
"""

from __future__ import annotations

import secrets
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from node.errors import WireError
from node.wire import Buffer, Header, Limits, Message, assemble, read_header

_PREFIX = struct.Struct(">BIQI")

SMALLEST_CHUNK = 4 << 10  # bytes
FIRST_CHUNK = 8 << 10
LARGEST_CHUNK = 256 << 10
_RATES_KEPT = 64

QUEUE_MESSAGES = 32
QUEUE_BYTES = 1 << 28


class PacketType(IntEnum):
    HELLO = 1
    BEAT = 2
    GOODBYE = 3
    MESSAGE = 4
    CHUNK = 5


OWN_KINDS = {PacketType.HELLO: "hello", PacketType.BEAT: "beat", PacketType.GOODBYE: "goodbye"}


class StreamBroken(Exception):  # noqa: N818 - what happened, not somebody's mistake
    """Packets are missing from a stream."""


@dataclass(frozen=True)
class Packet:
    """A packet that arrived. ``payload`` begins with ``header_size`` bytes of a message's header."""

    type: PacketType
    stream: int
    number: int
    header_size: int
    payload: memoryview

    @classmethod
    def read(cls, frame: Buffer) -> Packet:
        """WireError if the bytes are not a packet."""
        if len(frame) < _PREFIX.size:
            raise WireError(f"packet of {len(frame)} bytes; its prefix alone has {_PREFIX.size}")
        code, stream, number, header_size = _PREFIX.unpack_from(frame)
        try:
            type = PacketType(code)
        except ValueError:
            raise WireError(f"packet of unknown type {code}") from None
        payload = memoryview(frame)[_PREFIX.size :]
        if header_size > len(payload):
            raise WireError(f"packet of {len(payload)} bytes claims a header of {header_size}")
        return cls(type, stream, number, header_size, payload)


@dataclass(frozen=True, eq=False)
class Outgoing:
    """An encoded message on its way; the frames are shared by all peers it goes to."""

    kind: str
    header: Buffer
    body: Buffer = b""

    @property
    def size(self) -> int:
        return len(self.header) + len(self.body)


@dataclass(frozen=True)
class Sent:
    """A packet that the connection took: what to count, and whether a message is complete with it."""

    kind: str
    size: int
    complete: bool


class ChunkSize:
    """How large a piece of a message should be: what the link carries in ``seconds``.

    A receiver notices a piece only when it is complete, and would take a peer for lost that spends minutes on one.
    The slowest of the last rates counts, since a rate measured while buffers fill says nothing about the link.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: deque[float] = deque([FIRST_CHUNK / seconds], maxlen=_RATES_KEPT)
        self._taken = 0
        self._since: float | None = None
        self.bytes = FIRST_CHUNK

    def taken(self, size: int) -> None:
        """The connection took a packet of ``size`` bytes."""
        self._taken += size

    def refused(self, now: float) -> None:
        """The connection would not take another packet yet."""
        if self._since is None:
            self._since, self._taken = now, 0
        elif self._taken and now > self._since:
            self._rates.append(self._taken / (now - self._since))
            wanted = int(min(self._rates) * self._seconds)
            self.bytes = max(SMALLEST_CHUNK, min(wanted, LARGEST_CHUNK))
            self._since, self._taken = now, 0

    def idle(self) -> None:
        """There is nothing to send; the time until there is says nothing about the link."""
        self._since, self._taken = None, 0


class Outbound:
    """What goes to one peer: a queue of messages, and the packets of the current stream.

    ``hello`` makes what a hello says, at the time it is sent.
    """

    def __init__(self, beat: float, hello: Callable[[], bytes]) -> None:
        # Numbers of a restarted node are unlikely to be those of its predecessor.
        self.stream = secrets.randbelow(1 << 31)
        self.greeted = False  # whether the connection took this stream's hello
        self.chunk = ChunkSize(beat / 4)
        self._hello = hello
        self._number = 0
        self._own: deque[PacketType] = deque()
        self._closing = False
        self._queue: deque[Outgoing] = deque()
        self._queued_bytes = 0
        self._offset: int | None = None  # into the body of the first message in the queue, once its header is gone
        self._built: tuple[bytes, Sent, int | None] | None = None

    def open(self) -> None:
        """Begin a new stream; a message that was under way begins anew."""
        self.stream += 1
        self._number = 0
        self.greeted = False
        self._offset = self._built = None
        self._own = deque([PacketType.HELLO])

    def put(self, message: Outgoing) -> None:
        self._queue.append(message)
        self._queued_bytes += message.size

    def withdraw(self, kind: str | None = None) -> int:
        """Take messages of this kind, or all, out of the queue, but not one that is under way when a kind is given;
        returns how many."""
        if kind is None:
            self._offset = self._built = None
        under_way = self._queue[0] if self._offset is not None or (self._built is not None and self._queue) else None
        kept = [each for each in self._queue if each is under_way or (kind is not None and each.kind != kind)]
        count = len(self._queue) - len(kept)
        self._queue = deque(kept)
        self._queued_bytes = sum(each.size for each in kept)
        return count

    @property
    def room(self) -> bool:
        """Whether another message may be queued."""
        return not self._queue or (len(self._queue) < QUEUE_MESSAGES and self._queued_bytes < QUEUE_BYTES)

    @property
    def idle(self) -> bool:
        return not self._own and not self._queue and not self._closing

    def beat(self) -> None:
        if PacketType.BEAT not in self._own:
            self._own.append(PacketType.BEAT)

    def close(self) -> None:
        """Say goodbye when everything queued is sent."""
        self._closing = True

    def peek(self) -> bytes | None:
        """The next packet, the same one until it is `taken`; None if there is nothing to send."""
        if self._built is None or not self.greeted:
            self._built = self._build()
        return None if self._built is None else self._built[0]

    def taken(self) -> Sent:
        """The connection took the packet that `peek` gave."""
        if self._built is None:
            raise RuntimeError("no packet was peeked at")
        _, sent, self._offset = self._built
        self._built = None
        self._number += 1
        if sent.kind == "hello":
            self.greeted = True
            self.chunk.idle()
        if sent.kind in OWN_KINDS.values():
            if self._own:
                self._own.popleft()
            else:
                self._closing = False
        elif sent.complete:
            self._queued_bytes -= self._queue.popleft().size
        self.chunk.taken(sent.size)
        return sent

    def _build(self) -> tuple[bytes, Sent, int | None] | None:
        """The packet, what it will count as, and the offset after it."""
        if self._own or (self._closing and not self._queue):
            type = self._own[0] if self._own else PacketType.GOODBYE
            frame = self._prefix(type) + (self._hello() if type is PacketType.HELLO else b"")
            return frame, Sent(OWN_KINDS[type], len(frame), True), self._offset
        if not self._queue:
            return None
        message, start = self._queue[0], self._offset
        type, header = (PacketType.MESSAGE, message.header) if start is None else (PacketType.CHUNK, b"")
        start = start or 0
        end = min(start + self.chunk.bytes, len(message.body))
        frame = b"".join((self._prefix(type, len(header)), header, memoryview(message.body)[start:end]))
        complete = end == len(message.body)
        return frame, Sent(message.kind, len(frame), complete), None if complete else end

    def _prefix(self, type: PacketType, header_size: int = 0) -> bytes:
        return _PREFIX.pack(type, self.stream, self._number, header_size)


class Inbound:
    """What comes from one peer: the stream that counts, and the one message that is being put together."""

    def __init__(self, peer: str, limits: Limits) -> None:
        self.stream: int | None = None
        self.latest = -1  # the highest stream seen, open or not
        self.kind = "unknown"  # of the message that the last packet belonged to
        self._peer = peer
        self._limits = limits
        self._number = 0
        self._header: Header | None = None
        self._body = np.empty(0, np.uint8)
        self._filled = 0

    def accept(self, stream: int) -> None:
        """A hello was heard: this stream counts from now on."""
        self.stream = self.latest = stream
        self._number = 1
        self._header = None

    def close(self) -> None:
        """Nothing counts until the next hello."""
        self.stream = self._header = None

    def take(self, packet: Packet) -> Message | None:
        """The message that is complete with this packet of the current stream, if one is.

        WireError for a packet or message that is wrong (the rest of that message is then passed over); StreamBroken if
        packets are missing before this one.
        """
        if packet.number != self._number:
            raise StreamBroken(f"packet {packet.number} where {self._number} was due")
        self._number += 1
        if packet.type is PacketType.MESSAGE:
            self._begin(packet)
        elif packet.type is not PacketType.CHUNK or self._header is None:
            return None
        self._fill(packet.payload[packet.header_size :])
        return self._complete()

    def _begin(self, packet: Packet) -> None:
        unfinished, self._header = self._header, None
        header = read_header(packet.payload[: packet.header_size], self._limits)
        if header.sender != self._peer:
            raise WireError(f"message {header.kind!r} claims to be from {header.sender!r}")
        self.kind = header.kind
        self._header, self._filled = header, 0
        self._body = np.empty(header.body_size, np.uint8)
        if unfinished is not None:
            raise WireError(f"message {unfinished.kind!r} ended early")

    def _fill(self, piece: memoryview) -> None:
        end = self._filled + len(piece)
        if end > len(self._body):
            self._header = None
            raise WireError(f"message {self.kind!r} is longer than its header says")
        if len(piece):
            self._body[self._filled : end] = np.frombuffer(piece, np.uint8)
        self._filled = end

    def _complete(self) -> Message | None:
        if self._header is None or self._filled < self._header.body_size:
            return None
        header, body = self._header, self._body
        self._header, self._body = None, np.empty(0, np.uint8)
        return assemble(header, body.data)
