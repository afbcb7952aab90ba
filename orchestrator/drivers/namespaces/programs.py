"""The namespaces driver of a run with programs in its nodes: each node is a holder, see `node.process.holder`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.drivers.base import ProgramEnd
from orchestrator.drivers.namespaces.driver import NamespacesDriver
from orchestrator.drivers.output import Pipe
from orchestrator.drivers.surroundings import NodesHere, addresses, kernel_notes, quota_notes, write_hosts
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.planning.programs import ProgramPlan
from orchestrator.record.directory import RunDirectory


class HoldersDriver(NodesHere, NamespacesDriver):
    """See `Driver`, `CanPause`, `RunsPrograms` and `ReportsOutput` for the methods."""

    def __init__(self, hub: Hub, directory: RunDirectory, plan: Plan) -> None:
        super().__init__(hub, directory, Path())
        self.ends: asyncio.Queue[ProgramEnd] = asyncio.Queue()
        self.on_output: Callable[[str], object] = lambda _label: None
        self._programs = {program.label: program for program in plan.programs}
        self._pipes: dict[str, Pipe] = {}  # of each program that was started
        self._folder = plan.folder
        self._hosts = directory.nodes / "hosts"
        write_hosts(self._hosts, addresses(plan))
        self._notes += [*quota_notes(plan), *kernel_notes()]

    async def run(self, program: ProgramPlan, log: Path) -> None:
        directory = self._directory
        files = directory.checkpoints_of(program.node)
        files.mkdir(exist_ok=True)
        placed = program.with_files(str(files))
        of_run = labels(directory.run, directory.path, "node")
        environment = {**os.environ, **placed.environment, **of_run}
        if program.label in self._pipes:
            self._pipes[program.label].close()
        copied = partial(self._report_output, program.label)
        pipe = Pipe(directory.nodes / f"{program.label}.output", log, copied)
        self._pipes[program.label] = pipe
        answer = await self._order(
            "run",
            program.node,
            program=program.label,
            argv=placed.command,
            environment=environment,
            folder=self._folder,
            log=str(pipe.path),
            follow=not program.ends_the_run,
        )
        if "refused" in answer:
            raise HostError(f"it cannot be started ({answer['refused']})")
        pipe.start()

    def _report_output(self, label: str) -> None:
        self.on_output(label)

    async def signal(self, program: ProgramPlan, number: int) -> None:
        await self._order(
            "signal",
            program.node,
            program=program.label,
            number=number,
        )

    async def release(self, node: str, code: int = 0) -> None:
        await self._order("release", node, code=code)

    async def close(self) -> None:
        await super().close()
        for pipe in self._pipes.values():
            pipe.close()

    async def pause(self, node: str) -> None:
        await self._order("signal", node, number=signal.SIGSTOP)

    async def resume(self, node: str) -> None:
        await self._order("signal", node, number=signal.SIGCONT)

    def _view(self) -> dict[str, Any] | None:
        return None

    def _rights(self, node: NodePlan) -> dict[str, Any]:
        user = None
        if not self._hub.privileged:
            user = [os.getuid(), os.getgid()]
        return {"hosts": str(self._hosts), "user": user}

    def _cores(self, node: NodePlan) -> float | None:
        return node.hardware.quota

    async def _order(
        self,
        op: str,
        node: str,
        **fields: Any,
    ) -> dict[str, Any]:
        assert self._server is not None
        return await self._server.request(op, node=node, **fields)

    def _handle_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "program":
            label = event["program"]
            self._pipes[label].drain()  # its last output comes first
            program = self._programs[label]
            code = event["code"]
            out_of_memory = self._out_of_memory(program.node, code)
            end = ProgramEnd(program, code, out_of_memory)
            self.ends.put_nowait(end)
            return
        super()._handle_event(event)
        if event["event"] == "exit":
            for label, pipe in self._pipes.items():
                program = self._programs[label]
                if program.node == event["node"]:
                    pipe.close()
