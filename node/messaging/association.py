"""What one node knows of one peer: whether it is there, and what goes to and comes from it. No sockets, no clock.

The transport with sockets follows an `Association` for each peer. The transport in memory has no packets to lose:
`node.messaging.pair` keeps to the same rules with what the network knows, and `tests/conformance` holds both to them.
The rules:

1. A peer *joins* with its hello, and only a hello brings back a peer that was lost.
2. It is *lost* when nothing of it was heard for ``lost_after``, when it took nothing for four times as long, when
   packets of its stream are missing, when a hello shows that it was restarted (new incarnation), or when its hello
   shows that it had lost us (it has not heard our stream).
3. To lose a peer is to drop what is queued for it and to open a new connection, which begins with our hello. Each
   hello names the stream last heard of the other side; so whoever loses a peer is lost by it in turn, both sides begin
   anew, and nothing is ever missing from the middle of a stream.
4. A peer that says goodbye has left, and counts as away until it says hello again.
5. A peer may begin anew `HELLOS` times, and then once in each ``beat``: others are told of it and send it what it
   missed. A hello that comes earlier is passed over; an honest peer says hello again when it is not answered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgpack

from node.assignment import Timeouts
from node.errors import WireError
from node.messaging.packet import FRAMING, OWN_KINDS, PREFIX_SIZE, Packet, PacketType
from node.messaging.stream import Inbound, Outbound, Outgoing, StreamBroken
from node.messaging.wire import PROTOCOL, Buffer, Message, MessageLimits, quoted, unpack

Direction = Literal["sent", "received"]

HELLOS = 16
LONGEST_HELLO = 1 << 10  # bytes
_LONGEST_INCARNATION = 64  # characters
_PREDECESSORS = 64  # incarnations remembered, whose hellos may still be on their way
_TAKES_NOTHING = 4  # times ``lost_after``; a slow link with large buffers takes nothing for longer than it is silent


@dataclass(frozen=True, eq=False)
class Received:
    """A message arrived whole."""

    peer: str
    message: Message


@dataclass(frozen=True)
class Joined:
    """The peer said hello: it is there."""

    peer: str


@dataclass(frozen=True)
class Lost:
    """The peer is not there any more, or has to begin anew."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Left:
    """The peer said goodbye."""

    peer: str


@dataclass(frozen=True)
class Refused:
    """The peer speaks another protocol."""

    peer: str
    reason: str


@dataclass(frozen=True)
class BadMessage:
    """The peer sent what is not a message; it was thrown away."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Undelivered:
    """So many messages to the peer were thrown away."""

    peer: str
    messages: int
    reason: str


Event = Received | Joined | Lost | Left | Refused | BadMessage | Undelivered


@dataclass(frozen=True)
class Traffic:
    """What went over the wire between this node and ``peer``, since the start, before encryption and TCP: messages of
    a ``kind``, and the bytes of their headers and bodies. How many packets those were cut into depends on the link; the
    packets and the bytes of their prefixes are kind `FRAMING`."""

    peer: str
    kind: str
    direction: Direction
    messages: int
    bytes: int


class Association:
    """See the module. ``now`` is any steady clock in seconds."""

    def __init__(self, peer: str, incarnation: str, timeouts: Timeouts, limits: MessageLimits, now: float) -> None:
        self.peer = peer
        self.state: Literal["unknown", "present", "lost", "left", "refused"] = "unknown"
        self.outbound = Outbound(timeouts.beat / 8, self._hello)
        self.inbound = Inbound(peer, limits)
        self.reopen = True  # whether the transport shall open a new connection
        self._own_incarnation = incarnation
        self._incarnation: str | None = None
        self._predecessors: deque[str] = deque(maxlen=_PREDECESSORS)
        self._hellos, self._hello_at = float(HELLOS), now  # how many more may begin anew, and when that was counted
        self._timeouts = timeouts
        self._heard = self._sent = self._opened = now
        self._counts: defaultdict[tuple[str, Direction], list[int]] = defaultdict(lambda: [0, 0])

    # What goes out

    def open(self, now: float) -> None:
        """The transport opens a connection: a new stream begins."""
        self.outbound.open()
        self.reopen = False
        self._opened = now

    def put(self, message: Outgoing, *, replace: bool = False) -> list[Event]:
        """Queue a message, unless the peer is away. With ``replace``, instead of those of its kind that still wait."""
        if self.state not in ("unknown", "present"):
            return [Undelivered(self.peer, 1, self.state)]
        replaced = self.outbound.withdraw(message.kind) if replace else 0
        self.outbound.put(message)
        return [Undelivered(self.peer, replaced, "superseded")] if replaced else []

    def taken(self, now: float) -> None:
        """The connection took the packet that ``outbound.peek`` gave."""
        sent = self.outbound.taken()
        self._sent = now
        self._count(sent.kind, "sent", sent.size, sent.complete)

    def _hello(self) -> bytes:
        hello: bytes = msgpack.packb(
            {"protocol": PROTOCOL, "incarnation": self._own_incarnation, "heard": self.inbound.stream}
        )
        return hello

    # What comes in

    def receive(self, frames: Sequence[Buffer], now: float) -> list[Event]:
        """A packet arrived from the peer."""
        size = sum(len(frame) for frame in frames)
        try:
            packet = Packet.read(frames)
            if packet.type is PacketType.HELLO:
                self._count("hello", "received", size, True)
                return self._hear_hello(packet, now)
        except WireError as error:
            return [BadMessage(self.peer, str(error))]
        if packet.stream != self.inbound.stream:
            self._count("stale", "received", size, True)
            return []
        self._heard = now
        return self._hear(packet, size)

    def tick(self, now: float, stalled: float) -> list[Event]:
        """Time passes; ``stalled`` s of it this node itself was not running, and cannot hold that against the peer."""
        self._heard += stalled
        self._opened += stalled
        self._sent += stalled
        events: list[Event] = []
        if self.state == "present" and now - self._heard > self._timeouts.lost_after:
            events = self._lose(f"silent for {now - self._heard:.1f} s")
        elif self.state == "present" and now - self._sent > _TAKES_NOTHING * self._timeouts.lost_after:
            events = self._lose(f"took nothing for {now - self._sent:.1f} s")
        elif self.state in ("unknown", "lost") and now - self._opened > self._timeouts.lost_after:
            self.reopen = True
        if self.outbound.greeted and now - self._sent >= 0.75 * self._timeouts.beat:
            self.outbound.beat()
        return events

    def traffic(self) -> list[Traffic]:
        return [
            Traffic(self.peer, kind, direction, messages, size)
            for (kind, direction), (messages, size) in sorted(self._counts.items())
        ]

    def _hear(self, packet: Packet, size: int) -> list[Event]:
        message = None
        try:
            message = self.inbound.take(packet)
        except StreamBroken as error:
            self._count("stale", "received", size, True)
            return self._lose(f"some of its data was lost with a connection ({error})")
        except WireError as error:
            return [BadMessage(self.peer, str(error))]
        finally:
            if self.inbound.stream is not None:
                kind = OWN_KINDS.get(packet.type, self.inbound.kind)
                self._count(kind, "received", size, message is not None or packet.type in OWN_KINDS)
        if packet.type is PacketType.GOODBYE:
            return self._leave()
        return [Received(self.peer, message)] if message is not None else []

    def _hear_hello(self, packet: Packet, now: float) -> list[Event]:
        if len(packet.content) > LONGEST_HELLO:
            raise WireError(f"hello of {len(packet.content)} bytes; at most {LONGEST_HELLO}")
        hello = unpack(packet.content)
        protocol, incarnation, heard = (hello.get(key) for key in ("protocol", "incarnation", "heard"))
        if protocol != PROTOCOL:
            return self._refuse(
                f"it speaks protocol {quoted(protocol)}, this node {PROTOCOL}: run one version everywhere"
            )
        if not isinstance(incarnation, str) or len(incarnation) > _LONGEST_INCARNATION:
            raise WireError("hello without an incarnation")
        restarted = incarnation != self._incarnation
        if incarnation in self._predecessors or (not restarted and packet.stream <= self.inbound.latest):
            return []
        if not self._may_begin_anew(now):
            return []
        events: list[Event] = []
        if not restarted:
            if self.state == "present" and heard != self.outbound.stream:
                events = self._lose("it had lost this node")
        elif self._incarnation is not None:
            self._predecessors.append(self._incarnation)
            events = self._lose("it was restarted") if self.state == "present" else []
            self.reopen |= self.outbound.greeted
        self._incarnation = incarnation
        self.inbound.accept(packet.stream)
        self._heard = now
        if self.state != "present":
            # Of a peer that went away with a word the connection was closed.
            self.reopen |= self.state in ("left", "refused")
            self.state = "present"
            self._sent = now
            events.append(Joined(self.peer))
        return events

    def _may_begin_anew(self, now: float) -> bool:
        self._hellos = min(float(HELLOS), self._hellos + (now - self._hello_at) / self._timeouts.beat)
        self._hello_at = now
        if self._hellos < 1:
            return False
        self._hellos -= 1
        return True

    def _lose(self, reason: str) -> list[Event]:
        self.state = "lost"
        self.inbound.close()
        self.reopen = True
        return [Lost(self.peer, reason), *self._drop("lost")]

    def _leave(self) -> list[Event]:
        self.state = "left"
        self.inbound.close()
        return [Left(self.peer), *self._drop("left")]

    def _refuse(self, reason: str) -> list[Event]:
        if self.state == "refused":
            return []
        self.state = "refused"
        self.inbound.close()
        return [Refused(self.peer, reason), *self._drop("refused")]

    def _drop(self, reason: str) -> list[Event]:
        dropped = self.outbound.withdraw()
        return [Undelivered(self.peer, dropped, reason)] if dropped else []

    def _count(self, kind: str, direction: Direction, size: int, complete: bool) -> None:
        """A packet of ``size`` bytes."""
        for each, messages, share in ((kind, int(complete), size - PREFIX_SIZE), (FRAMING, 1, PREFIX_SIZE)):
            count = self._counts[each, direction]
            count[0] += messages
            count[1] += share
