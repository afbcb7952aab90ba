"""The driver for the hosts of a job: the agent of a node's host makes its namespaces. See `Driver` for the methods."""

from __future__ import annotations

from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.slurm.job import JobStep


class SlurmDriver(HostsDriver):
    """Agents that have ended do not begin again. If all have, the run ends."""

    async def watch(self, step: JobStep) -> None:
        """Break down when the step with the agents ends."""
        self.breakdown = await step.ended()
        self.lost.set()
