"""The transport of nodes that share a process: no sockets, no threads, time only by asyncio's clock.

It serves simulations on a virtual clock, and tests. Peers behave as over ZeroMQ, since the same rules of
`node.association` apply; a connection delivers in order, and like TCP offers again what the network dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from node.assignment import Timeouts
from node.association import Association, Event, Traffic
from node.errors import TransportError
from node.peers import Peers
from node.wire import LIMITS, Buffer, Limits, Message

Deliver = Callable[[str, str, int], float | None]
"""(source, target, bytes) of a packet offered now -> seconds until it arrives, or None if it is dropped."""

Packet = Sequence[Buffer]

_FIRST_RETRY = 0.2  # s, doubling: TCP's least retransmission timeout in Linux
_DEFAULT_TIMEOUTS = Timeouts()


class MemoryNetwork:
    """Connects the transports made from it. ``deliver`` models the links; without it everything arrives at once."""

    def __init__(self, deliver: Deliver | None = None) -> None:
        self.deliver: Deliver = deliver or (lambda source, target, size: 0.0)
        self.endpoints: dict[str, MemoryTransport] = {}

    def transport(
        self, node: str, peers: Iterable[str], *, incarnation: str, timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        limits: Limits = LIMITS,
    ) -> MemoryTransport:  # fmt: skip
        """A transport for ``node``; a node that starts again takes a new one with a new incarnation."""
        return MemoryTransport(self, node, list(peers), incarnation, timeouts, limits)


class MemoryTransport:
    """The `node.transport.Transport` of one node in a `MemoryNetwork`."""

    def __init__(
        self, network: MemoryNetwork, node: str, peers: list[str], incarnation: str, timeouts: Timeouts,
        limits: Limits,
    ) -> None:  # fmt: skip
        self._network = network
        self._node = node
        self._timeouts = timeouts
        self._connections: dict[str, _Connection] = {}
        self._peers = Peers(node, peers, incarnation, timeouts, limits, self._attend)

    async def start(self) -> None:
        if self._node in self._network.endpoints:
            raise TransportError(f"{self._node} is in this network already; close it first")
        self._network.endpoints[self._node] = self
        self._peers.start()

    async def send(self, to: Iterable[str], message: Message, *, replace: bool = False) -> None:
        await self._peers.send(to, message, replace)

    async def receive(self) -> Event:
        return await self._peers.receive()

    def traffic(self) -> list[Traffic]:
        return self._peers.traffic()

    async def close(self, flush: float | None = None) -> None:
        await self._peers.stop(flush)
        if self._network.endpoints.get(self._node) is self:
            del self._network.endpoints[self._node]
        for connection in self._connections.values():
            connection.close(lose=flush is None)

    def arrive(self, source: str, frames: Packet) -> None:
        """The network delivers a packet. Strangers are not heard."""
        if source in self._peers.associations:
            self._peers.hear(source, frames)

    def _attend(self, association: Association) -> None:
        peer = association.peer
        if peer in self._connections and (association.reopen or association.state == "left"):
            self._connections.pop(peer).close()
        if association.reopen and association.state != "left":
            self._connections[peer] = _Connection(self._network, self._node, peer, self._timeouts.lost_after / 4)
            association.open(asyncio.get_running_loop().time())
        if peer in self._connections:
            while (frames := association.outbound.peek()) is not None:
                self._connections[peer].write(frames)
                self._peers.taken(association)


class _Connection:
    """Carries packets one way, in order; ``longest`` s between two offers of a packet that the network dropped."""

    def __init__(self, network: MemoryNetwork, source: str, target: str, longest: float) -> None:
        self._network = network
        self._source, self._target = source, target
        self._longest = longest
        self._retry = min(_FIRST_RETRY, longest)
        self._retrying: asyncio.TimerHandle | None = None
        self._dropped: deque[Packet] = deque()  # and all that was written after, to keep the order
        self._under_way: deque[tuple[Packet, asyncio.TimerHandle]] = deque()
        self._last = 0.0  # when the latest packet under way arrives

    def write(self, frames: Packet) -> None:
        if self._dropped or not self._offer(frames):
            self._dropped.append(frames)
            if len(self._dropped) == 1:
                self._offer_later()

    def close(self, *, lose: bool = True) -> None:
        """Carry nothing more; ``lose``: not even what is under way."""
        self._dropped.clear()
        if self._retrying is not None:
            self._retrying.cancel()
        if lose:
            for _, timer in self._under_way:
                timer.cancel()

    def _offer(self, frames: Packet) -> bool:
        """Whether the network takes the packet: it has the target, and does not drop it."""
        delay = self._network.deliver(self._source, self._target, sum(map(len, frames)))
        if delay is None or self._target not in self._network.endpoints:
            return False
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + delay)
        # Timers of one instant fire in any order; the queue keeps that of the packets.
        self._under_way.append((frames, loop.call_at(self._last, self._arrive)))
        return True

    def _arrive(self) -> None:
        frames, _ = self._under_way.popleft()
        target = self._network.endpoints.get(self._target)
        if target is not None:
            target.arrive(self._source, frames)

    def _offer_later(self) -> None:
        self._retrying = asyncio.get_running_loop().call_later(self._retry, self._offer_again)

    def _offer_again(self) -> None:
        while self._dropped:
            if not self._offer(self._dropped[0]):
                self._retry = min(2 * self._retry, self._longest)
                self._offer_later()
                return
            self._dropped.popleft()
        self._retry = min(_FIRST_RETRY, self._longest)
