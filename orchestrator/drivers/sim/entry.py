"""What the orchestrator asks of this driver before and at the beginning of a run.

The simulation needs torch, which takes seconds to import, so the function that opens it imports it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from orchestrator.drivers.base import Environment
from orchestrator.errors import HostError
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.assignments import assignments
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import Plan

FIRST = 64  # files of the orchestrator, and some to spare: at most 40 were counted
OF_A_WORKER = 4


def missing() -> list[HostError]:
    """A simulation needs Python only."""
    return []


def open_files(plan: Plan, workers: int) -> int:
    return FIRST + OF_A_WORKER * workers


async def open_environment(plan: Plan, directory: RunDirectory, stack: AsyncExitStack, workers: int) -> Environment:
    """Driver, links and control plane, all in this process."""
    from orchestrator.drivers.sim.simulation import Simulation

    simulation = Simulation(plan, assignments(plan, directory, RunKeys.none(), address=""), workers)
    stack.push_async_callback(simulation.driver.close)
    return Environment(simulation.driver, simulation.fabric, simulation.control)
