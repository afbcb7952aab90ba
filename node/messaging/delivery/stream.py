"""One direction between two nodes: messages are split into packets and reassembled. No sockets, no clock.

The body of a message is sent in pieces, since a peer counts as alive only while its packets arrive.

A *stream* is the packets of one connection, numbered from 0. Packet 0 is always a hello. Each new connection starts a
stream with a higher number, so that late packets of an old connection are recognised. A missing packet number means
that packets were lost with a connection.
"""

from __future__ import annotations

import secrets
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from node.errors import WireError
from node.messaging.delivery.chunk_size import ChunkSize
from node.messaging.delivery.packet import OWN_KINDS, RUNTIME_KINDS, Packet, PacketType, prefix
from node.messaging.wire import Buffer, Header, Message, assemble, read_header

QUEUE_MESSAGES = 32
QUEUE_BYTES = 1 << 28
_LARGE = 64 << 10  # bytes; smaller parts of a body share packets: to copy them takes less time than a packet
KINDS = 64  # kinds of messages of one peer; an algorithm has ten


class StreamBroken(Exception):  # noqa: N818 - it is an event, not a mistake
    """Packets are missing from a stream."""


@dataclass(frozen=True, eq=False)
class Outgoing:
    """An encoded message in a queue. All its receivers share the frames."""

    kind: str
    header: bytes
    body: Sequence[memoryview] = ()  # the parts of the body

    @cached_property
    def size(self) -> int:
        return len(self.header) + self._starts[-1]

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of each part of the body, and the size of the body."""
        sizes = map(len, self.body)
        return list(accumulate(sizes, initial=0))

    def piece(self, start: int, size: int) -> Buffer:
        """At most ``size`` bytes of the body from ``start``: of one part without a copy, or of several small ones."""
        index = bisect(self._starts, start) - 1
        pieces: list[memoryview] = []
        while size and index < len(self.body):
            offset = start - self._starts[index]
            part = self.body[index][offset:][:size]
            if pieces:
                large = max(len(part), len(pieces[0])) >= _LARGE
                if large:
                    break
            pieces.append(part)
            start += len(part)
            size -= len(part)
            index += 1
        if len(pieces) == 1:
            return pieces[0]
        return b"".join(pieces)


_Built = tuple[list[Buffer], "Sent", int | None]  # frames of a packet, its `Sent` record, and the offset after it


class Sent(NamedTuple):
    """A packet that the connection took: its kind and size in bytes, and whether it completes a message."""

    kind: str
    size: int
    complete: bool


class Outbound:
    """The direction to one peer: a queue of messages, and the packets of the current stream.

    ``piece`` is how many seconds a piece of a body may take. ``hello`` makes the content of a hello when it is sent.
    """

    def __init__(self, piece: float, hello: Callable[[], bytes]) -> None:
        # A restarted node is unlikely to reuse the stream numbers of its predecessor.
        self.stream = secrets.randbelow(1 << 31)
        self.greeted = False  # whether the connection took this stream's hello
        self.chunk = ChunkSize(piece)
        self._piece = piece
        self._hello = hello
        self._number = 0
        self._own: deque[PacketType] = deque()
        self._closing = False
        self._queue: deque[Outgoing] = deque()
        self._queued_bytes = 0
        self._offset: int | None = None  # into the body of the first message in the queue, once its header is gone
        self._built: _Built | None = None

    def open(self) -> None:
        """Start a new stream. A message that was partly sent is sent again from its start."""
        self.stream += 1
        self._number = 0
        self.greeted = False
        self.chunk = ChunkSize(self._piece)
        self._offset = None
        self._built = None
        self._own = deque([PacketType.HELLO])

    def put(self, message: Outgoing) -> None:
        self._queue.append(message)
        self._queued_bytes += message.size

    def withdraw(self, kind: str | None = None) -> int:
        """Remove messages of this kind, or all, from the queue. Return the number removed.

        With a kind, a message that is partly sent stays.
        """
        if kind is None:
            self._offset = None
            self._built = None
        partly_sent = self._offset is not None or self._built is not None
        under_way = None
        if partly_sent and self._queue:
            under_way = self._queue[0]
        kept: deque[Outgoing] = deque()
        for message in self._queue:
            other_kind = kind is not None and message.kind != kind
            if other_kind or message is under_way:
                kept.append(message)
        count = len(self._queue) - len(kept)
        self._queue = kept
        self._queued_bytes = sum(message.size for message in kept)
        return count

    @property
    def room(self) -> bool:
        """Whether another message may be queued."""
        if not self._queue:
            return True
        return len(self._queue) < QUEUE_MESSAGES and self._queued_bytes < QUEUE_BYTES

    @property
    def idle(self) -> bool:
        return not self._own and not self._queue and not self._closing

    def beat(self) -> None:
        if PacketType.BEAT not in self._own:
            self._own.append(PacketType.BEAT)

    def close(self) -> None:
        """Send a goodbye after all queued messages."""
        self._closing = True

    def peek(self) -> list[Buffer] | None:
        """The frames of the next packet, the same until it is `taken`; None if there is nothing to send."""
        if self._built is None or not self.greeted:
            self._built = self._build()
        if self._built is None:
            return None
        return self._built[0]

    def taken(self) -> Sent:
        """Account for the packet from `peek`: the connection took it."""
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
            message = self._queue.popleft()
            self._queued_bytes -= message.size
        self.chunk.taken(sent.size)
        return sent

    def _build(self) -> _Built | None:
        if self._own:
            return self._build_own(self._own[0])
        if self._closing and not self._queue:
            return self._build_own(PacketType.GOODBYE)
        if not self._queue:
            return None
        message = self._queue[0]
        if self._offset is None:
            first = self._prefix(PacketType.MESSAGE) + message.header
            start = 0
        else:
            first = self._prefix(PacketType.CHUNK)
            start = self._offset
        piece = message.piece(start, self.chunk.size)
        end = start + len(piece)
        complete = len(message.header) + end == message.size
        sent = Sent(message.kind, len(first) + len(piece), complete)
        frames: list[Buffer] = [first, piece] if piece else [first]
        if complete:
            return frames, sent, None
        return frames, sent, end

    def _build_own(self, type: PacketType) -> _Built:
        frame = self._prefix(type)
        if type is PacketType.HELLO:
            frame += self._hello()
        sent = Sent(OWN_KINDS[type], len(frame), True)
        return [frame], sent, self._offset

    def _prefix(self, type: PacketType) -> bytes:
        return prefix(type, self.stream, self._number)


@dataclass(slots=True)
class _Partial:
    """A message that is being reassembled. ``filled``: how many bytes of its body have arrived."""

    header: Header
    body: NDArray[np.uint8]
    filled: int = 0


class Inbound:
    """The direction from one peer: the current stream, and the one message that is being reassembled."""

    def __init__(self, peer: str) -> None:
        self.stream: int | None = None
        self.latest = -1  # the highest stream seen, open or not
        self.kind = "unknown"  # the kind of the message of the last packet
        self._kinds: set[str] = set()
        self._peer = peer
        self._number = 0
        self._partial: _Partial | None = None

    def accept(self, stream: int) -> None:
        """Make this stream the current one: its hello arrived."""
        self.stream = stream
        self.latest = stream
        self._number = 1
        self._partial = None

    def close(self) -> None:
        """Ignore all packets until the next hello."""
        self.stream = None
        self._partial = None

    def take(self, packet: Packet) -> Message | None:
        """Take a packet of the current stream. Return the message that it completes, else None.

        WireError for a wrong packet or message; the rest of that message is then ignored. StreamBroken if packets are
        missing before this one.
        """
        if packet.number != self._number:
            raise StreamBroken(f"packet {packet.number} where {self._number} was due")
        self._number += 1
        if packet.type is PacketType.MESSAGE:
            self._partial = self._start(packet)
        elif packet.type is not PacketType.CHUNK:
            return None
        if self._partial is None:
            return None
        return self._fill(self._partial, packet.piece)

    def _start(self, packet: Packet) -> _Partial:
        unfinished = self._partial
        self._partial = None
        if unfinished is not None:
            raise WireError(f"message {unfinished.header.kind!r} ended early")
        header = read_header(packet.content)
        if header.sender != self._peer:
            raise WireError(f"message {header.kind!r} claims to be from {header.sender!r}")
        if header.kind in RUNTIME_KINDS:
            raise WireError(f"message of kind {header.kind!r}, which is the runtime's own")
        new_kind = header.kind not in self._kinds
        if new_kind and len(self._kinds) == KINDS:
            raise WireError(f"message {header.kind!r} is of one more than {KINDS} kinds")
        try:
            body = np.empty(header.body_size, np.uint8)  # the kernel gives memory as the body is filled
        except MemoryError:
            raise WireError(f"message {header.kind!r}: no memory for a body of {header.body_size} bytes") from None
        self._kinds.add(header.kind)
        self.kind = header.kind
        return _Partial(header, body)

    def _fill(self, partial: _Partial, piece: Buffer) -> Message | None:
        """Take a piece of the body. Return the message if it is complete."""
        start = partial.filled
        end = start + len(piece)
        size = len(partial.body)
        if end > size:
            self._partial = None
            raise WireError(f"message {partial.header.kind!r} is longer than its header says")
        if len(piece):
            partial.body[start:end] = np.frombuffer(piece, np.uint8)
        partial.filled = end
        if end < size:
            return None
        self._partial = None
        return assemble(partial.header, partial.body)
