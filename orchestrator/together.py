"""Several works at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Run all to their ends, then raise the first error."""
    for error in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error
