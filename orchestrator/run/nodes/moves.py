"""Moves of devices from one edge to another during a run.

The links of a device to all edges that it moves to are made at the start, and cut until it arrives. A device that runs
an algorithm says goodbye to its edge, ends, and starts again at the other one with its checkpoint. A device that runs
programs keeps them: only its links change.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from node.assignment import Assignment
from orchestrator.drivers.base import Driver, Reassigns
from orchestrator.errors import DriverError
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import Plan
from orchestrator.record.events.run import EdgeChanged
from orchestrator.record.rows import FaultSpan
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.processes import NodeProcesses, NodeState
from orchestrator.run.resume import NOTHING, Past
from orchestrator.scenario.sections.faults import MOVE
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import within

ELSEWHERE = "elsewhere"  # the cause of the cut of a link between a device and an edge that it is not at
Work = Coroutine[Any, Any, None]
GOODBYE = 10.0  # s for a device to end after the request; then it is killed


class Moves:
    """Where the devices of a run are. ``elsewhere``: the links that were cut when the run started or was continued."""

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
        self._goodbyes: dict[Ends, asyncio.Event] = {}  # by edge and device

    async def begin(self, past: Past = NOTHING) -> None:
        """Cut the links of devices to edges that they are not at. In a continued run, each starts where it was."""
        self._repeat_moves(past.faults)
        self.elsewhere = []
        for link in self._plan.links:
            if link.link_class != "device-edge":
                continue
            if not self._is_present(link.source, link.target):
                pair = (link.source, link.target)
                self.elsewhere.append(pair)
        await self._links.cut(self.elsewhere, ELSEWHERE)

    def _repeat_moves(self, faults: Iterable[FaultSpan]) -> None:
        """Start with the edges after the moves of a continued run."""
        planned = {fault.id: fault for fault in self._plan.faults}
        moves = []
        for span in faults:
            if span.action == MOVE and span.start is not None:
                moves.append((span.start, span))
        moves.sort(key=operator.itemgetter(0))
        for _, span in moves:
            if span.by:
                fault = Fault.from_json(span.planned)
            else:
                fault = planned[span.id]
            self._edges[fault.node or ""] = fault.to
        for device in {span.target for _, span in moves}:
            edge = self._edges[device] or ""
            self._start_later_processes(device, edge)

    def _is_present(self, source: str, target: str) -> bool:
        """Whether one end of a link between a device and an edge is now the edge of the other."""
        edge_of_source = self._edges[source]
        edge_of_target = self._edges[target]
        return edge_of_source == target or edge_of_target == source

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
            bringing_back = self._processes.bring_back(state)
            self._spawn(bringing_back)  # the time of its start is not the fault's
        return EdgeChanged(device, former, edge)

    def goodbye_received(self, edge: str, device: str) -> None:
        """Note that an edge has received the goodbye of a device."""
        if (edge, device) in self._goodbyes:
            self._goodbyes[edge, device].set()

    def _start_later_processes(self, device: str, edge: str) -> None:
        """Give later processes of a device and of edges its present edge."""

        def moved(assignment: Assignment) -> Assignment:
            return assignment.after_move(device, edge)

        self._processes.reassign(moved)
        if isinstance(self._driver, Reassigns):
            self._driver.after_move(device, edge)

    async def _say_goodbye(
        self,
        state: NodeState,
        former: str,
        edge: str,
    ) -> None:
        """Let a node end in order, and wait for its end, and for its edge to receive the goodbye."""
        device = state.name
        goodbye = asyncio.Event()
        self._goodbyes[former, device] = goodbye
        await self._processes.ask_to_move(state, edge)
        has_ended = await within(GOODBYE, state.gone.wait())
        if not has_ended:
            await self._driver.kill(device)
            await state.gone.wait()
        await within(GOODBYE, goodbye.wait())
        del self._goodbyes[former, device]
