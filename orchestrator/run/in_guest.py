"""Execute a run in a guest in virtual time, see `orchestrator.drivers.virtual.guest`.

The guest executes the run as a host does (`orchestrator.guest`). This side writes what the guest reports to the run's
record and to its view, and passes commands of the user on. The record is complete until the guest's last message, also
if the guest is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from orchestrator import text
from orchestrator.drivers.virtual import guest
from orchestrator.drivers.virtual.kernel import needed_kernel
from orchestrator.errors import HostError
from orchestrator.host.process.signals import Interruption
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.run.context import RunContext
from orchestrator.run.control.commands import accept_commands
from orchestrator.run.display.snapshot import Snapshot, View
from orchestrator.run.down import clear
from orchestrator.run.options import RunOptions
from orchestrator.run.outcome import until_outcome
from orchestrator.run.preparation import provide
from orchestrator.run.resume import Past
from orchestrator.run.tasks import Ending

LOOK_EVERY = 0.02  # s between two looks at the guest's messages
END_PATIENCE = 15.0  # s for a guest to end in order; less than `down` gives the orchestrator
LOG = "guest"
TIMED = ("event", "metric", "state", "fault")
"""The tables with the run's clock in the first column."""


async def execute_in_guest(
    plan: Plan,
    directory: RunDirectory,
    record: Record,
    interruption: Interruption,
    holding: contextlib.ExitStack,
    options: RunOptions,
    view: View,
    past: Past | None = None,
) -> Ending:
    """As `orchestrator.run.lifecycle.execute`. HostError if the guest refuses a fresh run; then nothing was started."""
    side = HostSide(plan, directory, record, view)
    listener = options.listener
    if listener is not None:
        record.subscribers.append(listener.receive)
        listener.end = side.fail

    def clock() -> float:
        return side.t

    def work() -> Coroutine[Any, Any, Ending]:
        return side.execute(options, past)

    try:
        return await until_outcome(directory, record, interruption, holding, past, clock, work, side.end)
    finally:
        clear(directory.run, directory, trackers=False)


class HostSide:
    """This side of a run in a guest. ``t``: the run's clock, by the guest's latest message."""

    def __init__(self, plan: Plan, directory: RunDirectory, record: Record, view: View) -> None:
        self.t = 0.0
        self._plan = plan
        self._directory = directory
        self._record = record
        self._view = view
        self._process: asyncio.subprocess.Process | None = None
        self._unsent: list[bytes] | None = []  # orders until the guest listens: it discards what came before
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ending: Ending | None = None
        self._patient_until: float | None = None  # on the host's clock, for a guest that was asked to end
        self._failure = ""
        self._refusal = ""
        self._begun = False
        view.keep_time(lambda: self.t)

    def end(self) -> None:
        """Ask the guest to end the run in order. A guest that does not is killed: a program may stop its clock."""
        if self._patient_until is None:
            self._patient_until = time.monotonic() + END_PATIENCE
        self._send({"do": "end"})

    def fail(self, error: str) -> None:
        """End the run because of an error on this side."""
        self._failure = error
        self.end()

    async def execute(self, options: RunOptions, past: Past | None) -> Ending:
        """Boot the guest and follow it until its end."""
        directory = self._directory
        words = []
        if past is not None:
            words += ["--ended", past.ended]
        if options.calibrate:
            words.append("--calibrate")
        run = RunContext(self._plan, directory, self._record, lambda: self.t, self._view)
        async with accept_commands(run, self._operations):
            with (directory.logs / f"{LOG}.log").open("ab") as log:
                await self._boot(words, log.fileno())
            try:
                await self._follow()
            finally:
                await self._end_process()
        if not self._begun and past is None:  # nothing was started
            if self._refusal:
                raise HostError(self._refusal)
            unfit = guest.unfit(directory.logs / f"{LOG}.log")
            if unfit is not None:
                raise unfit
        if self._failure:
            return Ending("failed", self._failure)
        if self._ending is None:
            return Ending("failed", f"the guest {self._how_ended()} before the run had ended: see `logs {LOG}`")
        return self._ending

    async def _boot(self, words: list[str], log: int) -> None:
        directory = self._directory
        guest.write_start(self._plan, directory, os.environ, words)
        argv = guest.command(needed_kernel(), self._plan)
        provide(guest.OPEN_FILES)
        self._process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=guest.environment(self._plan, directory),
            cwd=directory.path / guest.FOLDER,
            start_new_session=True,
        )

    async def _follow(self) -> None:
        """Handle the guest's messages until it has ended."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        with (self._directory.path / guest.FOLDER / guest.MESSAGES).open("rb") as messages:
            rest = b""
            while True:
                is_over = ended.done()
                lines = (rest + messages.read()).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    self._handle(json.loads(line))
                self._record.flush()
                if is_over:
                    return
                if self._patient_until is not None and time.monotonic() > self._patient_until:
                    self._kill()
                await asyncio.wait([ended], timeout=LOOK_EVERY)

    def _handle(self, message: list[Any]) -> None:
        match message:
            case ["row", "outcome", [t, _]]:
                self.t = t
            case ["row", str(table), list(row)]:
                self._begun = True
                if table in TIMED:
                    self.t = row[0]
                self._record.add_row(table, row)
            case ["line", float(t), str(line)]:
                self.t = t
                self._view.line(line)
            case ["snapshot", dict(fields)]:
                snapshot = _snapshot(fields)
                self.t = snapshot.t
                self._view.update(snapshot)
            case ["reply", int(number), dict(reply)]:
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
            case ["listening"]:
                self._send_held()
            case ["refused", str(error)]:
                self._refusal = error
            case ["ended", str(reason), error]:
                self._ending = Ending(reason, error)

    def _operations(self, uid: int) -> Mapping[str, Any]:
        def inject(**fields: Any) -> dict[str, Any]:
            request = {"op": "inject", **fields}
            return {"work": self._ask({"do": "ask", "request": request})}

        def pace(**fields: Any) -> dict[str, Any]:
            return {"error": "the time of a guest is virtual, but it has no pace; only a simulation has one"}

        def run(node: str, argv: list[str], files: str) -> dict[str, Any]:
            order = {"do": "run", "node": node, "argv": argv, "files": files}
            return {"work": self._ask(order)}

        return {"inject": inject, "pace": pace, "run": run}

    async def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._send({**order, "number": number})
        return await reply

    def _send(self, order: Mapping[str, Any]) -> None:
        line = json.dumps(order).encode() + b"\n"
        if self._unsent is None:
            self._write(line)
        else:
            self._unsent.append(line)

    def _send_held(self) -> None:
        """Send the orders that came before the guest was listening."""
        lines = self._unsent or []
        self._unsent = None
        for line in lines:
            self._write(line)

    def _write(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.write(line)

    async def _end_process(self) -> None:
        """Kill the guest if it still runs."""
        process = self._process
        if process is not None and process.returncode is None:
            self._kill()
            await process.wait()

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _how_ended(self) -> str:
        code = None if self._process is None else self._process.returncode
        if not code:
            return "ended"
        return f"ended ({text.how_ended(code)})"


def _snapshot(fields: dict[str, Any]) -> Snapshot:
    traffic = {}
    for kind, link_class, rate in fields["traffic"]:
        traffic[kind, link_class] = rate
    tiers = {tier: tuple(counts) for tier, counts in fields["tiers"].items()}
    return Snapshot(**{**fields, "traffic": traffic, "tiers": tiers})
