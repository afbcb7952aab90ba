"""The transport of nodes that share a process: no sockets, no threads, only asyncio's clock.

It is for simulations on a virtual clock, and for tests. It delivers whole messages. It needs no beats, since the
network knows which nodes run (`node.messaging.delivery.pair` has the rules). There are two differences to nodes with
sockets. A queue is never full, so ``send`` never waits. The timers of a frozen node run on, though nothing reaches or
leaves the node until it is thawed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Literal

from node.assignment import Timeouts
from node.errors import TransportError
from node.messaging.delivery.arrivals import Arrivals
from node.messaging.delivery.association import (
    BadMessage,
    Direction,
    Event,
    Joined,
    Left,
    Lost,
    Received,
    Traffic,
    Undelivered,
)
from node.messaging.delivery.inbox import Inbox
from node.messaging.delivery.pair import Delay, FlowModel, InFlight, Line, NodePair
from node.messaging.wire import Message, handed_over

FAREWELL = "goodbye"

_DEFAULT_TIMEOUTS = Timeouts()

_State = Literal["unknown", "present", "lost", "left"]
_Counted = tuple[str, str, Direction]  # peer, kind of message, direction


def _without_delay(source: str, target: str) -> FlowModel:
    return Delay()


def _without_processing(size: int) -> float:
    return 0.0


class MemoryNetwork:
    """Connects the transports made from it. ``flow`` returns the `FlowModel` of each direction between two nodes,
    ``processing`` the seconds that two nodes need for a message of so many bytes."""

    def __init__(
        self,
        flow: Callable[[str, str], FlowModel] = _without_delay,
        processing: Callable[[int], float] = _without_processing,
    ) -> None:
        self.endpoints: dict[str, MemoryTransport] = {}
        self.frozen: set[str] = set()
        self._flow = flow
        self._processing = processing
        self._arrivals = Arrivals()
        self._pairs: dict[frozenset[str], NodePair] = {}

    def transport(
        self,
        node: str,
        peers: Iterable[str],
        *,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    ) -> MemoryTransport:
        """A transport for ``node``. A node that starts again takes a new transport."""
        self.frozen.discard(node)
        return MemoryTransport(self, node, peers, timeouts)

    def cut(self, source: str, target: str) -> None:
        """Stop all messages from source to target until ``restore``."""
        line = self.line(source, target)
        if not line.down:
            line.cut()
            self.pair(source, target).update()

    def restore(self, source: str, target: str) -> None:
        line = self.line(source, target)
        if line.down:
            line.restore()
            self.pair(source, target).update()

    def freeze(self, node: str, frozen: bool) -> None:
        """Freeze or thaw a node. Nothing reaches or leaves a frozen node. A node that starts frozen meets no peer."""
        if frozen:
            self.frozen.add(node)
        else:
            self.frozen.discard(node)
        if node in self.endpoints:
            self.endpoints[node].freeze(frozen)

    def line(self, source: str, target: str) -> Line:
        pair = self.pair(source, target)
        return pair.line_to[target]

    def pair(self, one: str, other: str) -> NodePair:
        """The pair of two nodes, made at the first call."""
        key = frozenset((one, other))
        if key not in self._pairs:
            lines: dict[str, Line] = {}
            for source, target in ((other, one), (one, other)):
                flow = self._flow(source, target)
                deliver = self._deliver(source, target)
                lines[target] = Line(flow, self._arrivals, deliver)
            self._pairs[key] = NodePair(lines)
        return self._pairs[key]

    def forget(self, one: str, other: str) -> None:
        """Forget a pair of nodes after one has ended, with all that is in flight between them."""
        key = frozenset((one, other))
        pair = self._pairs.pop(key, None)
        if pair is not None:
            pair.close()

    def in_flight(self, message: Message, size: int) -> InFlight:
        processing = self._processing(size)
        return InFlight(message, size, processing)

    def _deliver(self, source: str, target: str) -> Callable[[InFlight], None]:
        """A function that delivers messages from source to the transport of target, if there is one."""

        def deliver(in_flight: InFlight) -> None:
            endpoint = self.endpoints.get(target)
            if endpoint is not None:
                endpoint.arrive(source, in_flight)

        return deliver


class MemoryTransport:
    """The `node.messaging.transport.Transport` of one node in a `MemoryNetwork`."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: str,
        peers: Iterable[str],
        timeouts: Timeouts,
    ) -> None:
        self.node = node
        self.patience = timeouts.lost_after
        self.frozen = False
        self._network = network
        self._states: dict[str, _State] = dict.fromkeys(peers, "unknown")
        self._pairs: dict[str, NodePair] = {}
        self._waiting: defaultdict[str, list[InFlight]] = defaultdict(list)  # for peers that have not joined yet
        self._events: Inbox[Event] = Inbox()
        self._on_message: Callable[[str, Message], None] | None = None
        self._held_events: list[Event] = []
        self._held_sends: list[tuple[str, InFlight]] = []
        self._counts: defaultdict[_Counted, list[int]] = defaultdict(lambda: [0, 0])

    async def start(self) -> None:
        if self.node in self._network.endpoints:
            raise TransportError(f"{self.node} is in this network already; close it first")
        self._network.endpoints[self.node] = self
        self.frozen = self.node in self._network.frozen
        for peer in self._states:
            self._enter_pair(peer)

    async def send(
        self,
        to: Iterable[str],
        message: Message,
        *,
        replace: bool = False,
    ) -> None:
        peers = list(to)
        for peer in peers:
            if peer not in self._states:
                known = ", ".join(self._states) or "none"
                raise TransportError(f"{self.node} has no peer {peer!r}; its peers are {known}")
        received, size = handed_over(message)
        in_flight = self._network.in_flight(received, size)
        for peer in peers:
            if replace and peer in self._waiting:
                waiting = self._waiting[peer]
                kept = [other for other in waiting if other.message.kind != message.kind]
                self._waiting[peer] = kept
            self._give(peer, in_flight)

    def receive(self) -> Coroutine[Any, Any, Event]:
        return self._events.get()

    def on_message(self, handle: Callable[[str, Message], None]) -> None:
        """See `node.messaging.transport.Immediate`."""
        self._on_message = handle

    def traffic(self) -> list[Traffic]:
        rows = []
        for key, (messages, size) in sorted(self._counts.items()):
            peer, kind, direction = key
            row = Traffic(peer, kind, direction, messages, size)
            rows.append(row)
        return rows

    async def close(self, flush: float | None = None) -> None:
        endpoints = self._network.endpoints
        if endpoints.get(self.node) is not self:
            return
        del endpoints[self.node]
        farewell = None
        if flush is not None:
            goodbye = Message(FAREWELL, self.node)
            farewell = self._network.in_flight(goodbye, 0)
        for pair in self._pairs.values():
            pair.end(self.node, farewell)

    # For nodes with peers that come and go by design

    def admit(self, peer: str) -> None:
        """Take one more peer. It is present as soon as both have started and can connect."""
        self._states[peer] = "unknown"
        self._enter_pair(peer)

    def forget(self, peers: Collection[str]) -> None:
        """Forget peers that have ended, and events of them, but not the traffic with them."""
        for peer in peers:
            self._states.pop(peer, None)
            self._pairs.pop(peer, None)
            self._waiting.pop(peer, None)
            self._network.forget(self.node, peer)
        self._events.keep(lambda event: event.peer not in peers)
        events = self._held_events
        self._held_events = [event for event in events if event.peer not in peers]
        sends = self._held_sends
        self._held_sends = [send for send in sends if send[0] not in peers]

    # For the network

    def freeze(self, frozen: bool) -> None:
        self.frozen = frozen
        if not frozen:
            self._release_held()
        for pair in self._pairs.values():
            pair.update()

    def arrive(self, peer: str, in_flight: InFlight) -> None:
        """Take a message that has crossed the network."""
        message = in_flight.message
        if message.kind == FAREWELL:
            self._pairs[peer].part()
            self._states[peer] = "left"
            self._put(Left(peer))
            return
        self._count(peer, message.kind, "received", in_flight.size)
        if message.sender != peer:
            self._put(BadMessage(peer, f"message {message.kind!r} claims to be from {message.sender!r}"))
        elif self._on_message is None or self.frozen or self._events:
            self._put(Received(peer, message))
        else:
            self._on_message(peer, message)

    def meet(self, peer: str, reason: str) -> None:
        if self._states[peer] == "present":
            self._put(Lost(peer, reason))
        self._states[peer] = "present"
        self._put(Joined(peer))
        for in_flight in self._waiting.pop(peer, ()):
            self._give(peer, in_flight)

    def lose(self, peer: str, reason: str) -> None:
        self._states[peer] = "lost"
        self._put(Lost(peer, reason))

    def _enter_pair(self, peer: str) -> None:
        pair = self._network.pair(self.node, peer)
        self._pairs[peer] = pair
        pair.ends[self.node] = self
        pair.update()

    def _release_held(self) -> None:
        """Report the events and send the messages that were held while the node was frozen."""
        events = self._held_events
        self._held_events = []
        sends = self._held_sends
        self._held_sends = []
        for event in events:
            self._events.put(event)
        for peer, in_flight in sends:
            self._give(peer, in_flight)

    def _give(self, peer: str, in_flight: InFlight) -> None:
        """Send the message, hold it while the node is frozen, queue it for a peer that has not joined, or drop it."""
        state = self._states[peer]
        if self.frozen:
            self._held_sends.append((peer, in_flight))
        elif state == "present":
            self._count(peer, in_flight.message.kind, "sent", in_flight.size)
            pair = self._pairs[peer]
            line = pair.line_to[peer]
            if line.send(in_flight) == math.inf and not line.down:
                pair.stall()
        elif state == "unknown":
            self._waiting[peer].append(in_flight)
        else:
            self._put(Undelivered(peer, 1, state))

    def _put(self, event: Event) -> None:
        if self.frozen:
            self._held_events.append(event)
        else:
            self._events.put(event)

    def _count(
        self,
        peer: str,
        kind: str,
        direction: Direction,
        size: int,
    ) -> None:
        count = self._counts[peer, kind, direction]
        count[0] += 1
        count[1] += size
