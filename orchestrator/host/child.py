"""A helper process that answers JSON lines: the switch and the fork server are spoken to this way.

A request is one object a line on the child's standard input, with an ``id``; its reply carries the same ``id``.
A line with ``event`` instead is news. Closing the child's input is how it is asked to end, and that happens by
itself when the orchestrator dies, however it dies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ChildError

_LINE_LIMIT = 64 * 1024 * 1024  # counters of thousands of links come as one line


class JsonChild:
    """One helper process: ``request`` awaits its reply, ``on_event`` hears news, ``ended`` is set when it is gone."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self.name = name
        self.process = process
        self.ended = asyncio.Event()
        self.ready = asyncio.Event()
        self._on_event = on_event
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read(), name=f"read {name}")

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> JsonChild:
        """Start ``argv`` in a session of its own, so that Ctrl-C in a terminal reaches only the orchestrator."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
        return cls(name, process, on_event)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait_ready(self, timeout: float) -> None:
        """Wait for the child's first word, ``{"event": "ready"}``."""
        await self._wait_for(self.ready, timeout, "did not become ready")

    async def request(self, op: str, timeout: float = 30.0, **fields: Any) -> dict[str, Any]:
        """Send one request and return its reply; ChildError if the child refuses, ends or stays silent."""
        if self.ended.is_set():
            raise ChildError(f"{self.name} has ended (exit code {self.process.returncode})")
        number = next(self._ids)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"id": number, "op": op, **fields}) + "\n").encode())
        try:
            async with asyncio.timeout(timeout):
                answer = await reply
        except TimeoutError:
            raise ChildError(f"{self.name} did not answer '{op}' within {timeout:.0f} s") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise ChildError(f"{self.name} refused '{op}': {answer['error']}")
        return answer

    async def close(self, grace: float = 5.0) -> None:
        """Close the child's input, wait for it to end, and kill it if it does not."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(grace):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await self._reader

    async def _wait_for(self, event: asyncio.Event, timeout: float, complaint: str) -> None:
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self.ended.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not event.is_set():
            ending = f" (exit code {self.process.returncode})" if self.ended.is_set() else f" within {timeout:.0f} s"
            raise ChildError(f"{self.name} {complaint}{ending}")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            if "event" in message:
                if message["event"] == "ready":
                    self.ready.set()
                self._on_event(message)
            elif (reply := self._waiting.get(message["id"])) is not None and not reply.done():
                reply.set_result(message)
        await self.process.wait()
        self.ended.set()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ChildError(f"{self.name} ended (exit code {self.process.returncode})"))
