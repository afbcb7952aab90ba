"""Moves of devices from one edge to another during a run.

The links of a device to all edges that it moves to are made at the start, and cut until it arrives. A device that runs
an algorithm says goodbye to its edge, ends, and starts again at the other one with its checkpoint. A device that runs
programs keeps them: only its links change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from orchestrator.drivers.base import Driver, Reassigns
from orchestrator.errors import DriverError
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import Plan
from orchestrator.record.events.run import EdgeChanged
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.processes import NodeProcesses, NodeState
from orchestrator.run.resume import NOTHING, Past
from orchestrator.scenario.sections.faults import MOVE
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import within

ELSEWHERE = "elsewhere"  # the cause of the cut of a link between a device and an edge that it is not at
Work = Coroutine[Any, Any, None]
GOODBYE = 10.0  # s for a device to end after it was asked to; then it is killed


class Moves:
    """Where the devices of a run are. ``elsewhere``: the links that were cut when the run began or was continued."""

    def __init__(
        self,
        plan: Plan,
        processes: NodeProcesses,
        links: Links,
        driver: Driver,
        spawn: Callable[[Work], None],
    ) -> None:
        """``spawn`` runs a coroutine concurrently, and handles its errors."""
        self._plan = plan
        self._processes = processes
        self._links = links
        self._driver = driver
        self._spawn = spawn
        self.elsewhere: list[Ends] | None = None
        self._edges = {node.name: node.parent for node in plan.nodes}
        self._goodbyes: dict[tuple[str, str], asyncio.Event] = {}  # by edge and device

    async def begin(self, past: Past = NOTHING) -> None:
        """Cut the links of devices to edges that they are not at. In a continued run, each starts where it was."""
        planned = {fault.id: fault for fault in self._plan.faults}
        moves = [span for span in past.faults if span.action == MOVE and span.start is not None]
        for span in sorted(moves, key=lambda span: span.start or 0.0):
            if span.by:
                fault = Fault.from_json(span.planned)
            else:
                fault = planned[span.id]
            self._edges[fault.node or ""] = fault.to
        for device in {span.target for span in moves}:
            self._start_later_processes(device, self._edges[device] or "")
        self.elsewhere = []
        for link in self._plan.links:
            if link.link_class == "device-edge" and not self._is_present(link.source, link.target):
                self.elsewhere.append((link.source, link.target))
        await self._links.cut(self.elsewhere, ELSEWHERE)

    def _is_present(self, source: str, target: str) -> bool:
        """Whether one end of a link between a device and an edge is now the edge of the other."""
        return target == self._edges[source] or source == self._edges[target]

    async def move(self, device: str, edge: str) -> EdgeChanged:
        """Move a device. OrchestratorError if that is not possible now."""
        state = self._processes.running(device)
        former = self._edges[device]
        assert former is not None, "validation lets devices of edges move alone"
        if former == edge:
            raise DriverError(f"{device} is at {edge} already")
        self._edges[device] = edge
        if not self._plan.programs:
            await self._say_goodbye(state, former, edge)
        former_links = [(device, former), (former, device)]
        await self._links.cut(former_links, ELSEWHERE)
        new_links = [(device, edge), (edge, device)]
        await self._links.mend(new_links, ELSEWHERE)
        if not self._plan.programs:
            self._start_later_processes(device, edge)
            self._spawn(self._processes.bring_back(state))  # the time of its start is not the fault's
        return EdgeChanged(device, former, edge)

    def goodbye_received(self, edge: str, device: str) -> None:
        """Note that an edge has received the goodbye of a device."""
        if (edge, device) in self._goodbyes:
            self._goodbyes[edge, device].set()

    def _start_later_processes(self, device: str, edge: str) -> None:
        """Give later processes of a device and of edges its present edge."""
        self._processes.reassign(lambda assignment: assignment.after_move(device, edge))
        if isinstance(self._driver, Reassigns):
            self._driver.after_move(device, edge)

    async def _say_goodbye(self, state: NodeState, former: str, edge: str) -> None:
        """Let a node end in order, and wait for its end, and for its edge to receive the goodbye."""
        device = state.plan.name
        goodbye = asyncio.Event()
        self._goodbyes[former, device] = goodbye
        await self._processes.ask_to_move(state, edge)
        has_ended = await within(GOODBYE, state.gone.wait())
        if not has_ended:
            await self._driver.kill(device)
            await state.gone.wait()
        await within(GOODBYE, goodbye.wait())
        del self._goodbyes[former, device]
