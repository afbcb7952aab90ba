"""Coalescing of simultaneous link changes into one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from netem.media.profile import Crossing
from netem.profile import LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import Errors, LinkChange

Alter = Callable[[Sequence[LinkChange]], Awaitable[Errors]]


class Coalescing:
    """The methods ``change``, ``reroute``, ``cut`` and ``restore`` of a Fabric, over its ``alter``. Requests in one
    turn of the event loop become one ``alter``. So do requests that arrive during the previous ``alter``. An engine
    with a high cost per call is then not slower for many links than for one."""

    def __init__(self, alter: Alter) -> None:
        self._alter = alter
        self._waiting: list[tuple[LinkChange, asyncio.Future[None]]] = []
        self._working: asyncio.Task[None] | None = None

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        change = LinkChange(source, target, profile=profile)
        await self._do(change)

    async def reroute(self, source: str, target: str, crossings: tuple[Crossing, ...]) -> None:
        change = LinkChange(source, target, crossings=crossings)
        await self._do(change)

    async def cut(self, source: str, target: str) -> None:
        change = LinkChange(source, target, cut=True)
        await self._do(change)

    async def restore(self, source: str, target: str) -> None:
        change = LinkChange(source, target, cut=False)
        await self._do(change)

    async def _do(self, change: LinkChange) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((change, done))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting
                self._waiting = []
                changes = [change for change, _ in batch]
                try:
                    errors = await self._alter(changes)
                    if len(errors) != len(batch):
                        raise FabricError(f"the engine gave {len(errors)} results of {len(batch)} changes")
                except Exception as failure:  # of the whole batch
                    errors = [failure] * len(batch)
                for (_, done), error in zip(batch, errors, strict=True):
                    if done.done():
                        continue  # its caller was cancelled
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        finally:
            self._working = None
