"""Run the two ends of a measurement (`netem.measurement.endpoints`) in the network namespaces of two nodes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from netem.measurement.endpoints import respond_arguments
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import MTU
from orchestrator.host.process import python

Output = dict[str, Any]
"""What an end of a measurement has printed."""


class Prober(Protocol):
    """Starts the two ends of a measurement. HostError; ValueError for no answer. ``mtu``: a node's largest packet."""

    mtu: int

    def responding(self, handle: NodeHandle, address: str) -> AbstractAsyncContextManager[Output]:
        """Answer at a node's ``address`` while the body runs. Gives what the responder printed when it was ready."""

    async def probe(self, handle: NodeHandle, arguments: Sequence[str]) -> Output:
        """Run a probe with the arguments from `netem.measurement.endpoints.probe_arguments`. Returns its
        `netem.measurement.probe_plan.Measurement` as a mapping."""

    async def now(self, handle: NodeHandle) -> float:
        """The time on the clock of the node's host, as time.time() has it there."""


class HubProber:
    """See Prober: the nodes are processes of the hub's host."""

    mtu = MTU

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @contextlib.asynccontextmanager
    async def responding(self, handle: NodeHandle, address: str) -> AsyncIterator[Output]:
        command = python.module("netem.measurement.endpoints", *respond_arguments(address))
        pid = handle.pid
        responder = await self._hub.spawn(command, pid=pid, errors=None)
        assert responder.stdin is not None
        assert responder.stdout is not None
        try:
            line = await responder.stdout.readline()
            ready: Output = json.loads(line)
            yield ready
        finally:
            responder.stdin.close()
            await responder.wait()

    async def probe(self, handle: NodeHandle, arguments: Sequence[str]) -> Output:
        command = python.module("netem.measurement.endpoints", *arguments)
        output = await self._hub.run(command, pid=handle.pid)
        measurement: Output = json.loads(output)
        return measurement

    async def now(self, handle: NodeHandle) -> float:
        return time.time()
