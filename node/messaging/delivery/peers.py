"""All peers of one node: queues, events and timers. No sockets: a transport sends and receives the frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from node.assignment import Timeouts
from node.errors import TransportError
from node.messaging.delivery.association import Association, Event, Traffic
from node.messaging.delivery.inbox import Inbox
from node.messaging.delivery.stream import Outgoing
from node.messaging.wire import Buffer, Message, encode


class Peers:
    """The associations of ``node``. ``attend`` is the transport's. It does the work of one association: it opens a new
    connection if needed, and sends the packets that the connection takes."""

    def __init__(
        self,
        node: str,
        names: Iterable[str],
        incarnation: str,
        timeouts: Timeouts,
        attend: Callable[[Association], None],
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.associations = {name: Association(name, incarnation, timeouts, now) for name in names}
        self._node = node
        self._interval = timeouts.beat / 2
        self._attend = attend
        self._events: Inbox[Event] = Inbox()
        self._progress = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        for association in self.associations.values():
            self._attend(association)
        self._ticking = asyncio.create_task(self._tick())

    async def send(self, to: Iterable[str], message: Message, replace: bool) -> None:
        """See `node.messaging.transport.Transport.send`."""
        outgoing = Outgoing(message.kind, *encode(message))
        full = []
        for association in self._find(to):
            if not self._put(association, outgoing, replace):
                full.append(association)
        for association in full:
            while not self._put(association, outgoing, replace):
                self._progress.clear()
                await self._progress.wait()

    def handle(self, peer: str, frames: Sequence[Buffer]) -> None:
        """Handle a packet that arrived from ``peer``."""
        association = self.associations[peer]
        now = asyncio.get_running_loop().time()
        events = association.receive(frames, now)
        self._report(events)
        if association.reopen:
            self._attend(association)

    def taken(self, association: Association) -> None:
        """Account for the packet from ``association.outbound.peek``: the connection took it."""
        association.taken(asyncio.get_running_loop().time())
        self._progress.set()

    async def receive(self) -> Event:
        return await self._events.get()

    def traffic(self) -> list[Traffic]:
        rows: list[Traffic] = []
        for association in self.associations.values():
            rows += association.traffic()
        return rows

    async def stop(self, flush: float | None) -> None:
        """Stop the timers, after a goodbye if ``flush`` is given. See `node.messaging.transport.Transport.close`."""
        if flush is not None:
            await self._say_goodbye(flush)
        if self._ticking is not None:
            self._ticking.cancel()

    async def _say_goodbye(self, flush: float) -> None:
        present = []
        for association in self.associations.values():
            if association.state == "present":
                present.append(association)
        for association in present:
            association.outbound.close()
            self._attend(association)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(flush):
                while not all(map(_said_goodbye, present)):
                    self._progress.clear()
                    await self._progress.wait()

    def _put(self, association: Association, outgoing: Outgoing, replace: bool) -> bool:
        """Queue the message, or drop it if the peer is away. Return False if the queue of a present peer is full."""
        full = association.state == "present" and not association.outbound.room
        if full and not replace:
            return False
        events = association.put(outgoing, replace=replace)
        self._report(events)
        self._attend(association)
        return True

    def _report(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.put(event)
            self._progress.set()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(self._interval)
            now = loop.time()
            # A node that was frozen or starved must not count that time as silence of its peers.
            stalled = max(0.0, now - last - 2 * self._interval)
            last = now
            for association in self.associations.values():
                self._report(association.tick(now, stalled))
                self._attend(association)

    def _find(self, to: Iterable[str]) -> list[Association]:
        names = list(to)
        for name in names:
            if name not in self.associations:
                known = ", ".join(self.associations) or "none"
                raise TransportError(f"{self._node} has no peer {name!r}; its peers are {known}")
        return [self.associations[name] for name in names]


def _said_goodbye(association: Association) -> bool:
    """Whether the goodbye was sent, or is not needed any more."""
    return association.outbound.idle or association.state != "present"
