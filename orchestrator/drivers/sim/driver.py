"""The driver with nodes that are coroutines on a virtual clock."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from pathlib import Path

from node.messaging.memory import MemoryNetwork
from orchestrator.drivers.base import Exit
from orchestrator.drivers.sim.nodes import Nodes, SimulatedNode, note_failure
from orchestrator.drivers.sim.virtual_control import MemoryControl
from orchestrator.errors import DriverError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.training_devices import notes_here
from orchestrator.planning.plan import NodePlan

FAILED = 1
KILLED = -9

Alive = tuple[SimulatedNode, asyncio.Task[int]]


class SimDriver:
    """See `orchestrator.drivers.base.Driver`. The process id in a node's handle is a plain counter, not a process's."""

    name = "sim"
    breakdown = ""  # this driver cannot break down

    def __init__(self, nodes: Nodes, network: MemoryNetwork, control: MemoryControl) -> None:
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self._nodes = nodes
        self._network = network
        self._control = control
        self._ids = itertools.count(1)
        self._alive: dict[str, Alive] = {}

    async def open(self) -> None:
        """Do nothing: there is nothing to warm up."""

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        handle = NodeHandle(next(self._ids))
        try:
            simulated = self._nodes.make(node.name)
        except Exception as error:
            # The model or algorithm may be the user's. A node's process would end with this error too.
            note_failure(log, error)
            self._control.leave(node.name)
            failure = Exit(node.name, handle, FAILED)
            self.exits.put_nowait(failure)
            return handle
        task = asyncio.create_task(simulated.live(log), name=node.name)
        ended = partial(self._ended, node.name, handle)
        task.add_done_callback(ended)
        self._alive[node.name] = simulated, task
        return handle

    def after_move(self, device: str, edge: str) -> None:
        self._nodes.after_move(device, edge)

    async def kill(self, node: str) -> None:
        _, task = self._find(node)
        task.cancel()

    async def pause(self, node: str) -> None:
        self._freeze(node, True)

    async def resume(self, node: str) -> None:
        self._freeze(node, False)

    def notes(self) -> list[str]:
        of_accelerators = notes_here(self._nodes.accelerators)
        return [*self._nodes.notes, *of_accelerators]

    async def close(self) -> None:
        tasks = [task for _, task in self._alive.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._nodes.workers.close()

    def _ended(self, node: str, handle: NodeHandle, task: asyncio.Task[int]) -> None:
        self._control.leave(node)
        del self._alive[node]
        if task.cancelled():
            code = KILLED
        elif task.exception():
            code = FAILED
        else:
            code = task.result()
        end = Exit(node, handle, code)
        self.exits.put_nowait(end)

    def _freeze(self, node: str, frozen: bool) -> None:
        simulated, _ = self._find(node)
        simulated.compute.freeze(frozen)
        self._network.freeze(node, frozen)

    def _find(self, node: str) -> Alive:
        if node not in self._alive:
            raise DriverError(f"{node} is not running")
        return self._alive[node]
