"""The control plane of nodes that run programs. A program knows nothing of edgebed, so the orchestrator answers for it.

A node registers when it was started. When the training starts, each program starts as soon as the programs that it
comes ``after`` are ready. What it prints for the record becomes messages (`orchestrator.drivers.printed`). A program
that fails takes its node down, and the restart policy of the run decides. The run is over when every program that
``ends_the_run`` has ended, or without such programs when all have.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from orchestrator import text
from orchestrator.drivers.allowance import Allowance
from orchestrator.drivers.base import OUT_OF_MEMORY, SIGNALLED, ProgramEnd, ReportsOutput, RunsPrograms
from orchestrator.drivers.printed import MARK, Lines, Printed
from orchestrator.drivers.program_state import PIECE, RUNS, Phase, Program, awaited, piece, shown
from orchestrator.errors import DriverError, HostError, OrchestratorError
from orchestrator.fabric.base import NodeHandle
from orchestrator.host import tail
from orchestrator.host.kernel.ports import is_loopback
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.nodes import KilledAtEnd, LinesDropped, ProgramEnded
from orchestrator.together import Tasks

LOOK_EVERY = 0.1  # s
FIRST_LOOK = 0.01  # s after the start of a program
VIRTUAL_BEATS = 5  # beats in virtual time between two readings of what programs use


Message = dict[str, Any]
Sent = tuple[str, Message]  # with the name of its node
Hold = tuple[str, NodeHandle | None]
Ending = tuple[str, str | None]


class Programs:
    """See `Control`, and the module's docstring. ``over``: why the run is over, and the error or None."""

    def __init__(self, plan: Plan, directory: RunDirectory, driver: RunsPrograms) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[Ending] = loop.create_future()
        self._driver = driver
        faults_by_round = any(fault.round is not None for fault in plan.faults)
        self._by_rounds = plan.stop.rounds is not None or faults_by_round
        self._leads: set[str] = set()
        self._printed: dict[str, Printed] = {}
        self._allowances: dict[str, Allowance] = {}
        for node in plan.nodes:
            if node.leads:
                self._leads.add(node.name)
            self._printed[node.name] = Printed(plan.stop.rounds)
            self._allowances[node.name] = Allowance(loop.time)
        self._holds: asyncio.Queue[Hold] = asyncio.Queue()
        self._nodes: dict[str, NodeHandle] = {}  # those that run
        self._started: set[str] = set()  # nodes with programs that may start
        self._stopping: set[str] = set()
        self._messages: asyncio.Queue[Sent] = asyncio.Queue()
        self._programs: dict[str, Program] = {}
        for program in plan.programs:
            log = directory.logs / f"{program.label}.log"
            self._programs[program.label] = Program(program, log)
        if isinstance(driver, ReportsOutput):
            driver.on_output = self._note_output
        self._beat = plan.timeouts.beat
        if plan.driver_kind.virtual:  # where the programs use no processor time, and each reading costs more
            self._beat *= VIRTUAL_BEATS
        self._used: dict[str, float] = {}  # processor time of each node, as reported
        self._tasks = Tasks()
        self._tasks.start(self._follow_nodes())
        self._tasks.start(self._follow_programs())
        self._tasks.start(self._report_usage())

    def hold(self, node: str, handle: NodeHandle | None) -> None:
        """Note that a node was started; None: it has ended."""
        self._holds.put_nowait((node, handle))

    async def messages(self) -> AsyncIterator[Sent]:
        while True:
            yield await self._messages.get()
            self._messages.task_done()

    async def send(self, node: str, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "start":
            self._started.add(node)
            self._start_what_can()
        elif kind in ("stop", "leave"):
            await self._stop(node)

    async def _stop(self, node: str) -> None:
        """Ask the programs of a node to end, and kill them after their grace."""
        self._stopping.add(node)
        for program in self._of(node):
            if program.phase in RUNS:
                with contextlib.suppress(OrchestratorError):  # its node has ended
                    await self._terminate(program)
        await self._release_if_idle(node)
        handle = self._nodes.get(node)
        if handle is not None:
            killing = self._kill_late(node, handle)
            self._tasks.start(killing)

    async def _terminate(self, program: Program) -> None:
        await self._driver.signal(program.plan, signal.SIGTERM)
        if program.paused:  # it handles the signal when it continues
            await self._driver.signal(program.plan, signal.SIGCONT)

    # Faults of single programs. OrchestratorError if one is not possible now

    async def crash(self, label: str, *, returns: bool) -> None:
        """Kill a program; its node continues. ``returns``: it starts again by `revive`."""
        program = self._running(label)
        program.fault = Phase.KILLED if returns else Phase.ENDED
        await self._driver.signal(program.plan, signal.SIGKILL)

    def revive(self, label: str) -> None:
        """Start a program again that a fault has killed, unless its node has restarted since, or ends."""
        program = self._programs[label]
        if program.fault is Phase.KILLED and program.phase is not Phase.KILLED:
            program.fault = Phase.WAITING  # its end is not known yet
        elif program.phase is Phase.KILLED:
            self._forget(program)
            self._start_what_can()

    async def pause(self, label: str) -> None:
        """Stop the processes of a program."""
        program = self._running(label)
        await self._driver.signal(program.plan, signal.SIGSTOP)
        program.paused = True

    async def resume(self, label: str) -> None:
        """Continue the processes of a program, if it is still paused."""
        program = self._programs[label]
        if program.paused and program.phase in RUNS:
            program.paused = False
            await self._driver.signal(program.plan, signal.SIGCONT)

    def _running(self, label: str) -> Program:
        program = self._programs[label]
        node_runs = program.plan.node in self._nodes
        if not node_runs or program.phase not in RUNS or program.gone:
            raise DriverError(f"the program {label} is not running but {program.phase.value}")
        return program

    async def close(self) -> None:
        """Stop watching the programs."""
        await self._tasks.cancel()

    # Nodes

    async def _follow_nodes(self) -> None:
        while True:
            node, handle = await self._holds.get()
            if handle is None:
                self._nodes.pop(node, None)
                for program in self._of(node):
                    await self._read_last(program, cut=True)
                continue
            self._nodes[node] = handle
            self._used[node] = 0.0
            self._started.discard(node)
            self._stopping.discard(node)
            for program in self._of(node):
                self._forget(program)
            self._tell(node, {"type": "register"})

    async def _report_usage(self) -> None:
        """Report what the processes of each node use, forever."""
        while True:
            await asyncio.sleep(self._beat)
            requested = dict(self._nodes)
            usage_by_node = await self._driver.usage(requested)
            for node, usage in usage_by_node.items():
                is_same = self._nodes.get(node) == requested[node]
                if not usage.rss or not is_same:
                    continue
                cpu = max(self._used[node], usage.cpu)  # that of a program leaves with it
                self._used[node] = cpu
                beat = {
                    "type": "beat",
                    "cpu": cpu,
                    "rss": usage.rss,
                    "memory_pss": usage.pss,
                }
                self._tell(node, beat)

    def _forget(self, program: Program) -> None:
        """Make a program ready for its next start."""
        program.cancel()
        program.phase = Phase.WAITING
        program.code = None
        program.gone = False
        program.fault = None
        program.paused = False
        program.read = tail.size(program.log)
        program.lines = Lines()
        program.said_ready = False

    def _of(self, node: str) -> list[Program]:
        programs = []
        for program in self._programs.values():
            if program.plan.node == node:
                programs.append(program)
        return programs

    async def _release_if_idle(self, node: str) -> None:
        programs = self._of(node)
        if any(program.phase in RUNS for program in programs):
            return
        done = {"type": "done", "reason": "stopped"}
        self._tell(node, done)
        with contextlib.suppress(OrchestratorError):
            await self._driver.release(node)

    async def _kill_late(self, node: str, handle: NodeHandle) -> None:
        """Kill the programs of a node that still run when the grace of each is over."""
        running = [program for program in self._of(node) if program.phase in RUNS]
        graces = [program.plan.stop_grace for program in running]
        grace = max(graces, default=0.0)
        await asyncio.sleep(grace)
        await asyncio.sleep(LOOK_EVERY)  # ends that have arrived while the orchestrator was busy are handled first
        late = [program for program in running if not program.gone]
        if not late or self._nodes.get(node) != handle:
            return
        for program in late:
            await self._read_last(program, cut=True)
        labels = [program.plan.label for program in late]
        killed = KilledAtEnd(programs=labels, grace=grace)
        self._tell(node, killed.to_message())
        with contextlib.suppress(OrchestratorError):
            await self._driver.release(node)

    # Starts

    def _start_what_can(self) -> None:
        for program in self._programs.values():
            if self._can_start(program):
                program.phase = Phase.RUNNING
                life = self._live_or_fail(program)
                program.life = self._tasks.start(life)

    def _can_start(self, program: Program) -> bool:
        plan = program.plan
        if program.phase is not Phase.WAITING:
            return False
        if plan.node not in self._started:
            return False
        if plan.node in self._stopping:
            return False
        for label in plan.after:
            if not self._is_ready(self._programs[label]):
                return False
        return True

    @staticmethod
    def _is_ready(program: Program) -> bool:
        if program.phase is Phase.READY:
            return True
        return program.phase is Phase.ENDED and program.code == 0

    async def _live_or_fail(self, program: Program) -> None:
        """The life of a program. An error of edgebed in it ends the run, which would wait for the program for ever."""
        try:
            await self._live(program)
        except OrchestratorError:
            raise  # of a lost host: its nodes are handled elsewhere
        except Exception as error:
            self._give_up(program, f"{type(error).__name__}: {error}")

    async def _live(self, program: Program) -> None:
        """Start a program, wait until it is ready, and read what it prints."""
        plan = program.plan
        ready = program.plan.ready
        try:
            await self._driver.run(plan, program.log)
        except HostError as error:
            self._give_up(program, str(error))
            return
        except OrchestratorError:
            return  # the node has ended, and its Exit follows
        if self._by_rounds and plan.node in self._leads:
            for message in self._printed[plan.node].begin():
                self._tell(plan.node, message)
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            await self._read(program)
            passed = loop.time() - start
            if program.phase is Phase.RUNNING:
                if await self._has_come_up(program, passed):
                    program.phase = Phase.READY
                    self._start_what_can()
                elif passed > ready.within and plan.node in self._nodes:
                    self._give_up(program, f"{awaited(program)} within {text.duration(ready.within)}")
                    return
            if program.phase is Phase.RUNNING:
                await asyncio.sleep(until_next_look(passed))
            else:
                await self._wait_for_output(program)

    async def _wait_for_output(self, program: Program) -> None:
        """Wait until the next look at the output of a program that is ready: it has printed, if the driver reports
        that, but at most once in ``LOOK_EVERY``."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        if isinstance(self._driver, ReportsOutput):
            await program.printed.wait()
            program.printed.clear()
        passed = loop.time() - looked
        if passed < LOOK_EVERY:
            await asyncio.sleep(LOOK_EVERY - passed)

    def _note_output(self, label: str) -> None:
        self._programs[label].printed.set()

    async def _has_come_up(self, program: Program, passed: float) -> bool:
        ready = program.plan.ready
        if ready.port is not None:
            handle = self._nodes.get(program.plan.node)
            if handle is None:
                return False
            addresses = await self._driver.listening_on(handle, ready.port)
            on_loopback = [address for address in addresses if is_loopback(address)]
            program.on_loopback = on_loopback[0] if on_loopback else ""
            only_on_loopback = len(on_loopback) == len(addresses)
            if only_on_loopback and self._awaited_elsewhere(program):
                return False
            return bool(addresses)
        if ready.line is not None:
            return program.said_ready
        return passed >= (ready.delay or 0)

    def _awaited_elsewhere(self, program: Program) -> bool:
        """Whether a program of another node waits for this one."""
        label = program.plan.label
        node = program.plan.node
        for other in self._programs.values():
            if label in other.plan.after and other.plan.node != node:
                return True
        return False

    def _give_up(self, program: Program, why: str) -> None:
        """End the run: a program that cannot start will not start the next time either."""
        plan = program.plan
        error = f"{shown(program)}: {why}"
        if plan.label != plan.node:
            error += f" (its log is `{plan.label}`)"
        failure = {"type": "failed", "error": error, "lasting": True}
        self._tell(plan.node, failure)

    # Output

    async def _read(self, program: Program) -> None:
        """Read the output of the program so far, and pass on what is for the record. Other work continues after each
        piece, and the next piece is read when the messages of the last one are taken."""
        end = tail.size(program.log)
        while program.read < end:
            start = program.read
            data = await asyncio.to_thread(piece, program.log, start)
            if program.read != start:
                continue  # another task has read it
            program.read += len(data)
            self._take_piece(program, data)
            await asyncio.sleep(0)
            await self._messages.join()

    def _take_piece(self, program: Program, data: bytes) -> None:
        """Take a piece of the output. Of a flood the lines are only counted."""
        node = program.plan.node
        ready_line = program.plan.ready.line
        allowance = self._allowances[node]
        wanted = [MARK]
        if ready_line is not None and not program.said_ready:
            wanted.append(ready_line)
        is_flood = len(data) == PIECE and wanted == [MARK]
        if is_flood and allowance.is_spent:
            marks = program.lines.pass_over(data)
            allowance.drop(marks)
        else:
            lines = program.lines.add(data, *wanted)
            self._take(program, lines)
        self._report_dropped(node, allowance.due())

    def _report_dropped(self, node: str, lines: int) -> None:
        if lines:
            dropped = LinesDropped(lines)
            self._tell(node, dropped.to_message())

    async def _read_last(self, program: Program, *, cut: bool) -> None:
        """Read the rest of what a program has printed. ``cut``: it was killed, perhaps within its last line."""
        if program.phase not in RUNS:
            return
        node = program.plan.node
        await self._read(program)
        rest = program.lines.end()
        self._take(program, rest, cut=cut)
        dropped = self._allowances[node].due(last=True)
        self._report_dropped(node, dropped)

    def _take(
        self,
        program: Program,
        lines: Iterable[str],
        *,
        cut: bool = False,
    ) -> None:
        node = program.plan.node
        ready = program.plan.ready.line
        printed = self._printed[node]
        allowance = self._allowances[node]
        for line in lines:
            if ready is not None and ready in line:
                program.said_ready = True
            if MARK not in line or not allowance.take(line):
                continue
            for message in printed.messages(line):
                is_unreadable = message["type"] == "unreadable"
                if cut and is_unreadable:
                    continue
                self._tell(node, message)

    # Ends

    async def _follow_programs(self) -> None:
        while True:
            end = await self._driver.ends.get()
            program = self._programs[end.program.label]
            program.gone = True
            program.cancel()
            self._tasks.start(self._ended(end))  # the rest of a long output keeps no other program waiting

    async def _ended(self, end: ProgramEnd) -> None:
        program = self._programs[end.program.label]
        plan = end.program
        node = end.program.node
        await self._read_last(program, cut=end.code < 0)
        if not program.gone:
            return  # its node has started again
        fault = program.fault
        program.fault = None
        program.phase = fault or Phase.ENDED
        program.code = end.code
        if node in self._stopping:
            await self._release_if_idle(node)
            return
        if self.over.done():
            return
        if fault is not None:
            self._killed_by_fault(program)
            return
        ended = ProgramEnded(plan.label, end.code)
        self._tell(node, ended.to_message())
        if end.code == 0:
            self._start_what_can()
            self._finish_if_over()
            return
        error = self._ending(program, end)
        if plan.ends_the_run:
            self._finish("failed", error)
            return
        failure = {"type": "failed", "error": error, "lasting": False}
        self._tell(node, failure)
        code = end.code
        if code < 0:  # a signal
            code = SIGNALLED - code
        with contextlib.suppress(OrchestratorError):
            await self._driver.release(node, code)

    def _killed_by_fault(self, program: Program) -> None:
        if program.phase is Phase.WAITING:  # the fault is over already
            self._forget(program)
            self._start_what_can()
        else:
            self._finish_if_over()

    def _finish_if_over(self) -> None:
        """End the run if the programs that end it have ended, or without such programs all have."""
        programs = list(self._programs.values())
        ending = [program for program in programs if program.plan.ends_the_run]
        if not ending:
            ending = programs
        if all(program.phase is Phase.ENDED for program in ending):
            self._finish("programs")

    def _ending(self, program: Program, end: ProgramEnd) -> str:
        how = text.how_ended(end.code)
        if end.out_of_memory:
            how = OUT_OF_MEMORY
        ending = f"{shown(program)} ended ({how})"
        return tail.with_last_line(ending, program.log)

    def _finish(self, reason: str, error: str | None = None) -> None:
        if not self.over.done():
            self.over.set_result((reason, error))

    def _tell(self, node: str, message: Message) -> None:
        self._messages.put_nowait((node, message))


def until_next_look(passed: float) -> float:
    """The seconds until it is looked again whether a program is ready that has run for ``passed`` seconds. Most are
    ready soon after their start, and others wait for them."""
    return min(LOOK_EVERY, max(FIRST_LOOK, passed / 4))
