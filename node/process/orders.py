"""The orchestrator's orders to a node (see `node.messaging.control`), and their execution."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class Performer(Protocol):
    """The part of a `node.role.Role` that orders control."""

    @property
    def stopped(self) -> bool: ...

    async def perform(self) -> None: ...

    def stop(self, *, leaving: bool = False) -> None: ...


class Slowable(Protocol):
    """A `node.runtime.compute.Compute` with a factor on its speed."""

    slow: float


class UnderOrders:
    """A role that starts and ends by the orchestrator's orders. ``started`` is set by the first order."""

    def __init__(self, role: Performer, compute: Slowable) -> None:
        self._role = role
        self._compute = compute
        self.started = asyncio.Event()

    async def perform(self) -> None:
        """Wait for the start message, and perform the role unless it is stopped already."""
        await self.started.wait()
        if not self._role.stopped:
            await self._role.perform()

    def obey(self, message: Mapping[str, Any]) -> None:
        """Execute the order in a message. A message of unknown type is logged."""
        match message.get("type"):
            case "start":
                self.started.set()
            case "stop":
                self.stop()
            case "leave":
                self.stop(leaving=True)
            case "slow":
                factor = float(message["factor"])
                self._compute.slow = factor
            case other:
                logger.warning("the orchestrator says %r, which this version does not know", other)

    def stop(self, *, leaving: bool = False) -> None:
        """End the role, or prevent its start."""
        self._role.stop(leaving=leaving)
        self.started.set()
