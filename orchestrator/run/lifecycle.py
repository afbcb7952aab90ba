"""One run, from a plan to its end. ``execute`` is the lifecycle. Everything else here belongs to one of its steps.

The judgement of the run afterwards (`orchestrator.report.judgement`) is not imported: a host that executes a run for
another one does not judge it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from node.runtime.clock import VirtualLoop
from orchestrator.drivers.base import Environment, entry_of
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces import tcp
from orchestrator.host.kernel.load import Others
from orchestrator.host.process.processes import pids_of
from orchestrator.host.process.signals import Interruption
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.run import Training
from orchestrator.record.writer import Record
from orchestrator.run.context import RunClock, RunContext
from orchestrator.run.control.commands import accept_commands
from orchestrator.run.control.manual import Commands
from orchestrator.run.control.pace import Pacing
from orchestrator.run.display.snapshot import View
from orchestrator.run.links.link_measurement import probe_links
from orchestrator.run.monitor import watch
from orchestrator.run.nodes.sensors import sensed
from orchestrator.run.nodes.session import Session
from orchestrator.run.options import RunOptions
from orchestrator.run.outcome import INTERRUPTION, until_outcome
from orchestrator.run.plugin_results import record_results
from orchestrator.run.resume import NOTHING, Past
from orchestrator.run.tasks import Ending, ending_after

STOP_GRACE = 5.0  # s for the nodes to end in order
STOP_GRACE_EACH = 0.03  # s more for each node: a thousand on two cores need 20 s
WITHOUT_RESULT = ("after", "failed")  # ends of runs with programs that may have waited for an answer
LAST_STEPS = 2.0  # s for a node after its programs were killed at the end of their grace
T = TypeVar("T")


async def execute(
    plan: Plan,
    directory: RunDirectory,
    record: Record,
    interruption: Interruption,
    holding: contextlib.ExitStack,
    options: RunOptions,
    view: View,
    past: Past | None = None,
) -> Ending:
    """Execute a plan in a run directory, and leave nothing on the host except that directory.

    ``record`` is a fresh record, or the record of a run that is continued, which then has a ``past``. ``holding`` holds
    the directory's lock. It is closed when the run has ended.

    HostError if this host lacks something that a fresh run needs. Then nothing was started.
    """
    loop = asyncio.get_running_loop()
    clock = RunClock(loop, past)
    view.keep_time(clock)
    early: asyncio.Future[Ending] = loop.create_future()
    listener = options.listener
    if listener is not None:
        record.subscribers.append(listener.receive)
        listener.end = lambda error: _resolve(early, Ending("failed", error))

    async def work() -> Ending:
        # 1. The record exists, so everything that happens next is recorded.
        run = RunContext(plan, directory, record, clock, view, past or NOTHING)
        return await _execute_steps(run, clock, early, options)

    def end_in_order() -> None:
        _resolve(early, INTERRUPTION)

    def after_outcome() -> None:
        record_results(plan.catalogue, directory, record, clock())

    try:
        return await until_outcome(
            directory,
            record,
            interruption,
            holding,
            past,
            clock,
            work,
            end_in_order,
            after_outcome,
        )
    finally:
        directory.remove_keys()


def _resolve(early: asyncio.Future[Ending], ending: Ending) -> None:
    if not early.done():
        early.set_result(ending)


async def _execute_steps(
    run: RunContext,
    clock: RunClock,
    early: asyncio.Future[Ending],
    options: RunOptions,
) -> Ending:
    """Steps 2 to 7. An error, or the ending ``early`` at any time, closes everything and ends the run."""
    plan = run.plan
    began = run.past is not NOTHING
    others = Others()
    try:
        async with contextlib.AsyncExitStack() as stack:
            # 2. Open the environment: the driver of the nodes, the fabric of their links, the control plane.
            entry = entry_of(plan.driver_kind)
            opening = entry.open_environment(
                plan,
                run.directory,
                stack,
                options.processes,
                run.view.line,
            )
            environment = await _unless(early, opening)
            if environment is None:
                return early.result()
            began = True
            fabric = environment.fabric
            run.record.engine(fabric.engine, fabric.tcp)
            # 3. Shape the links, then start, attach and register every node.
            session = Session(run, environment)
            stack.push_async_callback(session.close)
            session.listen()

            def finish_early(early: asyncio.Future[Ending]) -> None:
                ending = early.result()
                session.finish(ending.reason, ending.error)

            early.add_done_callback(finish_early)
            pacing = _pacing_of(session)
            commands = Commands(run, session, pacing)
            await stack.enter_async_context(accept_commands(run, commands.of))
            ended = session.ended
            await _unless(ended, session.media.open())
            await _unless(ended, fabric.shape(plan.links))
            await _unless(ended, session.moves.begin(run.past))
            if not plan.driver_kind.simulated:
                _note_other_load(run, others)
            run.view.line(f"starting {len(plan.nodes)} nodes ({fabric.engine} links)")
            try:
                await _unless(ended, session.processes.bring_up_all())
            finally:  # some limits of this host show only when nodes start
                _note_limits(run, environment)
            # 4. Measure the links before anything else uses them.
            prober = environment.prober
            measured = plan.probe or options.calibrate
            if measured and prober is not None and not ended.done():
                measuring = probe_links(
                    run,
                    session,
                    prober,
                    fabric.engine,
                    environment.network,
                    quick=not options.calibrate,
                    tcp=fabric.tcp,
                    earlier=options.measured,
                )
                await _unless(ended, measuring)
            if options.calibrate:
                session.finish("calibrated")
                await session.stop_nodes(STOP_GRACE)
                return await ended
            # 5. Train, with the faults, until a stop rule is met or the run is interrupted.
            clock.start()
            if pacing is not None and options.pace is not None:
                pacing.set(options.pace)
            return await _train(run, session, environment)
    except Exception as error:
        if isinstance(error, HostError) and not began:
            raise
        return ending_after(error, run.directory)


def _pacing_of(session: Session) -> Pacing | None:
    """The pace of the clock if it is virtual; the session then follows it."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return None
    loop.on_deadlock = lambda waiting: session.finish("failed", f"the nodes wait for ever: {waiting}")
    pacing = Pacing(loop)
    session.round_began = pacing.round_began
    session.ended.add_done_callback(pacing.end)
    return pacing


def _note_other_load(run: RunContext, others: Others) -> None:
    """Record and show other programs that load this host."""
    own = pids_of(run.directory.run)
    busy = others.busy(own)
    if busy:
        run.note(f"before the nodes started, {busy}")
        run.view.line(f"{busy}: nodes and links may be late")


def _note_limits(run: RunContext, environment: Environment) -> None:
    """Record what the readers of the report should know about this run and its hosts."""
    fabric = environment.fabric
    refused = tcp.notes(fabric.tcp)
    notes = [
        *run.past.notes(),
        *run.plan.notes(),
        *environment.driver.notes(),
        *fabric.notes(),
        *refused,
    ]
    for note in notes:
        run.note(note)


async def _train(run: RunContext, session: Session, environment: Environment) -> Ending:
    loop = asyncio.get_running_loop()
    virtual = isinstance(loop, VirtualLoop)
    async with (
        watch(run, session, environment.fabric, environment.network, virtual=virtual),
        sensed(run, session, environment.driver, virtual=virtual),
    ):
        if not session.ended.done():
            await session.start_training()
            run.record_event(Training())
            run.record.flush()  # a simulation may pause from now on
            run.view.line("training")
            after = run.plan.stop.after
            if after is not None:
                remaining = max(0.0, after - run.past.training)
                loop.call_later(remaining, session.finish, "after")
        ending = await session.ended
        if run.plan.programs and ending.reason in WITHOUT_RESULT:
            session.processes.record_connections()
        # 6. Ask the nodes to end. Their last messages are the final counts.
        graces = [program.stop_grace + LAST_STEPS for program in run.plan.programs]
        grace_of_nodes = STOP_GRACE + STOP_GRACE_EACH * len(run.plan.nodes)
        await session.stop_nodes(max([grace_of_nodes, *graces]))
    # 7. Closing the stack closes everything, in the reverse order of opening.
    return ending


async def _unless(
    ended: asyncio.Future[Any],
    work: Coroutine[Any, Any, T],
) -> T | None:
    """Await ``work`` and return its result. If ``ended`` is done first, cancel ``work`` and return None."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        task.cancel()  # an error it raised is a consequence of the end: ignored
        await asyncio.gather(task, return_exceptions=True)
        return None
    return task.result()
