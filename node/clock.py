"""An asyncio event loop on a virtual clock: when nothing is ready, time jumps to the next timer.

Code that knows time only through asyncio runs unchanged on it, and as fast as its work allows; a wait of an hour
costs nothing. If nothing is ready and no timer is set, nobody can ever go on: that is a deadlock, and an error.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """Every coroutine waits and no timer is set; the message names who waits for what."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: where the loop would wait for a timer, it moves the clock there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise DeadlockError(_who_waits())
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; ``time()`` starts at 0 and is exact."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def _who_waits() -> str:
    lines = []
    for task in asyncio.all_tasks(asyncio.get_event_loop()):
        frames = task.get_stack(limit=1)
        where = f"{frames[0].f_code.co_qualname} (line {frames[0].f_lineno})" if frames else "?"
        lines.append(f"  {task.get_name()} waits in {where}")
    return "nothing is ready and no timer is set:\n" + "\n".join(sorted(lines))
