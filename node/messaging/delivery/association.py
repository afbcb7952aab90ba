"""The state of one peer at one node: its presence, and the traffic to and from it. No sockets, no clock.

The transport over sockets keeps an `Association` for each peer. The transport in memory has no packets to lose:
`node.messaging.delivery.pair` applies the same rules to the state of the network, and `tests/conformance` tests both.
The rules:

1. A peer *joins* with its hello. Only a hello brings back a lost peer.
2. A peer is *lost* when the node heard nothing from it for ``lost_after``, when the peer took nothing for four times as
   long, when packets of its stream are missing, when its hello shows a restart (new incarnation), or when its hello
   shows that it had lost this node (the hello does not name this node's stream).
3. A node that loses a peer drops the peer's queue and opens a new connection, which begins with the node's hello. Each
   hello names the stream last heard from the other side. So the peer loses the node in turn, both sides begin new
   streams, and packets are never missing from the middle of a stream.
4. A peer that says goodbye has left. It is away until it says hello again.
5. A peer may begin anew `HELLOS` times, and then once per ``beat``, since each time its peers are told and send it the
   messages it missed. An earlier hello is ignored. An honest peer repeats a hello that is not answered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgpack

from node.assignment import Timeouts
from node.errors import WireError
from node.messaging.delivery.packet import FRAMING, OWN_KINDS, PREFIX_SIZE, Packet, PacketType
from node.messaging.delivery.stream import Inbound, Outbound, Outgoing, StreamBroken
from node.messaging.wire import PROTOCOL, Buffer, Message, quoted, unpack

Direction = Literal["sent", "received"]

HELLOS = 16
LONGEST_HELLO = 1 << 10  # bytes
_LONGEST_INCARNATION = 64  # characters
_PREDECESSORS = 64  # earlier incarnations to remember, since their hellos may still be in flight
_TAKES_NOTHING = 4  # times ``lost_after``; a slow link with large buffers takes nothing for longer than it is silent


@dataclass(frozen=True, eq=False)
class Received:
    """A complete message arrived."""

    peer: str
    message: Message


@dataclass(frozen=True)
class Joined:
    """The peer said hello and is present."""

    peer: str


@dataclass(frozen=True)
class Lost:
    """The peer is not present any more, or has to begin anew."""

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
    """The peer sent data that is not a message. The data was dropped."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Undelivered:
    """``messages`` messages to the peer were dropped."""

    peer: str
    messages: int
    reason: str


Event = Received | Joined | Lost | Left | Refused | BadMessage | Undelivered


@dataclass(frozen=True)
class Traffic:
    """The traffic between this node and ``peer`` since the start: the number of messages of a ``kind``, and the bytes
    of their headers and bodies, without encryption and TCP. The number of packets depends on the link. Packets and the
    bytes of their prefixes are counted as kind `FRAMING`."""

    peer: str
    kind: str
    direction: Direction
    messages: int
    bytes: int


class Association:
    """One peer, by the rules of this module. ``now`` is the time of any monotonic clock in seconds."""

    def __init__(self, peer: str, incarnation: str, timeouts: Timeouts, now: float) -> None:
        self.peer = peer
        self.state: Literal["unknown", "present", "lost", "left", "refused"] = "unknown"
        self.outbound = Outbound(timeouts.beat / 8, self._hello)
        self.inbound = Inbound(peer)
        self.reopen = True  # whether the transport shall open a new connection
        self._own_incarnation = incarnation
        self._incarnation: str | None = None
        self._predecessors: deque[str] = deque(maxlen=_PREDECESSORS)
        self._hellos, self._hello_at = float(HELLOS), now  # hellos that may still begin anew; when they were counted
        self._timeouts = timeouts
        self._heard = self._sent = self._opened = now
        self._counts: defaultdict[tuple[str, Direction], list[int]] = defaultdict(lambda: [0, 0])

    def keep_away(self) -> None:
        """The peer has not come yet, and is not looked for: it says hello first."""
        self.state = "left"
        self.reopen = False

    # What goes out

    def open(self, now: float) -> None:
        """Begin a new stream: the transport opens a connection."""
        self.outbound.open()
        self.reopen = False
        self._opened = now

    def put(self, message: Outgoing, *, replace: bool = False) -> list[Event]:
        """Queue a message, unless the peer is away, or has not come and its queue is full. With ``replace`` it replaces
        queued messages of its kind."""
        queued = self.state == "present" or (self.state == "unknown" and (replace or self.outbound.room))
        if not queued:
            return [Undelivered(self.peer, 1, self.state)]
        if replace:
            replaced = self.outbound.withdraw(message.kind)
        else:
            replaced = 0
        self.outbound.put(message)
        if replaced:
            return [Undelivered(self.peer, replaced, "superseded")]
        return []

    def taken(self, now: float) -> None:
        """Account for the packet from ``outbound.peek``: the connection took it."""
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
        """Handle a packet that arrived from the peer. Return the events it causes."""
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
        """Apply the timeouts. This node itself did not run for ``stalled`` s, which do not count as the peer's."""
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
        if message is not None:
            return [Received(self.peer, message)]
        return []

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
                events = self._lose("the peer had lost this node")
        elif self._incarnation is not None:
            self._predecessors.append(self._incarnation)
            if self.state == "present":
                events = self._lose("it was restarted")
            else:
                events = []
            self.reopen |= self.outbound.greeted
        self._incarnation = incarnation
        self.inbound.accept(packet.stream)
        self._heard = now
        if self.state != "present":
            # The connection to a peer that left or was refused was closed.
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
        if dropped:
            return [Undelivered(self.peer, dropped, reason)]
        return []

    def _count(self, kind: str, direction: Direction, size: int, complete: bool) -> None:
        """Count a packet of ``size`` bytes."""
        for each, messages, share in ((kind, int(complete), size - PREFIX_SIZE), (FRAMING, 1, PREFIX_SIZE)):
            count = self._counts[each, direction]
            count[0] += messages
            count[1] += share
