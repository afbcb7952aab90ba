"""An asyncio event loop on a virtual clock. When nothing is ready, time jumps to the next timer.

Code that knows time only through asyncio runs on it unchanged, and as fast as its work allows. A wait of an hour
costs nothing. If nothing is ready and no timer is set, no task can ever continue. That is a deadlock, and an error.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

COLLECT = (500_000, 50, 100)  # see gc.set_threshold
NAMED = 20  # tasks that a deadlock names


class DeadlockError(RuntimeError):
    """Every task waits and no timer is set. The message names the tasks and the places where they wait."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never sleeps. Instead of waiting for a timer it advances the clock to it."""

    def __init__(self, stuck: Callable[[], None]) -> None:
        super().__init__()
        self.now = 0.0
        self._stuck = stuck

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                self._stuck()
            else:
                self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. ``time()`` starts at 0 and is exact.

    At a deadlock ``on_deadlock``, if set, is called with the list of waiting tasks, and may end their waits. Otherwise
    DeadlockError is raised.

    A descriptor that becomes ready is handled in no virtual time, but time does not wait for descriptors. So work for a
    thread (``run_in_executor``, ``asyncio.to_thread``) is done at once, in no virtual time: else the load of the host
    would decide how far time jumps meanwhile.
    """

    def __init__(self) -> None:
        self.on_deadlock: Callable[[str], None] | None = None
        self._jumping = _JumpingSelector(self._stuck)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call ``func`` at once, in this thread."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _stuck(self) -> None:
        told, self.on_deadlock = self.on_deadlock, None
        if told is None:
            raise DeadlockError(self._who_waits())
        told(self._who_waits())

    def _who_waits(self) -> str:
        lines = []
        for task in asyncio.all_tasks(self):
            frames = task.get_stack(limit=1)
            where = f"{frames[0].f_code.co_qualname} (line {frames[0].f_lineno})" if frames else "?"
            lines.append(f"  {task.get_name()} waits in {where}")
        more = f"\n  and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
        return "nothing is ready and no timer is set:\n" + "\n".join(sorted(lines)[:NAMED]) + more


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """``asyncio.run`` on a virtual clock. ``loop``: a loop that the caller prepared.

    The garbage collector runs less often meanwhile. The objects of thousands of nodes all stay alive, and searching
    them for cycles would take more time than everything else.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECT)
    try:
        return _run(main, loop)
    finally:
        gc.set_threshold(*usual)


def _run(main: Coroutine[Any, Any, T], loop: VirtualLoop | None) -> T:
    with asyncio.Runner(loop_factory=(lambda: loop) if loop is not None else VirtualLoop) as runner:
        return runner.run(main)
