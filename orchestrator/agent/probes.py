"""Probes from the nodes of an agent's host, see `orchestrator.fabric.prober.Prober`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.fabric.base import Handle
from orchestrator.fabric.prober import Prober


class Probes:
    """The verbs of the prober. ``prober`` is that of the run that is open here, or of a host that is examined."""

    def __init__(self, prober: Callable[[], Prober]) -> None:
        self._prober = prober
        self._numbers = itertools.count(1)
        self._responders: dict[int, AsyncExitStack] = {}

    async def respond(self, pid: int, address: str) -> dict[str, Any]:
        """Start a responder in the node of this process. Returns what it printed, and its number for `dismiss`."""
        stack = AsyncExitStack()
        ready = await stack.enter_async_context(self._prober().responding(Handle(pid), address))
        number = next(self._numbers)
        self._responders[number] = stack
        return {"ready": ready, "number": number}

    async def dismiss(self, number: int) -> None:
        await self._responders.pop(number).aclose()

    async def probe(self, pid: int, arguments: Sequence[str]) -> dict[str, Any]:
        return await self._prober().probe(Handle(pid), arguments)

    async def dismiss_all(self) -> None:
        """End the responders that are left."""
        for stack in self._responders.values():
            await stack.aclose()
        self._responders.clear()
