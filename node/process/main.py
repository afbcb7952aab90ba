"""The life of a node's process: load the role, register, wait for the start, run the role, report how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import logging
import os
import platform
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import zmq

from node import resources
from node.algorithms.registry import ALGORITHMS
from node.assignment import Assignment
from node.errors import AssignmentError, ControlError, Terminated
from node.messaging.control import ControlClient
from node.messaging.transport import Transport, ZmqTransport
from node.plugins import activate, line_of
from node.process.orders import UnderOrders
from node.process.rehearsal import Rehearsal
from node.process.standstill import LEAST, Standstill
from node.role import Role
from node.runtime.checkpoint import checkpoint_path, load
from node.runtime.compute import WorkerCompute
from node.runtime.turns import Turn

logger = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_ORPHANED = 3  # the orchestrator fell silent

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # mallopt(3)


def preload() -> None:
    """Import all heavy modules, so that nodes forked from this process share them and start at once."""
    with _for_good():
        for algorithm in ALGORITHMS.values():
            importlib.import_module(algorithm.module)
        importlib.import_module("node.learning.training")
        importlib.import_module("edgebed")  # for plug-ins: nodes see the files of loaded packages only
    _use_one_thread()
    keep_freed_memory()
    _set_malloc(_M_ARENA_MAX, 1)  # a node's threads then reuse what the others have freed, 0.6 MB after a few rounds
    Assignment.warm_up()
    importlib.import_module("node.learning.models").build("cnn", (1, 8, 8), 2, 0)  # the first of a process takes longer


@contextlib.contextmanager
def _for_good() -> Iterator[None]:
    """The garbage collector never looks at what the body imports, which stays. Its searches would take a tenth of the
    time that importing torch takes."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def keep_freed_memory() -> None:
    """Make malloc reuse freed memory instead of returning it to the kernel. The kernel would allocate and clear it page
    by page for each new tensor: half the time of some training loops. Without glibc, nothing happens."""
    _set_malloc(_M_MMAP_THRESHOLD, 32 << 20)
    _set_malloc(_M_TRIM_THRESHOLD, 256 << 20)


def _set_malloc(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


def run_node(assignment: Assignment, turn: Turn | None = None, rehearsal: Rehearsal | None = None) -> int:
    """Run the node until its end. Return the exit code.

    With a ``turn``, the node computes only when it has its turn. With a ``rehearsal`` of its model, it takes that over.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        force=True,
        format=f"%(asctime)s {assignment.node} %(levelname)s %(message)s",
    )
    try:
        return asyncio.run(live(assignment, secrets.token_hex(8), turn, rehearsal))
    except ControlError as error:
        logger.error("%s", error)
        return EXIT_ORPHANED


def described(error: Exception) -> str:
    """An error for the orchestrator, with file and line if a plug-in raised it."""
    place = line_of(error)
    return f"{f'{place}: ' if place else ''}{type(error).__name__}: {error}"


def load_role(assignment: Assignment) -> type[Role]:
    """The algorithm's class for this node's tier. AssignmentError if there is none."""
    name = assignment.algorithm
    tier = assignment.tier
    if name not in ALGORITHMS:
        raise AssignmentError(f"{assignment.node}: no algorithm {name!r}; known: {', '.join(ALGORITHMS)}")
    roles = ALGORITHMS[name].roles
    if tier not in roles:
        raise AssignmentError(f"{assignment.node}: {name} has no part for a node of tier {tier}")
    return roles[tier]


async def live(
    assignment: Assignment, incarnation: str, turn: Turn | None = None, rehearsal: Rehearsal | None = None
) -> int:
    """Run the node in the running event loop, see `run_node`. ``incarnation`` distinguishes this process from earlier
    ones of the node. ControlError if the orchestrator fell silent."""
    assignment = assignment.in_place
    # 1. Connect to the orchestrator first, so that all errors can be reported.
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 1023 + len(assignment.peers))  # by default 1023; there is one for each peer
    control = ControlClient(assignment, incarnation, context)
    compute = WorkerCompute(assignment.hardware, control, turn)
    try:
        # 2. Get ready: work that is slow the first time is done before the run begins.
        transport = ZmqTransport(assignment, incarnation, context)
        role = _make_role(assignment, transport, compute, control, rehearsal)
        await compute.prepare(role.learner.warm_up, role.params)
        # 3. Register.
        control.register()
        logger.info("ready, process %d on %s, incarnation %s", os.getpid(), platform.machine(), incarnation)
        # 4. Wait for the start message, and run the role concurrently with the control plane.
        await _run(assignment, role, transport, compute, control)
        return EXIT_DONE
    except ControlError:
        raise
    except Exception as error:
        logger.exception("failed")
        lasting = not isinstance(error, Terminated)  # a node that was ended from outside may run on when restarted
        control.send({"type": "failed", "error": described(error), "lasting": lasting})
        return EXIT_FAILED
    finally:
        # 5. Send the last messages and close everything.
        compute.close()
        control.close()
        await asyncio.shield(asyncio.to_thread(context.destroy))  # waits for the last messages


def _make_role(
    assignment: Assignment,
    transport: Transport,
    compute: WorkerCompute,
    control: ControlClient,
    rehearsal: Rehearsal | None = None,
) -> Role:
    activate(assignment.plugins)
    with _for_good():
        role_class = load_role(assignment)
        training: Any = importlib.import_module("node.learning.training")
    _use_one_thread()
    if assignment.device != "cpu":
        importlib.import_module("node.learning.devices").make_deterministic()
    models = None if rehearsal is None else rehearsal.models_of(assignment)
    folder = assignment.checkpoint_directory
    return role_class(
        assignment,
        transport,
        compute,
        control,
        params=ALGORITHMS[assignment.algorithm].params(**assignment.params),
        learner=training.Learner.from_assignment(assignment, models),
        restored=load(checkpoint_path(folder, assignment.node), assignment.stop.rounds) if folder else None,
    )


async def _run(
    assignment: Assignment,
    role: Role,
    transport: ZmqTransport,
    compute: WorkerCompute,
    control: ControlClient,
) -> None:
    """Perform the role from the start message until its end. An error in a concurrent task ends it, too."""
    orders = UnderOrders(role, compute)

    async def obey() -> None:
        while True:
            message = await control.receive()
            if message.get("type") == "address":
                await transport.readdress(message["node"], message["host"])
            else:
                orders.obey(message)

    terminated: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def terminate() -> None:
        if not (role.stopped or terminated.done()):
            terminated.set_exception(Terminated("ended by SIGTERM, which did not come from the orchestrator"))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, compute.thaw)
    reports = _report(assignment.timeouts.beat, transport, control, orders.started)
    tasks = [terminated, *(asyncio.create_task(work) for work in (orders.perform(), obey(), reports))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    _report_traffic(transport, control)
    control.send(_beat() | {"memory_pss": resources.proportional_bytes()})
    if not role.leaving:
        control.send({"type": "done", "reason": role.ended_by})
    logger.info("ended (%s)", "left" if role.leaving else role.ended_by)


async def _report(beat: float, transport: Transport, control: ControlClient, started: asyncio.Event) -> None:
    """Report to the orchestrator after the start: beats with resource usage, traffic, and standstills. A node that
    waits for the start sends one beat, and leaves the processors to nodes that have not registered yet."""
    control.send(_beat())
    await started.wait()
    reported = None
    standstill = Standstill()
    pace = resources.Pace()
    while True:
        control.send(_beat() | {"memory_pss": pace.measured(resources.proportional_bytes)})
        traffic = transport.traffic()
        if traffic != reported:
            _report_traffic(transport, control)
            reported = traffic
        await asyncio.sleep(beat)
        _, stood = standstill.since(beat)
        if stood >= LEAST:
            control.event("frozen", seconds=round(stood, 3))


def _report_traffic(transport: Transport, control: ControlClient) -> None:
    control.send({"type": "traffic", "peers": [asdict(row) for row in transport.traffic()]})


def _beat() -> dict[str, Any]:
    return {"type": "beat", "cpu": time.process_time(), "rss": resources.resident_bytes()}


def _use_one_thread() -> None:
    """Limit torch to one thread. Nodes share the host's processors; two threads each were slower than one."""
    importlib.import_module("torch").set_num_threads(1)
