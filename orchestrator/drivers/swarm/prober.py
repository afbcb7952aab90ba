"""Measurements between nodes on several hosts, see `Prober`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from orchestrator.drivers.swarm.channel import Agents
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import Handle


class SwarmProber:
    """The agents of the nodes' hosts run the two ends."""

    def __init__(self, agents: Agents, mtu: int) -> None:
        self.mtu = mtu
        self._agents = agents

    @contextlib.asynccontextmanager
    async def responding(self, handle: Handle, address: str) -> AsyncIterator[dict[str, Any]]:
        begun = await self._call(handle.host, "respond", pid=handle.pid, address=address)
        try:
            yield begun["ready"]
        finally:
            await self._call(handle.host, "dismiss", number=begun["number"])

    async def probe(self, handle: Handle, arguments: Sequence[str]) -> dict[str, Any]:
        return await self._call(handle.host, "probe", pid=handle.pid, arguments=list(arguments))

    async def _call(self, host: str, verb: str, **arguments: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await self._agents.call(host, verb, **arguments)
        except DriverError as error:
            raise HostError(str(error)) from None
        return found
