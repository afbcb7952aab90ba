"""The control plane of simulated nodes: the messages of `node.messaging.control`, passed in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

Message = dict[str, Any]
Inbox = asyncio.Queue[Message]
Outbox = asyncio.Queue[tuple[str, Message]]  # with the name of the sender


class MemoryControl:
    """Both sides of the plane. The orchestrator reads `messages` and sends. Nodes send, and read their own `inbox`."""

    def __init__(self) -> None:
        self._messages: Outbox = asyncio.Queue()
        self._inboxes: dict[str, Inbox] = {}

    async def messages(self) -> AsyncIterator[tuple[str, Message]]:
        """Yield each message with the name of its sender, forever."""
        while True:
            yield await self._messages.get()

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send a message to a node. A node that does not run misses it."""
        inbox = self._inboxes.get(node)
        if inbox is not None:
            inbox.put_nowait(dict(message))

    def open(self, node: str, side: type[MemoryReporter] | None = None) -> MemoryReporter:
        """Open the plane for a node that starts, and return the node's side."""
        inbox: Inbox = asyncio.Queue()
        self._inboxes[node] = inbox
        kind = side or MemoryReporter
        return kind(node, self._messages, inbox)

    def leave(self, node: str) -> None:
        """Close the plane for a node that has ended."""
        self._inboxes.pop(node, None)


class MemoryReporter:
    """A node's side of the plane, as its `node.messaging.control.Reporter`."""

    def __init__(self, node: str, outbox: Outbox, inbox: Inbox) -> None:
        self.inbox = inbox
        self._node = node
        self._outbox = outbox

    def say(self, type: str, **fields: Any) -> None:
        message = {"type": type, **fields}
        self._outbox.put_nowait((self._node, message))

    def event(
        self,
        name: str,
        *,
        round: int | None = None,
        **fields: Any,
    ) -> None:
        if round is not None:
            fields = {"round": round, **fields}
        self.say("event", name=name, **fields)

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        copy = dict(values)
        self.say("metric", round=round, values=copy)
