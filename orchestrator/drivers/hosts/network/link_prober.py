"""Measurements between nodes on several hosts, see `Prober`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from orchestrator.drivers.hosts.agents.calls import HostResponders
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.link_prober import Prober


class HostsProber:
    """The agents of the nodes' hosts run the two ends."""

    def __init__(self, agents: Agents, mtu: int) -> None:
        self.mtu = mtu
        self._agents = agents

    @contextlib.asynccontextmanager
    async def responding(self, handle: NodeHandle, address: str) -> AsyncIterator[dict[str, Any]]:
        host = handle.host
        with _host_errors():
            ready, number = await self._agents.call(
                host,
                HostResponders.respond,
                handle,
                address,
            )
        try:
            yield ready
        finally:
            with _host_errors():
                await self._agents.call(host, HostResponders.dismiss, number)

    async def probe(self, handle: NodeHandle, arguments: Sequence[str]) -> dict[str, Any]:
        host = handle.host
        with _host_errors():
            return await self._agents.call(host, Prober.probe, handle, arguments)

    async def now(self, handle: NodeHandle) -> float:
        """The answer is assumed to be half of the round trip old."""
        host = handle.host
        start = time.time()
        with _host_errors():
            remote_time = await self._agents.call(host, Prober.now, handle)
        round_trip = time.time() - start
        return remote_time + round_trip / 2


@contextlib.contextmanager
def _host_errors() -> Iterator[None]:
    try:
        yield
    except DriverError as error:
        raise HostError(str(error)) from None
