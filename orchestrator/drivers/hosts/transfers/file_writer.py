"""Writes files in one thread and in order, so that a slow disk does not stop the event loop, which renews leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

logger = logging.getLogger(__name__)


class FileWriter:
    """``add`` and ``then`` return immediately. The thread starts with the first call, and ends with this object."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "files")

    def add(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call a function that writes, in the thread. Its error is logged."""
        self._thread.submit(_run_logged, write, *arguments)

    def then(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop when everything that was added before is written."""
        loop = asyncio.get_running_loop()
        self._thread.submit(loop.call_soon_threadsafe, call, *arguments)

    async def flush(self) -> None:
        """Wait until everything that was added before is written."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, lambda: None)


def _run_logged(write: Callable[..., None], *arguments: Any) -> None:
    try:
        write(*arguments)
    except (OSError, ValueError) as error:  # ValueError: of a name that is none
        logger.error("a file of the run was not written: %s", error)
