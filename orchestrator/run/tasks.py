"""The concurrent work of a run, and how the run ends. An error in the work ends the run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.record.directory import RunDirectory
from orchestrator.together import Tasks

HOST_REFUSES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
)


@dataclass(frozen=True)
class Ending:
    """Why a run ended: "rounds", "accuracy", "target", "after", "bytes", "programs", "interrupted" or "failed" with an
    error."""

    reason: str
    error: str | None = None


def ending_after(error: Exception, directory: RunDirectory) -> Ending:
    """The ending of a run with an error. The traceback of a bug is written to logs/orchestrator.log."""
    if isinstance(error, OrchestratorError):
        return Ending("failed", str(error))
    if isinstance(error, OSError) and error.errno in HOST_REFUSES:
        what = f"{error.filename}: " if error.filename else ""
        return Ending("failed", f"{what}{error.strerror}: this host has run out of what {directory.run} needs")
    log = directory.logs / "orchestrator.log"
    lines = traceback.format_exception(error)
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(lines)
    return Ending("failed", f"{type(error).__name__}: {error} (a bug of edgebed: please report {log})")


class Works:
    """The tasks of a run. ``ended``: how the run ends, once that is known."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks()
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
            except Exception as error:
                ending = ending_after(error, self._directory)
                self.finish(ending.reason, ending.error)

        task = self._tasks.start(guarded())
        task.add_done_callback(lambda _: work.close())  # a task cancelled before its first step never starts ``work``

    async def close(self) -> None:
        """Cancel all work, and take no more."""
        self._closed = True
        await self._tasks.cancel()
