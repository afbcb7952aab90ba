"""One run, from a plan to a verdict. ``execute`` is the lifecycle. Everything else here belongs to one of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import time
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from node.runtime.clock import VirtualLoop
from orchestrator.drivers.base import entry_of
from orchestrator.errors import HostError, OrchestratorError, RecordError, RunError
from orchestrator.fabric.base import Fabric
from orchestrator.host.directory import RunDirectory, write_whole
from orchestrator.host.signals import INTERRUPTED, Interruption
from orchestrator.planning.plan import Plan
from orchestrator.report import write_report
from orchestrator.results.checks import overall
from orchestrator.results.history import History
from orchestrator.results.record import Record
from orchestrator.results.summary import summary
from orchestrator.run.context import RunClock, RunContext
from orchestrator.run.down import clear
from orchestrator.run.link_probe import probe_links
from orchestrator.run.listening import Listener
from orchestrator.run.monitor import watch
from orchestrator.run.resume import NOTHING, Past
from orchestrator.run.session import Ending, Session
from orchestrator.run.view import View

STOP_GRACE = 5.0  # s for the nodes to end in order
EXIT_CODES = {"pass": 0, "unknown": 0, "fail": 3}
INTERRUPTION = Ending("interrupted")
HOST_REFUSES = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN),
)
T = TypeVar("T")


@dataclass(frozen=True)
class Conclusion:
    """The object that `up --json` prints, and the exit code. ``unwritten``: why the report could not be written."""

    summary: dict[str, Any]
    exit_code: int
    unwritten: str | None = None

    @property
    def error(self) -> str | None:
        """What went wrong, in a sentence."""
        return self.summary["error"] or self.unwritten


async def execute(
    plan: Plan,
    directory: RunDirectory,
    record: Record,
    view: View,
    interruption: Interruption,
    *,
    holding: contextlib.ExitStack,
    workers: int = 1,
    calibrate: bool = False,
    past: Past | None = None,
    listener: Listener | None = None,
) -> Conclusion:
    """Carry out a plan in a run directory, and leave nothing on the host except that directory.

    ``record`` is a fresh record, or the record of a run that is continued, which then has a ``past``. ``holding`` holds
    the directory's lock. It is closed when the run has ended, before the run is judged. ``workers`` is the number of
    processes that train simulated nodes. ``calibrate``: measure the links at length, and do not train. An error of the
    ``listener`` ends the run.

    HostError if this host lacks something that a fresh run needs. Then nothing was started.
    """
    loop = asyncio.get_running_loop()
    clock, started, past_wall = RunClock(loop, past), time.monotonic(), past.wall_seconds if past else 0.0
    view.keep_time(clock)
    early: asyncio.Future[Ending] = loop.create_future()
    if listener is not None:
        record.heard = listener.hear
        listener.end = lambda error: _resolve(early, Ending("failed", error))

    def write_outcome(ending: Ending) -> None:
        wall = past_wall + time.monotonic() - started
        record.outcome(clock(), {"ended": ending.reason, "error": ending.error, "wall_seconds": wall})

    def end_at_once() -> None:
        clear(directory.run, directory, trackers=False)  # they go on until this process has ended
        with contextlib.suppress(RecordError):
            write_outcome(INTERRUPTION)
            record.close()
        judge(directory)

    with interruption.heard_by(lambda: loop.call_soon_threadsafe(_resolve, early, INTERRUPTION), end_at_once):
        # 1. The record exists, so everything that happens next is recorded.
        try:
            with holding, contextlib.closing(record):
                run = RunContext(plan, directory, record, clock, view, past or NOTHING)
                ending = await _carry_out(run, clock, early, workers, calibrate=calibrate)
                write_outcome(ending)
        except RecordError as error:
            ending = Ending("failed", str(error))
        finally:
            directory.remove_keys()
    # 8. Judge the run from its record alone, and write the report.
    return _judged(directory, ending)


def _resolve(early: asyncio.Future[Ending], ending: Ending) -> None:
    if not early.done():
        early.set_result(ending)


def _judged(directory: RunDirectory, ending: Ending) -> Conclusion:
    """The conclusion of a run that has just ended. Holds the verdict even if the report cannot be written."""
    unwritten = None
    try:
        with contextlib.closing(History.open(directory.path)) as history:
            result = summary(history)
            try:
                _write_down(directory, history, result)
            except RecordError as error:
                unwritten = str(error)
    except RecordError as error:
        raise RunError(ending.error or str(error)) from error
    if result["ended"] is None:  # the disk had no room even for the outcome
        result |= {"ended": ending.reason, "error": ending.error}
    if ending.reason == "interrupted":
        code = INTERRUPTED
    elif ending.reason == "failed" or unwritten is not None:
        code = 1
    else:
        code = EXIT_CODES[overall(result["checks"])]
    return Conclusion(result, code, unwritten)


def judge(directory: RunDirectory) -> dict[str, Any]:
    """Write summary.json and report.html from a run's record; return the summary. Can be repeated at any time."""
    with History.open(directory.path) as history:
        result = summary(history)
        _write_down(directory, history, result)
    return result


def _write_down(directory: RunDirectory, history: History, result: dict[str, Any]) -> None:
    """Write summary.json and report.html. RecordError if there is no room for them."""
    try:
        write_whole(directory.summary, json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise RecordError(
            f"{directory.summary} cannot be written ({error.strerror}): free space, then `report {directory.run}`"
        ) from None
    write_report(history, directory.report)


async def _carry_out(
    run: RunContext, clock: RunClock, early: asyncio.Future[Ending], workers: int, *, calibrate: bool
) -> Ending:
    """Carry out steps 2 to 7. On an error, close everything that was opened and end the run with that error. The same
    with the ending ``early``, which may come at any time."""
    plan, view, began = run.plan, run.view, run.past is not NOTHING
    try:
        async with contextlib.AsyncExitStack() as stack:
            # 2. Open the environment: the driver of the nodes, the fabric of their links, the control plane.
            opening = entry_of(plan.driver).open_environment(plan, run.directory, stack, workers)
            if (environment := await _unless(early, opening)) is None:
                return early.result()
            began = True
            driver, fabric = environment.driver, environment.fabric
            run.record.engine(fabric.engine)
            # 3. Shape the links, then start, attach and register every node.
            session = Session(run, environment)
            stack.push_async_callback(session.close)
            session.listen()
            early.add_done_callback(lambda _: session.finish(early.result().reason, early.result().error))
            loop = asyncio.get_running_loop()
            if isinstance(loop, VirtualLoop):
                loop.on_deadlock = lambda waiting: session.finish("failed", f"the nodes wait for ever: {waiting}")
            await _unless(session.ended, fabric.shape(plan.links))
            view.line(f"starting {len(plan.nodes)} nodes ({fabric.engine} links)")
            try:
                await _unless(session.ended, session.bring_up_all())
            finally:  # some limits of this host show only when nodes start
                for note in (*run.past.notes(), *plan.notes(), *driver.notes(), *fabric.notes()):
                    run.note("note", {"text": note})
            # 4. Measure the links before anything else uses them.
            if (plan.probe or calibrate) and environment.hub is not None and not session.ended.done():
                measuring = probe_links(run, session, environment.hub, quick=not calibrate)
                await _unless(session.ended, measuring)
            if calibrate:
                session.finish("calibrated")
                await session.stop_nodes(STOP_GRACE)
                return await session.ended
            # 5. Train, with the faults, until a stop rule is met or the run is interrupted.
            clock.start()
            return await _train(run, session, fabric)
    except HostError as error:
        if not began:
            raise
        return Ending("failed", str(error))
    except OrchestratorError as error:
        return Ending("failed", str(error))
    except OSError as error:
        if error.errno not in HOST_REFUSES:
            return _defect(run.directory, error)
        what = f"{error.filename}: " if error.filename else ""
        return Ending("failed", f"{what}{error.strerror}: this host has run out of what {run.directory.run} asks for")
    except Exception as error:
        return _defect(run.directory, error)


def _defect(directory: RunDirectory, error: Exception) -> Ending:
    """The ending of a run that hit a defect of edgebed. Writes the traceback to logs/orchestrator.log."""
    log = directory.logs / "orchestrator.log"
    with contextlib.suppress(OSError):
        log.write_text("".join(traceback.format_exception(error)))
    return Ending("failed", f"{type(error).__name__}: {error} (a defect of edgebed: please report {log})")


async def _train(run: RunContext, session: Session, fabric: Fabric) -> Ending:
    virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    async with watch(run, session, fabric, virtual=virtual):
        if not session.ended.done():
            await session.start_training()
            run.note("training", {})
            run.view.line("training")
            if (after := run.plan.stop.after) is not None:
                asyncio.get_running_loop().call_later(max(0.0, after - run.past.training), session.finish, "after")
        ending = await session.ended
        # 6. Ask the nodes to end. Their last messages are the final counts.
        await session.stop_nodes(STOP_GRACE)
    # 7. Closing the stack closes everything, in the reverse order of opening.
    return ending


async def _unless(ended: asyncio.Future[Any], work: Coroutine[Any, Any, T]) -> T | None:
    """Await ``work`` and return its result. If ``ended`` is done first, cancel ``work`` and return None."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        task.cancel()  # an error it raised meanwhile is a consequence of the end: ignored
        await asyncio.gather(task, return_exceptions=True)
        return None
    return task.result()
