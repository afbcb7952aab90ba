"""What the orchestrator may tell a node to do (see `node.messaging.control`), and what the node then does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class Performer(Protocol):
    """What of a `node.role.Role` is under orders."""

    @property
    def stopped(self) -> bool: ...

    async def perform(self) -> None: ...

    def stop(self, *, leaving: bool = False) -> None: ...


class Slowable(Protocol):
    """A `node.runtime.compute.Compute` with a factor on its speed."""

    slow: float


class UnderOrders:
    """A role that is performed from the word to start on, and ends when it is told to."""

    def __init__(self, role: Performer, compute: Slowable) -> None:
        self._role = role
        self._compute = compute
        self._started = asyncio.Event()

    async def perform(self) -> None:
        """Wait for the word to start, and perform the role unless it is over already."""
        await self._started.wait()
        if not self._role.stopped:
            await self._role.perform()

    def obey(self, message: Mapping[str, Any]) -> None:
        """Do what a message asks for; one of an unknown type is logged."""
        match message.get("type"):
            case "start":
                self._started.set()
            case "stop":
                self.stop()
            case "leave":
                self.stop(leaving=True)
            case "slow":
                self._compute.slow = float(message["factor"])
            case other:
                logger.warning("the orchestrator says %r, which this version does not know", other)

    def stop(self, *, leaving: bool = False) -> None:
        """End the role, or see that it does not begin."""
        self._role.stop(leaving=leaving)
        self._started.set()
