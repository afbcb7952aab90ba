"""The life of a node's process: read the assignment, learn what to do, register, run the role, say how it ended."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import os
import secrets
import signal
import sys
from dataclasses import asdict
from typing import Any

import zmq

from node import resources
from node.algorithms.registry import ALGORITHMS
from node.assignment import Assignment
from node.errors import AssignmentError, ControlError, Terminated
from node.messaging.control import ControlClient
from node.messaging.transport import Transport, ZmqTransport
from node.process.orders import UnderOrders
from node.process.standstill import LEAST, Standstill
from node.role import Role
from node.runtime.checkpoint import Checkpoint, checkpoint_path, load
from node.runtime.compute import WorkerCompute
from node.runtime.turns import Turn

logger = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_ORPHANED = 3  # the orchestrator fell silent

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def preload() -> None:
    """Import everything heavy, so that nodes forked from this process share it and start at once."""
    for algorithm in ALGORITHMS.values():
        importlib.import_module(algorithm.module)
    importlib.import_module("node.learning.training")
    _use_one_thread()
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Have malloc reuse freed memory rather than return it to the kernel, which would give and clear it page by page
    for each new tensor: half the time of some training loops. Without glibc, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def run_node(assignment: Assignment, incarnation: str | None = None, turn: Turn | None = None) -> int:
    """Be the node until its end; the exit code. ``incarnation`` tells this process from those before it; it computes
    when it is its ``turn``, where it has one."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        force=True,
        format=f"%(asctime)s {assignment.node} %(levelname)s %(message)s",
    )
    try:
        return asyncio.run(live(assignment, incarnation or secrets.token_hex(8), turn))
    except ControlError as error:
        logger.error("%s", error)
        return EXIT_ORPHANED


def load_role(assignment: Assignment) -> type[Role]:
    """The class that plays this node's tier. AssignmentError if there is none."""
    name, tier = assignment.algorithm, assignment.tier
    if name not in ALGORITHMS:
        raise AssignmentError(f"{assignment.node}: no algorithm {name!r}; known: {', '.join(ALGORITHMS)}")
    roles: dict[str, type[Role]] = importlib.import_module(ALGORITHMS[name].module).ROLES
    if tier not in roles:
        raise AssignmentError(f"{assignment.node}: {name} has no part for a node of tier {tier}")
    return roles[tier]


async def live(assignment: Assignment, incarnation: str, turn: Turn | None = None) -> int:
    """What `run_node` does, in a loop that is there. ControlError if the orchestrator fell silent."""
    # 1. Reach the orchestrator, so that whatever goes wrong can be told.
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    control = ControlClient(assignment, incarnation, context)
    compute = WorkerCompute(assignment.hardware, control, turn)
    try:
        # 2. Get ready: what is slow for the first time is done before the run begins.
        transport = ZmqTransport(assignment, incarnation, context)
        role = _make_role(assignment, transport, compute, control)
        # 3. Register, and wait for the word to start.
        control.register()
        logger.info("ready, process %d, incarnation %s", os.getpid(), incarnation)
        # 4. Run the role, beside the control plane.
        await _run(assignment, role, transport, compute, control)
        return EXIT_DONE
    except ControlError:
        raise
    except Exception as error:
        logger.exception("failed")
        control.send({"type": "failed", "error": f"{type(error).__name__}: {error}"})
        return EXIT_FAILED
    finally:
        # 5. Last words go out, then nothing is left.
        compute.close()
        control.close()
        await asyncio.shield(asyncio.to_thread(context.destroy))  # waits for the last words


def _make_role(assignment: Assignment, transport: Transport, compute: WorkerCompute, control: ControlClient) -> Role:
    role_class = load_role(assignment)
    training: Any = importlib.import_module("node.learning.training")
    _use_one_thread()
    return role_class(
        assignment,
        transport,
        compute,
        control,
        params=ALGORITHMS[assignment.algorithm].params(**assignment.params),
        learner=training.Learner.from_assignment(assignment),
        restored=_restore(assignment),
    )


def _restore(assignment: Assignment) -> Checkpoint | None:
    if not assignment.checkpoint_directory:
        return None
    return load(checkpoint_path(assignment.checkpoint_directory, assignment.node), assignment.stop.rounds)


async def _run(
    assignment: Assignment, role: Role, transport: Transport, compute: WorkerCompute, control: ControlClient
) -> None:
    """Perform the role from the word to start until its end; whatever fails beside it ends it too."""
    orders = UnderOrders(role, compute)

    async def obey() -> None:
        while True:
            orders.obey(await control.receive())

    terminated: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def terminate() -> None:
        if not (role.stopped or terminated.done()):
            terminated.set_exception(Terminated("ended by SIGTERM, which did not come from the orchestrator"))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, compute.thaw)
    telling = _tell(assignment.timeouts.beat, transport, control)
    tasks = [terminated, *(asyncio.create_task(work) for work in (orders.perform(), obey(), telling))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    _tell_traffic(transport, control)
    control.send(_beat() | {"memory_pss": resources.proportional_bytes()})
    if not role.leaving:
        control.send({"type": "done", "reason": role.ended_by})
    logger.info("ended (%s)", "left" if role.leaving else role.ended_by)


async def _tell(beat: float, transport: Transport, control: ControlClient) -> None:
    """For ever, tell the orchestrator that this node lives, what it uses and what it sent."""
    told, standstill = None, Standstill()
    while True:
        control.send(_beat())
        traffic = transport.traffic()
        if traffic != told:
            _tell_traffic(transport, control)
            told = traffic
        await asyncio.sleep(beat)
        _, stood = standstill.since(beat)
        if stood >= LEAST:
            control.event("frozen", seconds=round(stood, 3))


def _tell_traffic(transport: Transport, control: ControlClient) -> None:
    control.send({"type": "traffic", "peers": [asdict(row) for row in transport.traffic()]})


def _beat() -> dict[str, Any]:
    return {"type": "beat", "cpu": resources.processor_seconds(), "rss": resources.resident_bytes()}


def _use_one_thread() -> None:
    """Nodes share the host's processors; two torch threads each were slower than one."""
    importlib.import_module("torch").set_num_threads(1)
