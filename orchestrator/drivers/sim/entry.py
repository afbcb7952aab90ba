"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry`.

The simulation needs torch, whose import takes seconds, so only `open_environment` imports it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from orchestrator.drivers.base import Environment, Tell
from orchestrator.errors import HostError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.training_devices import missing_here
from orchestrator.planning.assignments import assignments
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan

FIRST = 64  # open files of the orchestrator, with a reserve: at most 40 were counted
OF_A_WORKER = 4


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors for PyTorch and accelerators: a simulation needs nothing else."""
    return [] if plan is None else missing_here(plan.accelerators)


def open_files(plan: Plan, workers: int) -> int:
    return FIRST + OF_A_WORKER * workers


async def open_environment(
    plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int, tell: Tell
) -> Environment:
    """Make the driver, the links and the control plane, all in this process."""
    from orchestrator.drivers.sim.simulation import Simulation

    simulation = Simulation(plan, assignments(plan, directory, RunKeys.none(), address=""), workers)
    stack.push_async_callback(simulation.driver.close)
    return Environment(simulation.driver, simulation.fabric, simulation.control)
