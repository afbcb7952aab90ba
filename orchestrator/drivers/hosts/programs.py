"""The driver for several hosts of a run with programs in its nodes: each node is a pod of its host's Engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
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

Handles = Mapping[str, NodeHandle]  # by node
HandlesOfHost = dict[str, NodeHandle]


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
        folder = Path(self._plan.folder)
        await asyncio.to_thread(pack, folder, self._archive)

    async def _send_files(self, host: str) -> None:
        place = Path(SCENARIO)
        await send_file(self._agents, host, self._archive, place)

    async def run(self, program: ProgramPlan, log: Path) -> None:
        host = self.homes[program.node]
        place = log.relative_to(self._directory.path)
        await self._agents.call(host, RunsPrograms.run, program, place)

    async def signal(self, program: ProgramPlan, number: int) -> None:
        host = self.homes[program.node]
        await self._agents.call(host, RunsPrograms.signal, program, number)

    async def release(self, node: str, code: int = 0) -> None:
        host = self.homes[node]
        await self._agents.call(host, RunsPrograms.release, node, code)

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        host = node.host
        with contextlib.suppress(DriverError):  # it is lost or slow: the next call asks again
            return await self._agents.call(host, RunsPrograms.listening_on, node, port)
        return []

    async def usage(self, nodes: Handles) -> dict[str, ProcessUsage]:
        usages: dict[str, ProcessUsage] = {}
        by_host: defaultdict[str, HandlesOfHost] = defaultdict(dict)
        for node, handle in nodes.items():
            by_host[handle.host][node] = handle

        async def read(host: str, own: Handles) -> None:
            with contextlib.suppress(DriverError):
                usage = await self._agents.call(host, RunsPrograms.usage, own)
                usages.update(usage)

        calls = [read(host, own) for host, own in by_host.items()]
        await asyncio.gather(*calls)
        return usages

    def hear(self, host: str, event: Message) -> None:
        match event:
            case {"name": "program", "label": str(label), "code": int(code)}:
                program = self._programs.get(label)
                if program is None:
                    return
                if self.homes[program.node] != host:
                    return
                out_of_memory = event.get("out_of_memory") is True
                end = ProgramEnd(program, code, out_of_memory)
                self._writer.then(self.ends.put_nowait, end)
            case _:
                super().hear(host, event)

    async def _finish(self, host: str) -> None:
        await super()._finish(host)
        for node in self._on(host):
            folder = self._directory.checkpoints_of(node)
            remote_folder = folder.relative_to(self._directory.path)
            try:
                await fetch(self._agents, host, remote_folder, folder)
            except (DriverError, OSError) as error:
                raise DriverError(f"the files of {node} were not fetched from {host}: {error}") from None
