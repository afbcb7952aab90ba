"""The responders to probes in the nodes of an agent's host, see `orchestrator.fabric.link_prober.Prober`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.link_prober import Prober


class Responders:
    """Responders to measurements. ``prober`` is that of the run that is open here, or of a host that is examined."""

    def __init__(self, prober: Callable[[], Prober]) -> None:
        self._prober = prober
        self._numbers = itertools.count(1)
        self._responders: dict[int, AsyncExitStack] = {}

    async def respond(
        self,
        handle: NodeHandle,
        address: str,
    ) -> tuple[dict[str, Any], int]:
        """Start a responder in a node. Returns what it printed, and its number for `dismiss`."""
        stack = AsyncExitStack()
        prober = self._prober()
        ready = await stack.enter_async_context(prober.responding(handle, address))
        number = next(self._numbers)
        self._responders[number] = stack
        return ready, number

    async def dismiss(self, number: int) -> None:
        stack = self._responders.pop(number)
        await stack.aclose()

    async def dismiss_all(self) -> None:
        """End the responders that are left."""
        for stack in self._responders.values():
            await stack.aclose()
        self._responders.clear()
