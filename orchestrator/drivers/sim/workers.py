"""Worker processes for the steps of simulated nodes. They are forked from this process and share its data and code.

A step goes to a worker through shared memory (a *slot*). A few bytes through a socket announce it. Each worker has two
slots, so it stays busy while the simulation reads its previous result. Some steps cannot cross, such as a function
without a name. Such a step runs in this process when its result is requested. So does a step that failed in a worker:
it then raises its error to the caller. If it succeeds here, a warning has the worker's error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import mmap
import os
import selectors
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from node.assignment import PluginSource
from node.learning.devices import Seeded
from node.learning.together import Crew
from node.learning.training import Learner
from orchestrator.drivers.sim.codec import CannotCrossError, read, write
from orchestrator.errors import RunError
from orchestrator.host.process.processes import end_with
from orchestrator.host.process.signals import ignore_signals, interrupted

log = logging.getLogger(__name__)

SLOTS = 2  # of each worker
POLL = 0.1  # s between two looks for a signal while a result is awaited
SLOT_BYTES = 256 << 20  # each way; unused pages take no memory
_TOKEN = struct.Struct(">iq")  # the slot, and the offset of the head in it; if the step failed, -1 - its error's offset
Function = Callable[..., Any]
LearnerOf = Callable[[str], Learner]
Slot = list[memoryview]  # the shared memory for steps, and that for results

COLLECTING = (700, 10, 10)  # Python's own thresholds: a step leaves few objects behind, but large ones


class WorkerStep:
    """A step for a worker: ``fn(*args)``."""

    def __init__(self, workers: Workers, fn: Function, args: tuple[Any, ...]) -> None:
        self.fn = fn
        self.args = args
        self.done = False
        self.failed = False
        self.orphaned = False
        self.cancelled = False
        self.value: Any = None
        self.problem: str | None = None
        self._workers = workers

    def result(self) -> Any:
        """See `Work`. RunError if a worker was killed."""
        while not self.done:
            self._workers.collect(wait=POLL)
            if not self.done and interrupted():
                raise InterruptedError
        if self.orphaned:
            raise RunError("a worker process of the simulation was killed; is there not enough memory on this host?")
        if not self.failed:
            return self.value
        value = self.fn(*self.args)
        if self.problem is not None:
            self._workers.warn(self.problem)
        return value

    def cancel(self) -> None:
        self.cancelled = True

    def orphan(self) -> None:
        """Note that no worker will do this step, because one was killed."""
        self.done = True
        self.orphaned = True


def _slot() -> Slot:
    steps = mmap.mmap(-1, SLOT_BYTES)
    results = mmap.mmap(-1, SLOT_BYTES)
    return [memoryview(steps), memoryview(results)]


class _Worker:
    """One forked process, and its slots."""

    def __init__(self, learner_of: LearnerOf, plugins: Sequence[PluginSource]) -> None:
        self._plugins = plugins
        self.memory = [_slot() for _ in range(SLOTS)]
        self.free = deque(range(SLOTS))
        self.doing: dict[int, WorkerStep] = {}
        self.socket, theirs = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                _become_worker(parent, theirs)
                _serve(theirs, self.memory, learner_of, plugins)
            os._exit(0)
        theirs.close()

    def start(self, step: WorkerStep) -> None:
        """Send a step to the worker. CannotCrossError if it cannot cross."""
        slot = self.free[0]
        fn: Any = step.fn
        draws: list[Any] | None = None
        if isinstance(fn, Seeded):
            draws = [fn.seed, fn.device]
            fn = fn.fn
        owner = getattr(fn, "__self__", None)
        task: list[Any] = [None, fn]
        if isinstance(owner, Learner):
            task = [owner.node, fn.__name__]
        elif isinstance(owner, Crew):
            nodes = [learner.node for learner in owner.learners]
            task = [nodes, fn.__name__]
        steps, _ = self.memory[slot]
        message = [draws, *task, *step.args]
        head = write(message, steps, self._plugins)
        self.free.popleft()
        self.doing[slot] = step
        token = _TOKEN.pack(slot, head)
        with contextlib.suppress(ConnectionError):  # `collect` detects it
            self.socket.sendall(token)

    def collect(self) -> bool:
        """Read the result of a step that is done. Returns whether the process is alive."""
        token = b""
        with contextlib.suppress(ConnectionError):
            token = self.socket.recv(_TOKEN.size, socket.MSG_WAITALL)
        if len(token) < _TOKEN.size:
            for step in self.doing.values():
                step.orphan()
            return False
        slot, head = _TOKEN.unpack(token)
        step = self.doing.pop(slot)
        _, results = self.memory[slot]
        if head < 0:
            step.failed = True
            step.problem = read(results, -1 - head, copy=True)
        elif not step.cancelled:
            step.value = read(results, head, copy=True)
        step.done = True
        self.free.append(slot)
        return True


def _free_slots(worker: _Worker) -> int:
    return len(worker.free)


class Workers:
    """``count`` worker processes. ``learner_of`` gives the learner of a node, in this process and in the workers.
    ``plugins``: those of the run, of which classes and functions cross between the processes."""

    def __init__(
        self,
        count: int,
        learner_of: LearnerOf,
        plugins: Sequence[PluginSource] = (),
    ) -> None:
        self._workers = [_Worker(learner_of, plugins) for _ in range(count)]
        self._waiting: deque[WorkerStep] = deque()
        self._warned = False
        self._broken = False  # a worker was killed: no step starts any more
        self._selector = selectors.DefaultSelector()
        for worker in self._workers:
            link = worker.socket
            self._selector.register(link, selectors.EVENT_READ, worker)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._selector.fileno(), self.collect)

    def warn(self, problem: str) -> None:
        """Warn of a step that failed in a worker but not here; once, because it may be every step."""
        if not self._warned:
            text = "a step failed in a worker and was repeated in the main process, which is slow: %s"
            log.warning(text, problem)
        self._warned = True

    def submit(self, fn: Function, *args: Any) -> WorkerStep:
        """Submit the step ``fn(*args)``. It starts as soon as a worker is free."""
        step = WorkerStep(self, fn, args)
        if self._broken:
            step.orphan()
        elif self._waiting or not self._start(step):
            self._waiting.append(step)
        return step

    def collect(self, wait: float = 0.0) -> None:
        """Read the results that are ready, and give the workers more steps. ``wait``: seconds to wait for a result."""
        for key, _ in self._selector.select(wait):
            is_alive = key.data.collect()
            if not is_alive:
                self._selector.unregister(key.fileobj)
                self._broken = True
        if self._broken:
            for step in self._waiting:
                step.orphan()
            self._waiting.clear()
        while self._waiting:
            step = self._waiting[0]
            if not step.cancelled and not self._start(step):
                return
            self._waiting.popleft()

    def close(self) -> None:
        """Kill the workers, whatever they do."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._selector.fileno())
        self._selector.close()
        for worker in self._workers:
            worker.socket.close()
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)

    def _start(self, step: WorkerStep) -> bool:
        """Start a step. False if no worker is free. True if a worker took it, or if it runs in this process later."""
        worker: _Worker = max(self._workers, key=_free_slots)
        if not worker.free:
            return False
        try:
            worker.start(step)
        except CannotCrossError:
            step.done = True
            step.failed = True  # `WorkerStep.result` runs it in this process
        return True


def _become_worker(parent: int, link: socket.socket) -> None:
    """Release everything that belongs to the parent, and end when the parent ends."""
    end_with(parent)
    ignore_signals()  # the parent handles the signals of the run
    signal.set_wakeup_fd(-1)
    gc.freeze()  # do not collect the parent's objects
    gc.set_threshold(*COLLECTING)
    torch.set_num_threads(1)  # a fork does not copy OpenMP's other threads, if the parent had any
    keep = link.fileno()
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep)
    os.closerange(keep + 1, most)


def _owner(nodes: str | list[str], learner_of: LearnerOf) -> Learner | Crew:
    """The learner of a node, or those of several that train together."""
    if isinstance(nodes, str):
        return learner_of(nodes)
    learners = [learner_of(node) for node in nodes]
    return Crew(learners)


def _run(step: list[Any], learner_of: LearnerOf) -> Any:
    """Run a step that was read from a slot, see `_Worker.start`."""
    draws, node, name = step[:3]
    arguments = step[3:]
    fn = name
    if node is not None:
        owner = _owner(node, learner_of)
        fn = getattr(owner, name)
    if draws is not None:
        fn = Seeded(fn, *draws)
    return fn(*arguments)


def _serve(
    link: socket.socket,
    memory: list[Slot],
    learner_of: LearnerOf,
    plugins: Sequence[PluginSource],
) -> None:
    while True:
        token = link.recv(_TOKEN.size, socket.MSG_WAITALL)
        if len(token) != _TOKEN.size:
            return
        slot, head = _TOKEN.unpack(token)
        steps, results = memory[slot]
        try:
            step = read(steps, head, copy=False)
            answer = write(_run(step, learner_of), results, plugins)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            head = write(problem[:1000], results)
            answer = -1 - head
        token = _TOKEN.pack(slot, answer)
        link.sendall(token)
