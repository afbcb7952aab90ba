"""Moves of devices from one edge to another while a run goes on.

The links of a device to all edges that it moves to are made at the start, and cut until it comes. A device that runs an
algorithm says goodbye to its edge, ends, and starts again at the other one with its checkpoint. A device that runs
programs keeps them: only its links change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from orchestrator.drivers.base import Driver, Reassigns
from orchestrator.errors import DriverError
from orchestrator.planning.plan import Plan
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.processes import NodeProcesses, NodeState
from orchestrator.together import within

MOVED = "new edge"  # the orchestrator's event, with the data of `Moves.move`
ELSEWHERE = "elsewhere"  # the cause of the cut of a link between a device and an edge that it is not at
Work = Coroutine[Any, Any, None]
GOODBYE = 10.0  # s for a device to end after it was asked to; then it is killed


class Moves:
    """Where the devices of a run are."""

    def __init__(
        self, plan: Plan, processes: NodeProcesses, links: Links, driver: Driver, spawn: Callable[[Work], None]
    ) -> None:
        """``spawn`` runs a coroutine concurrently, and handles its errors."""
        self._plan, self._processes, self._links, self._driver = plan, processes, links, driver
        self._spawn = spawn
        self._edges = {node.name: node.parent for node in plan.nodes}
        self._goodbyes: dict[tuple[str, str], asyncio.Event] = {}  # by edge and device
        self._waiting = [(link.source, link.target) for link in plan.links if link.waits]

    async def begin(self) -> None:
        """Cut the links of devices to edges that they are not at."""
        await self._links.cut(self._waiting, ELSEWHERE)

    async def move(self, device: str, edge: str) -> dict[str, Any]:
        """Move a device. Returns the ``node`` and its edges, ``from`` and ``to``. OrchestratorError if that is not
        possible now."""
        state, former = self._processes.running(device), self._edges[device]
        assert former is not None, "validation lets devices of edges move alone"
        if former == edge:
            raise DriverError(f"{device} is at {edge} already")
        self._edges[device] = edge
        if not self._plan.programs:
            await self._say_goodbye(state, former, edge)
        await self._links.cut([(device, former), (former, device)], ELSEWHERE)
        await self._links.mend([(device, edge), (edge, device)], ELSEWHERE)
        if not self._plan.programs:
            self._processes.reassign(lambda each: each.after_move(device, edge))
            if isinstance(self._driver, Reassigns):
                self._driver.after_move(device, edge)
            self._spawn(self._processes.bring_back(state))  # the time of its start is not the fault's
        return {"node": device, "from": former, "to": edge}

    def heard(self, edge: str, device: str) -> None:
        """Note that an edge has received the goodbye of a device."""
        if (edge, device) in self._goodbyes:
            self._goodbyes[edge, device].set()

    async def _say_goodbye(self, state: NodeState, former: str, edge: str) -> None:
        """Let a node end in order, and wait for its end, and for its edge to know of it."""
        device = state.plan.name
        goodbye = self._goodbyes[former, device] = asyncio.Event()
        await self._processes.ask_to_move(state, edge)
        if not await within(GOODBYE, state.gone.wait()):
            await self._driver.kill(device)
            await state.gone.wait()
        await within(GOODBYE, goodbye.wait())
        del self._goodbyes[former, device]
