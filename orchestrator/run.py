"""One run, from a plan to a verdict. ``execute`` is the lifecycle; everything else serves one of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from node.clock import VirtualLoop
from orchestrator.errors import OrchestratorError, RunError
from orchestrator.fabric.base import Fabric
from orchestrator.host.directory import RunDirectory
from orchestrator.monitor import watch
from orchestrator.past import NOTHING, Past
from orchestrator.planning.plan import Plan
from orchestrator.probe import probe_links
from orchestrator.report import write_report
from orchestrator.results.checks import overall
from orchestrator.results.history import History
from orchestrator.results.record import Record
from orchestrator.results.summary import summary
from orchestrator.session import Ending, Session
from orchestrator.substrate import open_substrate
from orchestrator.view import View

STOP_GRACE = 5.0  # s for the nodes to end in order
EXIT_CODES = {"pass": 0, "unknown": 0, "fail": 3}


@dataclass(frozen=True)
class Outcome:
    """The object `up --json` ends with, and the exit code."""

    summary: dict[str, Any]
    exit_code: int


async def execute(
    plan: Plan,
    directory: RunDirectory,
    meta: dict[str, Any],
    view: View,
    *,
    holding: contextlib.ExitStack,
    workers: int = 1,
    calibrate: bool = False,
    past: Past | None = None,
) -> Outcome:
    """Carry out a plan in a run directory, and leave nothing of it on the host but that directory.

    The directory is a fresh one, or that of a run that ended early and is continued; then that is its ``past``, and
    ``meta`` stays as it was. ``holding`` its lock is closed when the run has ended, before it is judged. ``workers``
    processes train where nodes are simulated. ``calibrate``: measure the links at length, and do not train.
    """
    clock, started = RunClock(asyncio.get_running_loop(), past), time.monotonic()
    view.keep_time(clock)
    # 1. The record comes first, so that whatever happens next is written down.
    if past is None:
        record = Record.create(directory.path, json.dumps(plan.to_json(), indent=1) + "\n", meta)
    else:
        record = Record.resume(directory.path, past.seconds, past.ended, min(past.kept))
    past = past or NOTHING
    try:
        with holding, contextlib.closing(record):
            ending = await _carry_out(plan, directory, record, clock, view, workers, calibrate, past)
            wall = past.wall_seconds + time.monotonic() - started
            record.outcome(clock(), {"ended": ending.reason, "error": ending.error, "wall_seconds": wall})
    finally:
        shutil.rmtree(directory.nodes, ignore_errors=True)  # the assignments hold the run's secret keys
        shutil.rmtree(directory.control, ignore_errors=True)
    # 8. Judge the run from its record alone, and write the report.
    result = judge(directory)
    code = 1 if ending.reason == "failed" else EXIT_CODES[overall(result["checks"])]
    return Outcome(result, code)


def judge(directory: RunDirectory) -> dict[str, Any]:
    """Write summary.json and report.html from a run's record; the summary. Can be done again at any time."""
    with History.open(directory.path) as history:
        result = summary(history)
        try:
            directory.summary.write_text(json.dumps(result, indent=2) + "\n")
            write_report(history, directory.report)
        except OSError as error:
            raise RunError(
                f"cannot write the report in {directory.path} ({error.strerror}):"
                f" make room, then `report {directory.run}`"
            ) from None
    return result


class RunClock:
    """Seconds since the run began. Of a run that is continued, it stands still until all is set up again: then the
    times in its record are those of a run without a gap."""

    def __init__(self, loop: asyncio.AbstractEventLoop, past: Past | None) -> None:
        self._loop = loop
        self._before = past.seconds if past else 0.0
        self._since = None if past else loop.time()

    def __call__(self) -> float:
        return self._before + (self._loop.time() - self._since if self._since is not None else 0.0)

    def start(self) -> None:
        """It goes from now on, if it did not yet."""
        if self._since is None:
            self._since = self._loop.time()


async def _carry_out(
    plan: Plan,
    directory: RunDirectory,
    record: Record,
    clock: RunClock,
    view: View,
    workers: int,
    calibrate: bool,
    past: Past,
) -> Ending:
    """Steps 2 to 7; an error in any of them ends the run with that error, after what was opened has been closed."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            # 2. What the run stands on: where nodes live, what links them, how they are spoken to.
            substrate = await open_substrate(plan, directory, stack, workers)
            driver, fabric = substrate.driver, substrate.fabric
            record.engine(fabric.engine)
            # 3. Shape the links, then start, attach and register every node.
            session = Session(plan, directory.path, record, substrate.control, driver, fabric, clock, view.line, past)
            stack.push_async_callback(session.close)
            session.listen()
            await stack.enter_async_context(interruptible(session))
            loop = asyncio.get_running_loop()
            if isinstance(loop, VirtualLoop):
                loop.on_deadlock = lambda waiting: session.finish("failed", f"the nodes wait for ever: {waiting}")
            await fabric.shape(plan.links)
            for note in (*past.notes(), *plan.notes(), *driver.notes(), *fabric.notes()):
                record.event(clock(), None, "note", None, {"text": note})
            view.line(f"starting {len(plan.nodes)} nodes ({fabric.engine} links)")
            await _unless_ended(session, session.bring_up_all())
            # 4. Measure the links before anything else uses them.
            if (plan.probe or calibrate) and substrate.hub is not None and not session.ended.done():
                measuring = probe_links(plan, session, substrate.hub, record, clock, view.line, quick=not calibrate)
                await _unless_ended(session, measuring)
            if calibrate:
                session.finish("calibrated")
                await session.stop_nodes(STOP_GRACE)
                return await session.ended
            # 5. Train, with the faults, until a stop rule is met or somebody interrupts.
            return await _train(plan, session, fabric, record, clock, view, past)
    except OrchestratorError as error:
        return Ending("failed", str(error))
    except Exception as error:
        # A mistake of ours: what was opened is closed all the same, and the record stays whole.
        log = directory.logs / "orchestrator.log"
        log.write_text("".join(traceback.format_exception(error)))
        return Ending("failed", f"{type(error).__name__}: {error} (a defect of edgebed: please report {log})")


async def _train(
    plan: Plan, session: Session, fabric: Fabric, record: Record, clock: RunClock, view: View, past: Past
) -> Ending:
    virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    clock.start()
    async with watch(session, fabric, record, clock, view, virtual=virtual):
        if not session.ended.done():
            await session.start_training()
            record.event(clock(), None, "training", None, {})
            view.line("training")
            if (after := plan.stop.after) is not None:
                asyncio.get_running_loop().call_later(max(0.0, after - past.training), session.finish, "after")
        ending = await session.ended
        # 6. Ask the nodes to end; their last words are the final counts.
        await session.stop_nodes(STOP_GRACE)
    # 7. Closing the stack takes everything down, in the reverse order of its making.
    return ending


async def _unless_ended(session: Session, work: Any) -> None:
    """Await ``work``, or until the session has ended for another reason."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, session.ended], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return
    task.result()


@contextlib.asynccontextmanager
async def interruptible(session: Session) -> AsyncIterator[None]:
    """The first Ctrl-C (or SIGTERM) ends the run in order, with a report; the second one at once."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if session.ended.done():
            os._exit(130)  # the kernel ends the run's processes with this one; `down` cleans what is left
        session.finish("interrupted")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
