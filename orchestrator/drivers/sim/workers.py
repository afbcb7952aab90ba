"""Processes that do the work of simulated nodes: forked from this one, they share its data sets and its code.

A step goes to a worker through memory that both have (a *slot*); only a few bytes that say so go through a socket. Two
slots each keep a worker busy while the simulation takes in what it did before. A step that cannot cross, such as a
function without a name, is done here when its result is asked for, and so is one that failed, so that it fails there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import mmap
import os
import selectors
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from node.learning.training import Learner
from orchestrator.drivers.sim.codec import CannotCrossError, read, write
from orchestrator.errors import RunError
from orchestrator.host.signals import ignore_signals

SLOTS = 2  # of each worker
SLOT_BYTES = 256 << 20  # each way; memory that is not used costs none
_TOKEN = struct.Struct(">iq")  # slot, and where in it the head is; -1: the step failed
COLLECTING = (700, 10, 10)  # Python's own thresholds: a step leaves few objects behind, but large ones
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Job:
    """A step for a worker: ``fn(*args)``."""

    def __init__(self, workers: Workers, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args
        self.done = self.failed = self.orphaned = self.cancelled = False
        self.value: Any = None
        self._workers = workers

    def result(self) -> Any:
        while not self.done:
            self._workers.collect(wait=True)
        if self.orphaned:
            raise RunError("a worker process of the simulation was killed; is there not enough memory on this host?")
        return self.fn(*self.args) if self.failed else self.value

    def cancel(self) -> bool:
        self.cancelled = True
        return True


class _Worker:
    """One forked process, and its slots."""

    def __init__(self, learner_of: Callable[[str], Learner]) -> None:
        self.memory = [[memoryview(mmap.mmap(-1, SLOT_BYTES)) for _ in range(2)] for _ in range(SLOTS)]  # in and out
        self.free = deque(range(SLOTS))
        self.doing: dict[int, Job] = {}
        self.socket, theirs = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                _become_worker(parent, theirs)
                _serve(theirs, self.memory, learner_of)
            os._exit(0)
        theirs.close()

    def start(self, step: Job) -> None:
        """Hand a step over. CannotCrossError if that cannot be."""
        slot = self.free[0]
        fn: Any = step.fn
        owner = getattr(fn, "__self__", None)
        task = [owner.node, fn.__name__] if isinstance(owner, Learner) else [None, fn]
        head = write([*task, *step.args], self.memory[slot][0])
        self.free.popleft()
        self.doing[slot] = step
        with contextlib.suppress(ConnectionError):  # collect() will notice
            self.socket.sendall(_TOKEN.pack(slot, head))

    def collect(self) -> bool:
        """Take in a step that is done; whether the process lives."""
        token = b""
        with contextlib.suppress(ConnectionError):
            token = self.socket.recv(_TOKEN.size, socket.MSG_WAITALL)
        if len(token) < _TOKEN.size:
            for step in self.doing.values():
                step.done = step.orphaned = True
            return False
        slot, head = _TOKEN.unpack(token)
        step = self.doing.pop(slot)
        if head >= 0 and not step.cancelled:
            step.value = read(self.memory[slot][1], head, copy=True)
        step.done, step.failed = True, head < 0
        self.free.append(slot)
        return True


class Workers:
    """``count`` processes. ``learner_of`` gives the learner of a node, here and, after the fork, there."""

    def __init__(self, count: int, learner_of: Callable[[str], Learner]) -> None:
        self._workers = [_Worker(learner_of) for _ in range(count)]
        self._waiting: deque[Job] = deque()
        self._selector = selectors.DefaultSelector()
        for worker in self._workers:
            self._selector.register(worker.socket, selectors.EVENT_READ, worker)
        asyncio.get_running_loop().add_reader(self._selector.fileno(), self.collect)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def submit(self, fn: Callable[..., Any], *args: Any) -> Job:
        """Have ``fn(*args)`` done, as soon as a worker is free."""
        step = Job(self, fn, args)
        if self._waiting or not self._start(step):
            self._waiting.append(step)
        return step

    def collect(self, wait: bool = False) -> None:
        """Take in what is done, after waiting for something if there is nothing; give the workers more to do."""
        for key, _ in self._selector.select(None if wait else 0):
            if not key.data.collect():
                self._selector.unregister(key.fileobj)
        while self._waiting:
            step = self._waiting[0]
            if not step.cancelled and not self._start(step):
                return
            self._waiting.popleft()

    def close(self) -> None:
        """End them, whatever they do."""
        asyncio.get_running_loop().remove_reader(self._selector.fileno())
        self._selector.close()
        for worker in self._workers:
            worker.socket.close()
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)

    def _start(self, step: Job) -> bool:
        """Whether a worker could take it, or it was done here."""
        worker: _Worker = max(self._workers, key=lambda each: len(each.free))
        if not worker.free:
            return False
        try:
            worker.start(step)
        except CannotCrossError:
            step.done = step.failed = True  # it is done where its result is asked for
        return True


def _become_worker(parent: int, link: socket.socket) -> None:
    """Leave everything of the parent's alone, and end with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    ignore_signals()  # the parent decides what becomes of the run
    signal.set_wakeup_fd(-1)
    gc.freeze()  # what came along is the parent's to look after
    gc.set_threshold(*COLLECTING)
    torch.set_num_threads(1)  # OpenMP's other threads, if the parent had any, did not come along
    keep = link.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def _serve(link: socket.socket, memory: list[list[memoryview]], learner_of: Callable[[str], Learner]) -> None:
    while len(token := link.recv(_TOKEN.size, socket.MSG_WAITALL)) == _TOKEN.size:
        slot, head = _TOKEN.unpack(token)
        try:
            node, name, *args = read(memory[slot][0], head, copy=False)
            fn = name if node is None else getattr(learner_of(node), name)
            answer = write(fn(*args), memory[slot][1])
        except Exception:
            answer = -1
        link.sendall(_TOKEN.pack(slot, answer))
