"""A queue with one reader: `asyncio.Queue` without a limit, and without what several readers need."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in the order in which they were put in. Only one task may wait in ``get``."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: asyncio.Future[None] | None = None  # waits for an item

    def put(self, item: T) -> None:
        self._items.append(item)
        reader = self._reader
        self._reader = None
        if reader is not None and not reader.done():  # it is done if it was cancelled
            reader.set_result(None)

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop all other items."""
        self._items = deque(filter(wanted, self._items))

    def __len__(self) -> int:
        return len(self._items)

    async def get(self) -> T:
        """Remove and return the first item. Waits until there is one."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._items.popleft()
