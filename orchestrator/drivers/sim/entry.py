"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry`.

The simulation needs torch. Its import takes seconds, so only `open_environment` imports it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from node.errors import CheckpointError
from orchestrator.drivers.base import Environment, Tell
from orchestrator.errors import HostError, RunError
from orchestrator.host.training_devices import missing_here
from orchestrator.planning.assignments import assignments
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors for PyTorch and accelerators: a simulation needs nothing else."""
    if plan is None:
        return []
    return missing_here(plan.accelerators)


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Make the driver, the links and the control plane, all in this process. The results do not depend on the number
    of ``workers``."""
    import torch

    from node.process.main import keep_freed_memory
    from orchestrator.drivers.sim.driver import SimDriver
    from orchestrator.drivers.sim.nodes import Nodes
    from orchestrator.drivers.sim.virtual_control import MemoryControl
    from orchestrator.drivers.sim.virtual_fabric import ModelFabric

    torch.set_num_threads(1)
    keep_freed_memory()
    fabric = ModelFabric(plan.timeouts)
    control = MemoryControl()
    assigned = assignments(plan, directory, RunKeys.none(), address="")
    try:
        nodes = Nodes(plan, assigned, fabric, control, workers)
    except CheckpointError as error:
        raise RunError(f"{directory.run} cannot be continued: {error}") from None
    driver = SimDriver(nodes, fabric.network, control)
    stack.push_async_callback(driver.close)
    return Environment(driver, fabric, control)
