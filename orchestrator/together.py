"""Several works at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Run all to their ends, then raise the first error."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def within(seconds: float | None, work: Awaitable[object]) -> bool:
    """Wait for ``work``, at most so long; then it is cancelled. Returns whether it has ended."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return False
    return True


class Tasks:
    """Tasks that run until their ends, or until their owner cancels them."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def cancel(self) -> None:
        """Cancel all, and wait for their ends."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
