"""The driver for the hosts of a job: the agent of a node's host makes its namespaces. See `Driver` for the methods."""

from __future__ import annotations

from orchestrator.drivers.slurm.job import JobStep
from orchestrator.drivers.swarm.driver import SwarmDriver


class SlurmDriver(SwarmDriver):
    """Agents that have ended do not begin again. If all have, the run ends."""

    name = "slurm"

    async def watch(self, step: JobStep) -> None:
        """Break down when the step with the agents ends."""
        self.breakdown = await step.ended()
        self.lost.set()
