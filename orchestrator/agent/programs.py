"""The programs of nodes on an agent's host, see `orchestrator.drivers.base.RunsPrograms`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.drivers.base import Driver, RunsPrograms
from orchestrator.drivers.swarm.plain import program_of
from orchestrator.errors import DriverError
from orchestrator.fabric.base import Handle
from orchestrator.host.directory import RunDirectory


class Programs:
    """The verbs for programs. ``driver`` and ``directory`` are those of the run that is open here."""

    def __init__(self, driver: Callable[[], Driver], directory: Callable[[], RunDirectory]) -> None:
        self._driver, self._directory = driver, directory

    async def run(self, program: Mapping[str, Any]) -> None:
        """Start a program. Its output goes into the log of its label."""
        planned = program_of(program)
        await self._able.run(planned, self._directory().logs / f"{planned.label}.log")

    async def terminate(self, program: Mapping[str, Any]) -> None:
        await self._able.terminate(program_of(program))

    async def release(self, node: str, code: int) -> None:
        await self._able.release(node, code)

    async def listens(self, pid: int, port: int) -> bool:
        """Whether a program listens on a TCP port in the node of this process."""
        return await self._able.listens(Handle(pid), port)

    async def usage(self, nodes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """What the processes of nodes use. ``nodes``: the process of each."""
        found = await self._able.usage({node: Handle(pid) for node, pid in nodes.items()})
        return {node: asdict(used) for node, used in found.items()}

    @property
    def _able(self) -> RunsPrograms:
        driver = self._driver()
        if not isinstance(driver, RunsPrograms):
            raise DriverError("the nodes of this run have roles of an algorithm, and run no programs")
        return driver
