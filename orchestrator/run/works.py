"""The concurrent work of a run, and how the run ends. An error in the work ends the run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ending:
    """Why a run ended: "rounds", "accuracy", "after", "programs", "interrupted" or "failed" with its error."""

    reason: str
    error: str | None = None


class Works:
    """The tasks of a run. ``ended``: how the run ends, once that is known."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def finish(self, reason: str, error: str | None = None) -> None:
        """End the run. Only the first call counts."""
        if not self.ended.done():
            self.ended.set_result(Ending(reason, error))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` concurrently. An error in it ends the run with that error. Does nothing after ``close``."""
        if self._closed:
            work.close()
            return

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.finish("failed", str(error) or type(error).__name__)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never starts ``work``

    async def close(self) -> None:
        """Cancel all work, and take no more."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
