"""The fakes of a driver and of a control plane. tests/conformance runs the suite of drivers over them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.drivers.base import Exit, HostChange, HostReadings, NodeMove, ProgramEnd
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host.kernel.usage import ProcessUsage
from orchestrator.planning.plan import NodePlan
from orchestrator.planning.programs import ProgramPlan


class FakeControl:
    """See `orchestrator.drivers.base.Control`. ``say`` puts in what a node says; ``sent`` has the types of messages,
    ``speeds`` each node's latest factor of its speed."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.sent: list[tuple[str, str]] = []
        self.speeds: dict[str, float] = {}

    async def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        while True:
            yield await self.said.get()

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        self.sent.append((node, message["type"]))
        if message["type"] == "slow":
            self.speeds[node] = message["factor"]

    def say(self, node: str, type: str, **fields: Any) -> None:
        self.said.put_nowait((node, {"type": type, **fields}))


class FakeDriver:
    """See `Driver` and `CanPause`: a node is a line in its log, and registers at the control plane when it starts.

    beat          seconds between a node's beats; None: it sends none
    early         exit codes of nodes that end as they start, by node
    silent        nodes that do not register
    lag           seconds that each signal takes: `kill` returns so long before the node ends, `pause` and `resume` so
                  long after their effect; by default a killed node ends before `kill` returns
    unreachable   nodes that no signal reaches: after ``lag`` seconds it fails
    started       each node that was started, in order
    assignments   the content of each node's assignment as it started; None if there was no file
    paused        the nodes that are paused
    running       the handles of the nodes that have not ended
    """

    name, breakdown = "fake", "the fake driver broke down"
    last_words = "Traceback\nValueError: of no use"

    def __init__(self, control: FakeControl, beat: float | None = None) -> None:
        self.control, self.beat = control, beat
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.early: dict[str, list[int]] = {}
        self.silent: set[str] = set()
        self.lag = 0.0
        self.unreachable: set[str] = set()
        self.started: list[str] = []
        self.assignments: dict[str, bytes | None] = {}
        self.paused: set[str] = set()
        self.running: dict[str, NodeHandle] = {}
        self._handles: dict[str, NodeHandle] = {}
        self._logs: dict[str, Path] = {}
        self._beating: set[asyncio.Task[None]] = set()

    async def open(self) -> None: ...

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        assert node.name not in self.running, f"{node.name} has a process already"
        self.started.append(node.name)
        self.assignments[node.name] = assignment.read_bytes() if assignment.exists() else None  # noqa: ASYNC240
        handle = self._handles[node.name] = self.running[node.name] = NodeHandle(100 + len(self.started))
        self._logs[node.name] = log
        self._print(node.name, f"{node.name} at {node.address}")
        if codes := self.early.get(node.name):
            self._print(node.name, self.last_words)
            self.end(node.name, codes.pop(0))
        elif node.name not in self.silent:
            self.control.say(node.name, "register")
            if self.beat is not None:
                self._beating.add(asyncio.create_task(self._beat(node.name, self.beat)))
        return handle

    async def _beat(self, node: str, seconds: float) -> None:
        while node in self.running:
            await asyncio.sleep(seconds)
            if node not in self.paused:
                self.control.say(node, "beat")

    def end(self, node: str, code: int, *, out_of_memory: bool = False) -> None:
        """A node ends."""
        self.running.pop(node, None)
        self.paused.discard(node)
        self.exits.put_nowait(Exit(node, self._handles[node], code, out_of_memory))

    async def kill(self, node: str) -> None:
        await self._reach(node)
        self._print(node, "killed")
        if self.lag:
            asyncio.get_running_loop().call_later(self.lag, self._killed, node, self.running[node])
        else:
            self.end(node, -9)
            await asyncio.sleep(0.01)  # its end is reported before this returns

    def _killed(self, node: str, handle: NodeHandle) -> None:
        if self.running.get(node) == handle:
            self.end(node, -9)

    async def pause(self, node: str) -> None:
        await self._reach(node)
        self.paused.add(node)
        await self._return()

    async def resume(self, node: str) -> None:
        await self._reach(node)
        self.paused.discard(node)
        await self._return()

    async def _reach(self, node: str) -> None:
        if node not in self.running:
            raise DriverError(f"{node} does not run")
        if node in self.unreachable:
            await self._return()
            raise DriverError(f"the host of {node} does not answer")

    async def _return(self) -> None:
        if self.lag:
            await asyncio.sleep(self.lag)

    def notes(self) -> list[str]:
        return ["a note"]

    async def close(self) -> None:
        self.running.clear()
        for task in self._beating:
            task.cancel()
        await asyncio.gather(*self._beating, return_exceptions=True)

    def _print(self, name: str, line: str) -> None:
        with self._logs[name].open("a") as log:
            log.write(f"{line}\n")


class FakeHostsDriver(FakeDriver):
    """See `UsesHosts`. No host is lost, and none has a sensor."""

    here = False

    def __init__(self, control: FakeControl) -> None:
        super().__init__(control)
        self.news: asyncio.Queue[HostChange | NodeMove | HostReadings] = asyncio.Queue()

    async def ready(self, node: str) -> str | None:
        return None

    async def forget(self, node: str) -> None:
        pass

    async def sense(self) -> None:
        pass


class FakeProgramsDriver(FakeDriver):
    """See `RunsPrograms`. A program prints its label, and again when it is to end.

    requests    each request, in order
    programs    those that it has started, by label
    refuses     why it starts no program; "": it starts each
    stubborn    labels of programs that SIGTERM does not end
    ports       on which the programs of each node listen, with the addresses
    """

    def __init__(self, refuses: str = "") -> None:
        super().__init__(FakeControl())
        self.ends: asyncio.Queue[ProgramEnd] = asyncio.Queue()
        self.requests: list[tuple[Any, ...]] = []
        self.refuses, self.stubborn = refuses, set[str]()
        self.ports: dict[int, list[str]] = {}
        self.programs: dict[str, ProgramPlan] = {}

    async def run(self, program: ProgramPlan, log: Path) -> None:
        if self.refuses:
            raise HostError(self.refuses)
        self.requests.append(("run", program.label))
        self.programs[program.label], self._logs[program.label] = program, log
        self._print(program.label, program.label)

    async def signal(self, program: ProgramPlan, number: int) -> None:
        self.requests.append((signal.Signals(number).name, program.label))
        if number == signal.SIGKILL:
            self.end_program(program.label, -number)
        if number == signal.SIGTERM and program.label not in self.stubborn:
            self._print(program.label, program.label)
            self.end_program(program.label, -number)

    def end_program(self, label: str, code: int) -> None:
        self.ends.put_nowait(ProgramEnd(self.programs[label], code))

    async def release(self, node: str, code: int = 0) -> None:
        self.requests.append(("release", node, code))

    async def listening_on(self, node: NodeHandle, port: int) -> list[str]:
        self.requests.append(("listening_on", node.pid, port))
        return self.ports.get(port, [])

    async def usage(self, nodes: Mapping[str, NodeHandle]) -> Mapping[str, ProcessUsage]:
        return {name: ProcessUsage(cpu=0.5, rss=handle.pid) for name, handle in nodes.items()}
