"""An asyncio event loop on a virtual clock. When nothing is ready, time jumps to the next timer.

Code that knows time only through asyncio runs on it unchanged, and as fast as its work allows. A wait of an hour
costs nothing. If nothing is ready and no timer is set, no task can ever continue. That is a deadlock, and an error.

A `Pace` slows the clock for those who watch. It delays the jumps and changes none of them, so what the code does stays
the same to the last bit.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

COLLECT = (500_000, 50, 100)  # see gc.set_threshold
NAMED = 20  # tasks that a deadlock names
COARSE = 2.0**24  # s; from then on, neighbouring times are further apart than asyncio's resolution of 1e-9 s
MOST_BEHIND = 0.5  # s of the host's time that a paced clock makes up for, after work that took longer than its pace

_Ready = list[tuple[selectors.SelectorKey, int]]


class DeadlockError(RuntimeError):
    """Every task waits and no timer is set. The message names the tasks and the places where they wait."""


class Pace:
    """How fast a virtual clock goes: ``rate`` virtual seconds in each second of the host, None: as fast as it can.
    While it is ``held`` it is paused."""

    def __init__(self, host: Callable[[], float] = time.monotonic) -> None:
        self.rate: float | None = None
        self.held = False
        self._host = host
        self._since = (0.0, 0.0)  # a virtual time, and the host's time at which it was due

    @property
    def free(self) -> bool:
        """Whether the clock goes as fast as it can."""
        return self.rate is None and not self.held

    def set(self, t: float, rate: float | None, *, held: bool = False) -> None:
        """Go at ``rate`` from the virtual time ``t`` on, or pause at it. ValueError unless rate > 0."""
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"a pace is above 0 virtual seconds in a second, not {rate:g}")
        self.rate = rate
        self.held = held
        self._since = (t, self._host())

    def wait(self, t: float) -> float | None:
        """The seconds until the virtual time ``t`` is due; None: never, because the clock is held."""
        if self.held:
            return None
        if self.rate is None:
            return 0.0
        due = self._due(t, self.rate)
        return max(0.0, due - self._host())

    def reach(self, t: float) -> None:
        """Note that the clock has come to the virtual time ``t``."""
        if self.rate is None:
            return
        due = self._due(t, self.rate)
        earliest = self._host() - MOST_BEHIND
        self._since = (t, max(due, earliest))

    def present(self) -> float:
        """The virtual time that is due at this moment, if the pace is not free."""
        since, host = self._since
        if self.held or self.rate is None:
            return since
        passed = self._host() - host
        return since + passed * self.rate

    def _due(self, t: float, rate: float) -> float:
        since, host = self._since
        return host + (t - since) / rate


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that sleeps only to keep its ``pace``. Instead of waiting for a timer it advances the clock to it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.now = 0.0
        self.pace = Pace()
        self._loop = loop
        self._next = 0.0  # the time of the timer that it waited for last

    def select(self, timeout: float | None = None) -> _Ready:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            self._loop.stuck()
        elif timeout > 0:
            self._next = self.now + timeout
            if not self.pace.free:
                ready = self._keep_pace()
                if ready or self.pace.held:
                    return ready  # the clock has not moved: it will make the same jump later
            self.now = self._next
            if self.now >= COARSE:
                self._loop._clock_resolution = math.ulp(self.now)  # otherwise no timer would ever be due
        return ready

    def present(self) -> float:
        """The time that is due at this moment at the pace, between now and the next timer."""
        if self.pace.free:
            return self.now
        due = max(self.now, self.pace.present())
        return min(self._next, due)

    def _keep_pace(self) -> _Ready:
        """Wait until the next timer is due, or a descriptor is ready."""
        wait = self.pace.wait(self._next)
        ready: _Ready = []
        if wait != 0:
            ready = super().select(wait)
        if not ready:
            self.pace.reach(self._next)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. ``time()`` starts at 0 and is exact.

    At a deadlock ``on_deadlock``, if set, is called with the list of waiting tasks, and may end their waits. Otherwise
    DeadlockError is raised.

    ``pace``: how fast time goes for those who watch. By default as fast as it can.

    A descriptor that becomes ready is handled in no virtual time, but time does not wait for descriptors. So work for a
    thread (``run_in_executor``, ``asyncio.to_thread``) is done immediately, in no virtual time: otherwise the load of
    the host would decide how far time jumps while it runs.
    """

    def __init__(self) -> None:
        self.on_deadlock: Callable[[str], None] | None = None
        self._clock_resolution = 0.0  # of asyncio, which sets it
        self._jumping = _JumpingSelector(self)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    @property
    def pace(self) -> Pace:
        return self._jumping.pace

    def set_pace(self, rate: float | None, *, held: bool = False) -> None:
        """Go at another pace from this moment on, see `Pace.set`."""
        now = self._jumping.present()
        self.pace.set(now, rate, held=held)

    def catch_up(self) -> None:
        """Advance the clock to the time that is due at this moment. What comes from outside then happens at its own
        time, and not at that of the last timer. The next jump is another one: its time may differ in the last bit."""
        self._jumping.now = self._jumping.present()

    @property
    def ahead(self) -> float:
        """The seconds from the clock's time to the time that is due at this moment."""
        return self._jumping.present() - self._jumping.now

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Call ``func`` immediately, in this thread."""
        done: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
            done.set_result(result)
        except Exception as error:
            done.set_exception(error)
        return done

    def stuck(self) -> None:
        callback = self.on_deadlock
        self.on_deadlock = None
        if callback is None:
            raise DeadlockError(self._who_waits())
        callback(self._who_waits())

    def _who_waits(self) -> str:
        """What each task waits for. Tasks of nodes have names, which come before those that asyncio gave."""
        lines: list[str] = []
        for task in asyncio.all_tasks(self):
            frames = task.get_stack(limit=1)
            where = "?"
            if frames:
                frame = frames[0]
                where = f"{frame.f_code.co_qualname} (line {frame.f_lineno})"
            lines.append(f"  {task.get_name()} waits in {where}")
        lines.sort(key=_names_of_nodes_first)
        text = "nothing is ready and no timer is set:\n" + "\n".join(lines[:NAMED])
        more = len(lines) - NAMED
        if more > 0:
            text += f"\n  and {more} more"
        return text


def _names_of_nodes_first(line: str) -> tuple[bool, str]:
    named_by_asyncio = line.lstrip().startswith("Task-")
    return named_by_asyncio, line


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """``asyncio.run`` on a virtual clock. ``loop``: a loop that the caller prepared.

    The garbage collector runs less often while it runs.
    """
    if loop is None:
        loop = VirtualLoop()
    virtual = loop
    with collecting_seldom(), asyncio.Runner(loop_factory=lambda: virtual) as runner:
        return runner.run(main)


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Let the garbage collector run less often. The objects of thousands of nodes all stay alive, and searching them
    for cycles would take more time than everything else."""
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
