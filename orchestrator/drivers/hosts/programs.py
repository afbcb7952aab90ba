"""The driver for several hosts of a run whose nodes run programs: each is a pod of its host's Engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from orchestrator.drivers.base import ProgramEnd, RunsPrograms
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.settings import SCENARIO
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.outage import OutageTimeouts
from orchestrator.drivers.hosts.transfers.files import fetch, send_file
from orchestrator.drivers.surroundings import quota_notes
from orchestrator.errors import DriverError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.kernel.usage import ProcessUsage
from orchestrator.planning.copies.scenario_folder import pack
from orchestrator.planning.plan import Plan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.record.directory import RunDirectory


class HostsProgramsDriver(HostsDriver):
    """See `Driver`, `CanPause` and `RunsPrograms`. Each host gets a copy of the scenario's folder from the start of the
    run. At the end the files of nodes are fetched; those of a lost host are lost."""

    def __init__(self, plan: Plan, directory: RunDirectory, timeouts: OutageTimeouts | None = None) -> None:
        super().__init__(plan, directory, timeouts)
        self.ends: asyncio.Queue[ProgramEnd] = asyncio.Queue()
        self._programs = {program.label: program for program in plan.programs}
        self._archive = directory.nodes / SCENARIO
        self.note(*quota_notes(plan))

    async def _prepare(self) -> None:
        await asyncio.to_thread(pack, Path(self._plan.folder), self._archive)

    async def _send_files(self, host: str) -> None:
        await send_file(self._agents, host, self._archive, Path(SCENARIO))

    async def run(self, program: ProgramPlan, log: Path) -> None:
        place = log.relative_to(self._directory.path)
        await self._agents.call(self.homes[program.node], RunsPrograms.run, program, place)

    async def signal(self, program: ProgramPlan, number: int) -> None:
        await self._agents.call(self.homes[program.node], RunsPrograms.signal, program, number)

    async def release(self, node: str, code: int = 0) -> None:
        await self._agents.call(self.homes[node], RunsPrograms.release, node, code)

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        with contextlib.suppress(DriverError):  # its host is lost, or slow: it is asked again
            return await self._agents.call(node.host, RunsPrograms.listening_on, node, port)
        return []

    async def usage(self, nodes: Mapping[str, NodeHandle]) -> dict[str, ProcessUsage]:
        found: dict[str, ProcessUsage] = {}

        async def of(host: str) -> None:
            own = {node: handle for node, handle in nodes.items() if handle.host == host}
            with contextlib.suppress(DriverError):
                found.update(await self._agents.call(host, RunsPrograms.usage, own))

        await asyncio.gather(*(of(host) for host in {handle.host for handle in nodes.values()}))
        return found

    def hear(self, host: str, event: Message) -> None:
        match event:
            case {"name": "program", "label": str(label), "code": int(code)} if label in self._programs:
                program = self._programs[label]
                lack = event.get("out_of_memory") is True
                if self.homes[program.node] == host:
                    self._writer.then(self.ends.put_nowait, ProgramEnd(program, code, lack))
            case _:
                super().hear(host, event)

    async def _finish(self, host: str) -> None:
        await super()._finish(host)
        for node in self._on(host):
            kept = self._directory.checkpoints_of(node)
            try:
                await fetch(self._agents, host, kept.relative_to(self._directory.path), kept)
            except (DriverError, OSError) as error:
                raise DriverError(f"the files of {node} were not fetched from {host}: {error}") from None
