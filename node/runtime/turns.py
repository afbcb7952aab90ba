"""How the nodes of one host take turns at its processors: long ones, and no more at a time than it has processors.

Many nodes that compute at once on few processors push each other's data out of the caches: ten that took turns of 3 ms
needed 30 to 36 ms of processor for a training of 24. Two things help. A computing thread asks the scheduler for long
turns. But each message that wakes some other thread ends such a turn, and then the scheduler picks whoever waited
longest; so nodes also wait for one another before they compute.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import threading
import time

TURN = 0.1  # s, the longest that Linux grants
_LOOK = 0.005  # s between two looks at a semaphore, where the C library cannot wait on a steady clock
PATIENCE = 1.0  # s; a waiting node then computes beside the others, as it does without turns


class Turns:
    """The turns of all nodes that will be forked from the process that makes this."""

    def __init__(self, at_once: int) -> None:
        self._free = Semaphore(at_once)

    def of_a_node(self) -> Turn:
        return Turn(self._free)


class Turn:
    """One node's, entered by the thread that computes. Who forked the node gives it back for it if the node is
    killed or stopped in between.

    Whoever computes for long keeps it for `TURN` only, and goes on without: nobody waits for a long step of another.
    Should a node be killed in the very moment between taking a turn and noting that, one turn is lost, and should it be
    stopped while it gives one back, one may be there twice: others then wait for `PATIENCE` or compute side by side.
    """

    def __init__(self, free: Semaphore) -> None:
        self._free = free
        self._held = mmap.mmap(-1, 1)  # shared with who forks the node
        self._changing = threading.Lock()
        self._since = 0.0

    def __enter__(self) -> None:
        """Wait until fewer nodes compute than the host has processors, for `PATIENCE` at most."""
        if self._free.acquire(PATIENCE):
            self._since = time.monotonic()
            self._held[0] = 1

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self, after: float = 0.0) -> None:
        """If it is held, and has been for ``after`` s: let the next one compute."""
        with self._changing:
            if self._held[0] and time.monotonic() - self._since >= after:
                self._held[0] = 0
                self._free.release()


class Semaphore:
    """Of POSIX (sem_overview(7)), in memory shared with forked processes. Python's own wants a file system for it."""

    SIZE = 32  # bytes; sizeof(sem_t) where it is largest

    def __init__(self, value: int) -> None:
        self._memory = mmap.mmap(-1, self.SIZE)
        self._address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._memory)))
        self._library = ctypes.CDLL(None)
        self._library.sem_init(self._address, 1, value)
        # On a clock that nobody sets: the other one may step back, and the wait would last as much longer.
        self._wait = getattr(self._library, "sem_clockwait", None)

    def acquire(self, patience: float) -> bool:
        """Count down by one, once that is possible; False if it was not for ``patience`` s."""
        until = time.monotonic() + patience
        if self._wait is not None:
            deadline = ctypes.byref(_Timespec.of(until))
            return bool(self._wait(self._address, time.CLOCK_MONOTONIC, deadline) == 0)
        while self._library.sem_trywait(self._address) != 0:  # glibc before 2.30, and other C libraries
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK)
        return True

    def release(self) -> None:
        self._library.sem_post(self._address)


class _Timespec(ctypes.Structure):
    """timespec(3type)."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    @classmethod
    def of(cls, seconds: float) -> _Timespec:
        whole = int(seconds)
        return cls(whole, int((seconds - whole) * 1e9))


def take_long_turns() -> None:
    """Ask the scheduler to let this thread compute for `TURN` s at a time, where the default is about 3 ms.

    A thread with shorter turns, such as one that moves messages, still comes first when it wakes. Linux 6.12 and later
    (sched_setattr(2), ``sched_runtime`` of SCHED_OTHER); elsewhere nothing changes.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if sys.platform == "linux" and number is not None:
        size, policy, flags, nice, priority = 48, os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0
        runtime, deadline, period = int(TURN * 1e9), 0, 0
        attributes = struct.pack("=IIQiIQQQ", size, policy, flags, nice, priority, runtime, deadline, period)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
