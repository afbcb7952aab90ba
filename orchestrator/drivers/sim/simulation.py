"""A simulated system: driver, links and control plane of one run, in this process."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from node.assignment import Assignment
from node.process.main import keep_freed_memory
from orchestrator.drivers.sim.driver import SimDriver
from orchestrator.drivers.sim.nodes import Nodes
from orchestrator.drivers.sim.virtual_control import MemoryControl
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.planning.plan import Plan


class Simulation:
    """A simulated system with ``workers`` training processes. The results do not depend on their number."""

    def __init__(self, plan: Plan, assignments: Mapping[str, Assignment], workers: int) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.fabric = ModelFabric(plan.timeouts)
        self.control = MemoryControl()
        nodes = Nodes(plan, assignments, self.fabric, self.control, workers)
        self.driver = SimDriver(nodes, self.fabric.network, self.control)
