"""The control plane of simulated nodes: the messages of `node.messaging.control`, passed in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any


class MemoryControl:
    """Both sides of the plane. The orchestrator reads `messages` and sends. Nodes send, and read their own `inbox`."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._inboxes: dict[str, asyncio.Queue[dict[str, Any]]] = {}

    async def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield each message with the name of its sender, for ever."""
        while True:
            yield await self._said.get()

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Send a message to a node. A node that does not run misses it."""
        if node in self._inboxes:
            self._inboxes[node].put_nowait(dict(message))

    def open(self, node: str, side: type[MemoryReporter] | None = None) -> MemoryReporter:
        """Open the plane for a node that begins, and return the node's side."""
        self._inboxes[node] = asyncio.Queue()
        return (side or MemoryReporter)(node, self._said, self._inboxes[node])

    def leave(self, node: str) -> None:
        """Close the plane for a node that has ended."""
        self._inboxes.pop(node, None)


class MemoryReporter:
    """A node's side of the plane, as its `node.messaging.control.Reporter`."""

    def __init__(
        self, node: str, said: asyncio.Queue[tuple[str, dict[str, Any]]], inbox: asyncio.Queue[dict[str, Any]]
    ) -> None:
        self.inbox = inbox
        self._node = node
        self._said = said

    def say(self, type: str, **fields: Any) -> None:
        self._said.put_nowait((self._node, {"type": type, **fields}))

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        self.say("event", name=name, **({} if round is None else {"round": round}), **fields)

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        self.say("metric", round=round, values=dict(values))
