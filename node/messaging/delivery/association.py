"""The state of one peer at one node: its presence, and the traffic to and from it. No sockets, no clock.

The transport over sockets keeps an `Association` for each peer. The transport in memory has no packets to lose:
`node.messaging.delivery.pair` applies the same rules to the state of the network, and `tests/conformance` tests both.
The rules:

1. A peer *joins* with its hello. Only a hello brings back a lost peer.
2. A peer is *lost* when the node received nothing from it for ``lost_after``, when the peer took nothing for four times
   as long, when packets of its stream are missing, when its hello shows a restart (new incarnation), or when its hello
   shows that it had lost this node (the hello does not name this node's stream).
3. A node that loses a peer drops the peer's queue and opens a new connection, which starts with the node's hello. Each
   hello names the last stream received from the other side. So the peer loses the node in turn, both sides start new
   streams, and packets are never missing from the middle of a stream.
4. A peer that says goodbye has left. It is away until it says hello again.
5. A peer may restart `HELLOS` times, and then once per ``beat``, since each restart is an event for its peers, and they
   send it the messages it missed. An earlier hello is ignored. An honest peer repeats a hello that is not answered.
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
_Counted = tuple[str, Direction]  # the kind of a message, and its direction

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
    """The peer is not present any more, or has to start again."""

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

    def __init__(
        self,
        peer: str,
        incarnation: str,
        timeouts: Timeouts,
        now: float,
    ) -> None:
        self.peer = peer
        self.state: Literal["unknown", "present", "lost", "left", "refused"] = "unknown"
        self.outbound = Outbound(timeouts.beat / 8, self._hello)
        self.inbound = Inbound(peer)
        self.reopen = True  # whether the transport shall open a new connection
        self._own_incarnation = incarnation
        self._incarnation: str | None = None
        self._predecessors: deque[str] = deque(maxlen=_PREDECESSORS)
        self._hellos = float(HELLOS)  # hellos that the peer may still restart with
        self._hello_at = now  # when they were counted
        self._timeouts = timeouts
        self._received = now
        self._sent = now
        self._opened = now
        # Messages and bytes by kind and direction.
        self._counts: defaultdict[_Counted, list[int]] = defaultdict(lambda: [0, 0])

    def keep_away(self) -> None:
        """The peer has not come yet, and is not looked for: it says hello first."""
        self.state = "left"
        self.reopen = False

    # What goes out

    def open(self, now: float) -> None:
        """Start a new stream: the transport opens a connection."""
        self.outbound.open()
        self.reopen = False
        self._opened = now

    def put(self, message: Outgoing, *, replace: bool = False) -> list[Event]:
        """Queue a message, unless the peer is away, or has not come and its queue is full. With ``replace`` it replaces
        queued messages of its kind."""
        if self.state == "unknown":
            queued = replace or self.outbound.room
        else:
            queued = self.state == "present"
        if not queued:
            return [Undelivered(self.peer, 1, self.state)]
        replaced = 0
        if replace:
            replaced = self.outbound.withdraw(message.kind)
        self.outbound.put(message)
        if not replaced:
            return []
        return [Undelivered(self.peer, replaced, "superseded")]

    def taken(self, now: float) -> None:
        """Account for the packet from ``outbound.peek``: the connection took it."""
        sent = self.outbound.taken()
        self._sent = now
        self._count(sent.kind, "sent", sent.size, sent.complete)

    def _hello(self) -> bytes:
        content = {
            "protocol": PROTOCOL,
            "incarnation": self._own_incarnation,
            "heard": self.inbound.stream,
        }
        hello: bytes = msgpack.packb(content)
        return hello

    # What comes in

    def receive(self, frames: Sequence[Buffer], now: float) -> list[Event]:
        """Handle a packet that arrived from the peer. Return the events it causes."""
        size = sum(map(len, frames))
        try:
            packet = Packet.read(frames)
            if packet.type is PacketType.HELLO:
                self._count("hello", "received", size, True)
                return self._receive_hello(packet, now)
        except WireError as error:
            return [BadMessage(self.peer, str(error))]
        if packet.stream != self.inbound.stream:
            self._count("stale", "received", size, True)
            return []
        self._received = now
        return self._receive_packet(packet, size)

    def tick(self, now: float, stalled: float) -> list[Event]:
        """Apply the timeouts. This node itself did not run for ``stalled`` s, which do not count as the peer's."""
        self._received += stalled
        self._opened += stalled
        self._sent += stalled
        lost_after = self._timeouts.lost_after
        events: list[Event] = []
        if self.state == "present":
            silence = now - self._received
            refusal = now - self._sent
            if silence > lost_after:
                events = self._lose(f"silent for {silence:.1f} s")
            elif refusal > _TAKES_NOTHING * lost_after:
                events = self._lose(f"took nothing for {refusal:.1f} s")
        elif self.state in ("unknown", "lost") and now - self._opened > lost_after:
            self.reopen = True
        beat_is_due = now - self._sent >= 0.75 * self._timeouts.beat
        if beat_is_due and self.outbound.greeted:
            self.outbound.beat()
        return events

    def traffic(self) -> list[Traffic]:
        rows = []
        for key, (messages, size) in sorted(self._counts.items()):
            kind, direction = key
            row = Traffic(self.peer, kind, direction, messages, size)
            rows.append(row)
        return rows

    def _receive_packet(self, packet: Packet, size: int) -> list[Event]:
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
                complete = message is not None or packet.type in OWN_KINDS
                self._count(kind, "received", size, complete)
        if packet.type is PacketType.GOODBYE:
            return self._leave()
        if message is not None:
            return [Received(self.peer, message)]
        return []

    def _receive_hello(self, packet: Packet, now: float) -> list[Event]:
        if len(packet.content) > LONGEST_HELLO:
            raise WireError(f"hello of {len(packet.content)} bytes; at most {LONGEST_HELLO}")
        hello = unpack(packet.content)
        protocol = hello.get("protocol")
        incarnation = hello.get("incarnation")
        named_stream = hello.get("heard")  # that of this node that the peer received last
        if protocol != PROTOCOL:
            return self._refuse(
                f"it speaks protocol {quoted(protocol)}, this node {PROTOCOL}: run one version everywhere"
            )
        if not isinstance(incarnation, str):
            raise WireError("hello without an incarnation")
        if len(incarnation) > _LONGEST_INCARNATION:
            raise WireError("hello without an incarnation")
        restarted = incarnation != self._incarnation
        earlier = not restarted and packet.stream <= self.inbound.latest
        if earlier or incarnation in self._predecessors:
            return []
        if not self._may_restart(now):
            return []
        events: list[Event] = []
        if not restarted:
            if self.state == "present" and named_stream != self.outbound.stream:
                events = self._lose("the peer had lost this node")
        elif self._incarnation is not None:
            self._predecessors.append(self._incarnation)
            if self.state == "present":
                events = self._lose("it was restarted")
            self.reopen |= self.outbound.greeted
        self._incarnation = incarnation
        self.inbound.accept(packet.stream)
        self._received = now
        if self.state != "present":
            # The connection to a peer that left or was refused was closed.
            self.reopen |= self.state in ("left", "refused")
            self.state = "present"
            self._sent = now
            events.append(Joined(self.peer))
        return events

    def _may_restart(self, now: float) -> bool:
        regained = (now - self._hello_at) / self._timeouts.beat
        self._hellos = min(float(HELLOS), self._hellos + regained)
        self._hello_at = now
        if self._hellos < 1:
            return False
        self._hellos -= 1
        return True

    def _lose(self, reason: str) -> list[Event]:
        self.state = "lost"
        self.inbound.close()
        self.reopen = True
        undelivered = self._drop("lost")
        return [Lost(self.peer, reason), *undelivered]

    def _leave(self) -> list[Event]:
        self.state = "left"
        self.inbound.close()
        undelivered = self._drop("left")
        return [Left(self.peer), *undelivered]

    def _refuse(self, reason: str) -> list[Event]:
        if self.state == "refused":
            return []
        self.state = "refused"
        self.inbound.close()
        undelivered = self._drop("refused")
        return [Refused(self.peer, reason), *undelivered]

    def _drop(self, reason: str) -> list[Event]:
        dropped = self.outbound.withdraw()
        if dropped:
            return [Undelivered(self.peer, dropped, reason)]
        return []

    def _count(
        self,
        kind: str,
        direction: Direction,
        size: int,
        complete: bool,
    ) -> None:
        """Count a packet of ``size`` bytes."""
        messages = self._counts[kind, direction]
        messages[0] += complete
        messages[1] += size - PREFIX_SIZE
        packets = self._counts[FRAMING, direction]
        packets[0] += 1
        packets[1] += PREFIX_SIZE
