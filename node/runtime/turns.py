"""Turns of the nodes of one host at its processors. Turns are long, and at most one node per processor has one.

Many nodes that compute at the same time on few processors evict each other's data from the caches: ten nodes with turns
of 3 ms needed 30 to 36 ms of processor time for a training of 24 ms. Two measures help. A computing thread asks the
scheduler for long turns. But each message that wakes another thread ends such a turn, and the scheduler then picks the
thread that waited longest. So nodes also wait for each other before they compute. In a large run, devices give way to
their parents.
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
_LOOK = 0.005  # s between two polls of a semaphore, if the C library cannot wait on a monotonic clock
NICENESS = 10  # of processes that give way to others, also of their session: a weight of 110 instead of 1024
PATIENCE = 1.0  # s; then a waiting node computes concurrently with the others, as without turns


class Turn:
    """The turn of one node, entered by the computing thread. All nodes that one process forks share the turns that are
    ``free``. If the node is killed or stopped in between, that process gives its turn back.

    A long step keeps the turn for `TURN` only and continues without it, so no node waits for a long step of another.
    If a node is killed between taking a turn and noting it, one turn is lost. If a node is stopped while it gives a
    turn back, the turn may exist twice. Other nodes then wait for `PATIENCE`, or compute concurrently.
    """

    def __init__(self, free: Semaphore) -> None:
        self._free = free
        self._held = mmap.mmap(-1, 1)  # shared with the process that forks the node
        self._changing = threading.Lock()
        self._since = 0.0

    def __enter__(self) -> None:
        """Wait until fewer nodes compute than the host has processors, for `PATIENCE` s at most."""
        if self._free.acquire(PATIENCE):
            self._since = time.monotonic()
            self._held[0] = 1

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self, after: float = 0.0) -> None:
        """Give the turn to the next node, if this node has held it for ``after`` s."""
        with self._changing:
            if not self._held[0]:
                return
            if time.monotonic() - self._since >= after:
                self._held[0] = 0
                self._free.release()


class Semaphore:
    """A POSIX semaphore (sem_overview(7)) in memory shared with forked processes. Python's needs a file system."""

    SIZE = 32  # bytes; the largest sizeof(sem_t) of any platform

    def __init__(self, value: int) -> None:
        self._memory = mmap.mmap(-1, self.SIZE)
        semaphore = ctypes.c_char.from_buffer(self._memory)
        self._address = ctypes.c_void_p(ctypes.addressof(semaphore))
        self._library = ctypes.CDLL(None)
        self._library.sem_init(self._address, 1, value)
        # The wait must be on the monotonic clock: the other clock may step back, which would lengthen the wait.
        self._wait = getattr(self._library, "sem_clockwait", None)

    def acquire(self, patience: float) -> bool:
        """Decrement, when the count allows it. False if it did not within ``patience`` s."""
        until = time.monotonic() + patience
        if self._wait is not None:
            seconds = int(until)
            nanoseconds = int(until % 1 * 1e9)
            deadline = ctypes.byref(_Timespec(seconds, nanoseconds))
            result = self._wait(self._address, time.CLOCK_MONOTONIC, deadline)
            return bool(result == 0)
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


def take_long_turns() -> None:
    """Ask the scheduler to let this thread compute for `TURN` s at a time. The default is about 3 ms.

    A thread with shorter turns, such as one that handles messages, still preempts it. Needs Linux 6.12 or later
    (sched_setattr(2), ``sched_runtime`` of SCHED_OTHER). Elsewhere nothing changes.
    """
    numbers = {"x86_64": 314, "aarch64": 274}
    number = numbers.get(os.uname().machine)
    if sys.platform == "linux" and number is not None:
        size = 48
        policy = os.SCHED_OTHER
        flags = 0
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        priority = 0
        runtime = int(TURN * 1e9)
        deadline = 0
        period = 0
        attributes = struct.pack("=IIQiIQQQ", size, policy, flags, nice, priority, runtime, deadline, period)
        libc = ctypes.CDLL(None)
        libc.syscall(number, 0, attributes, 0)
