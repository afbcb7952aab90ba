"""The main of a node's process: load the role, register, wait for the start, run the role, report how it ended."""

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import zmq

from node import resources
from node.algorithms.registry import Algorithm
from node.assignment import Assignment, PluginSource
from node.errors import AssignmentError, ControlError, Terminated
from node.messaging.control import ControlClient
from node.messaging.sockets import Context
from node.messaging.transport import Transport, ZmqTransport
from node.plugins import EDGEBED, line_of, with_plugins
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

# mallopt(3)
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def preload() -> None:
    """Import all heavy modules, so that nodes forked from this process share them and start immediately."""
    with _for_good():
        for algorithm in EDGEBED.algorithms.values():
            importlib.import_module(algorithm.module)
        importlib.import_module("node.learning.training")
        importlib.import_module("edgebed")  # for plug-ins: nodes see the files of loaded packages only
    _use_one_thread()
    keep_freed_memory()
    _set_malloc(_M_ARENA_MAX, 1)  # a node's threads then reuse what the others have freed, 0.6 MB after a few rounds
    Assignment.warm_up()
    models = importlib.import_module("node.learning.models")
    models.build("cnn", (1, 8, 8), 2, 0)  # the first of a process takes longer


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
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


def run_node(
    assignment: Assignment,
    turn: Turn | None = None,
    rehearsal: Rehearsal | None = None,
) -> int:
    """Run the node until its end. Return the exit code.

    With a ``turn``, the node computes only when it has its turn. With a ``rehearsal`` of its model, it takes that over.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        force=True,
        format=f"%(asctime)s {assignment.node} %(levelname)s %(message)s",
    )
    incarnation = secrets.token_hex(8)
    try:
        return asyncio.run(live(assignment, incarnation, turn, rehearsal))
    except ControlError as error:
        logger.error("%s", error)
        return EXIT_ORPHANED


def described(error: Exception, plugins: Sequence[PluginSource]) -> str:
    """An error for the orchestrator, with file and line if one of these plug-ins raised it."""
    text = f"{type(error).__name__}: {error}"
    place = line_of(error, plugins)
    if not place:
        return text
    return f"{place}: {text}"


def load_role(assignment: Assignment, algorithms: Mapping[str, Algorithm]) -> type[Role]:
    """The algorithm's class for this node's tier. AssignmentError if there is none."""
    name = assignment.algorithm
    tier = assignment.tier
    if name not in algorithms:
        known = ", ".join(algorithms)
        raise AssignmentError(f"{assignment.node}: no algorithm {name!r}; known: {known}")
    roles = algorithms[name].roles
    if tier not in roles:
        raise AssignmentError(f"{assignment.node}: {name} has no part for a node of tier {tier}")
    return roles[tier]


async def live(
    assignment: Assignment,
    incarnation: str,
    turn: Turn | None = None,
    rehearsal: Rehearsal | None = None,
) -> int:
    """Run the node in the running event loop, see `run_node`. ``incarnation`` distinguishes this process from earlier
    ones of the node. ControlError if the orchestrator fell silent."""
    assignment = assignment.in_place
    # 1. Connect to the orchestrator first, so that all errors can be reported.
    context: Context = zmq.Context()
    sockets = 1023 + len(assignment.peers)  # by default 1023; there is one for each peer
    context.set(zmq.MAX_SOCKETS, sockets)
    control = ControlClient(assignment, incarnation, context)
    compute = WorkerCompute(assignment.hardware, control, turn)
    try:
        # 2. Get ready: work that is slow the first time is done before the run starts.
        transport = ZmqTransport(assignment, incarnation, context)
        role = _make_role(assignment, transport, compute, control, rehearsal)
        await compute.prepare(role.learner.warm_up, role.params)
        # 3. Register.
        control.register()
        process = os.getpid()
        logger.info("ready, process %d on %s, incarnation %s", process, platform.machine(), incarnation)
        # 4. Wait for the start message, and run the role concurrently with the control plane.
        await _run(assignment, role, transport, compute, control)
        return EXIT_DONE
    except ControlError:
        raise
    except Exception as error:
        logger.exception("failed")
        lasting = not isinstance(error, Terminated)  # a node that was ended from outside may run on when restarted
        failure = {"type": "failed", "error": described(error, assignment.plugins), "lasting": lasting}
        control.send(failure)
        return EXIT_FAILED
    finally:
        # 5. Send the last messages and close everything.
        compute.close()
        control.close()
        closing = asyncio.to_thread(context.destroy)  # waits for the last messages
        await asyncio.shield(closing)


def _make_role(
    assignment: Assignment,
    transport: Transport,
    compute: WorkerCompute,
    control: ControlClient,
    rehearsal: Rehearsal | None = None,
) -> Role:
    catalogue = with_plugins(assignment.plugins)
    with _for_good():
        role_class = load_role(assignment, catalogue.algorithms)
        training: Any = importlib.import_module("node.learning.training")
    _use_one_thread()
    if assignment.device != "cpu":
        devices = importlib.import_module("node.learning.devices")
        devices.make_deterministic()
    models = None
    if rehearsal is not None:
        models = rehearsal.models_of(assignment)
    algorithm = catalogue.algorithms[assignment.algorithm]
    params = algorithm.params(**assignment.params)
    learner = training.Learner.from_assignment(assignment, models, catalogue.models)
    if assignment.hardware.modelled:
        devices = importlib.import_module("node.learning.devices")
        counted_operations = importlib.import_module("node.learning.counted_operations")
        sample = devices.inputs_of(learner.data.zeros(1))
        compute.cost = counted_operations.cost_of(learner.models.sample, sample, params.batch_size)
    restored = None
    folder = assignment.checkpoint_directory
    if folder:
        checkpoint = checkpoint_path(folder, assignment.node)
        restored = load(checkpoint, assignment.stop.rounds)
    return role_class(
        assignment,
        transport,
        compute,
        control,
        params=params,
        learner=learner,
        restored=restored,
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

    loop = asyncio.get_running_loop()
    terminated: asyncio.Future[None] = loop.create_future()

    def terminate() -> None:
        if not (role.stopped or terminated.done()):
            terminated.set_exception(Terminated("ended by SIGTERM, which did not come from the orchestrator"))

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(signal.SIGCONT, compute.thaw)
    beat = assignment.timeouts.beat
    least = resources.VIRTUAL_PAUSE if assignment.hardware.modelled else 0.0
    pace = resources.Pace(least=least)
    reports = _report(beat, transport, control, orders.started, pace)
    tasks: list[asyncio.Future[None]] = [terminated]
    for work in (orders.perform(), obey(), reports):
        tasks.append(asyncio.create_task(work))
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
    last_beat = _beat()
    last_beat["memory_pss"] = resources.proportional_bytes()
    control.send(last_beat)
    if role.leaving:
        logger.info("ended (left)")
    else:
        control.send({"type": "done", "reason": role.ended_by})
        logger.info("ended (%s)", role.ended_by)


async def _report(
    beat: float,
    transport: Transport,
    control: ControlClient,
    started: asyncio.Event,
    pace: resources.Pace,
) -> None:
    """Report to the orchestrator after the start: beats with resource usage, traffic, and standstills. A node that
    waits for the start sends one beat, and leaves the processors to nodes that have not registered yet. ``pace``: of
    the measurements of memory."""
    control.send(_beat())
    await started.wait()
    reported = None
    standstill = Standstill()
    while True:
        message = _beat()
        message["memory_pss"] = pace.measured(resources.proportional_bytes)
        control.send(message)
        traffic = transport.traffic()
        if traffic != reported:
            _report_traffic(transport, control)
            reported = traffic
        await asyncio.sleep(beat)
        _, stood = standstill.since(beat)
        if stood >= LEAST:
            control.event("frozen", seconds=round(stood, 3))


def _report_traffic(transport: Transport, control: ControlClient) -> None:
    rows = [asdict(row) for row in transport.traffic()]
    control.send({"type": "traffic", "peers": rows})


def _beat() -> dict[str, Any]:
    return {
        "type": "beat",
        "cpu": time.process_time(),
        "rss": resources.resident_bytes(),
    }


def _use_one_thread() -> None:
    """Limit torch to one thread. Nodes share the host's processors; two threads each were slower than one."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
