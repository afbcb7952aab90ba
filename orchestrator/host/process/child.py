"""A helper process that speaks JSON lines, such as the switch and the fork server.

A request is one JSON object with an ``id``, in one line on the child's standard input. Its reply has the same ``id``.
A line with ``event`` instead is an event. To end the child, the orchestrator closes the child's input. The kernel also
closes it when the orchestrator dies for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import ChildError
from orchestrator.text import how_ended
from orchestrator.together import within

LINE_LIMIT = 64 * 1024 * 1024  # bytes; counters of thousands of links come as one line
LAST_WORDS = 0.5  # s after the child's end for its last output, if another process keeps the output open

OnEvent = Callable[[dict[str, Any]], None]
_Reply = asyncio.Future[dict[str, Any]]


class JsonChild(asyncio.SubprocessProtocol):
    """One helper process. ``request`` awaits a reply, ``on_event`` receives events, ``ended`` is set at its end. The
    exit of the process is its end, not the end of its output: a process that it has forked may keep that open."""

    def __init__(self, name: str, log: str, on_event: OnEvent) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.ready = asyncio.Event()
        self._log = log
        self._on_event = on_event
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Reply] = {}
        self._unread = bytearray()
        self._read_all = False
        self._nonsense = ""
        self._transport: asyncio.SubprocessTransport

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        inherited: Mapping[str, str] | None = None,
        on_event: OnEvent = lambda event: None,
    ) -> JsonChild:
        """Start ``argv`` in its own session, so that Ctrl-C in a terminal reaches only the orchestrator. Its
        environment is ``inherited``, by default the environment of this process, updated with ``environment``."""
        if inherited is None:
            inherited = os.environ
        loop = asyncio.get_running_loop()
        with log.open("ab") as errors:
            _, child = await loop.subprocess_exec(
                lambda: cls(name, log.stem, on_event),
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**inherited, **environment},
                start_new_session=True,
            )
        return child

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    @property
    def ending(self) -> str:
        """How the child ended, and which log to read."""
        return f"{self.name} ended ({self._how_ended()}): see `logs {self._log}`"

    def _how_ended(self) -> str:
        if self._nonsense:
            return self._nonsense
        code = self.returncode
        if code is None:
            return "no exit code"
        return how_ended(code)

    async def wait_ready(self, timeout: float) -> None:
        """Wait for the child's first line, ``{"event": "ready"}``. ChildError if it ends or takes too long."""
        events = (self.ready, self.ended)
        waits = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.ended.is_set():
            raise ChildError(self.ending)
        if not self.ready.is_set():
            raise ChildError(f"{self.name} did not become ready within {timeout:.0f} s: see `logs {self._log}`")

    async def watch(self) -> None:
        """Wait for the child's end, and raise it as ChildError."""
        await self.ended.wait()
        raise ChildError(self.ending)

    async def request(
        self,
        op: str,
        timeout: float = 30.0,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send one request and return its reply. ChildError if the child refuses, ends or does not answer in time."""
        if self.ended.is_set():
            raise ChildError(self.ending)
        number = next(self._ids)
        reply: _Reply = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        line = json.dumps({"id": number, "op": op, **fields}) + "\n"
        self._input.write(line.encode())
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
        """Close the child's input and wait ``grace`` seconds for its end. Kill it if it does not end."""
        self._input.close()
        ended = await within(grace, self.ended.wait())
        if not ended:
            self._kill()
            await self.ended.wait()
        self._transport.close()

    # The callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._unread += data
        lines: list[bytearray] = []
        if b"\n" in data:
            lines = self._unread.split(b"\n")
            self._unread = lines.pop()
        if len(self._unread) > LINE_LIMIT:
            lines.append(self._unread)
        for line in lines:
            if not self._nonsense:
                self._handle(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._read_all = True
            if self.returncode is not None:
                self._end()

    def process_exited(self) -> None:
        if self._read_all:
            self._end()
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(LAST_WORDS, self._end)

    @property
    def _input(self) -> asyncio.WriteTransport:
        pipe = self._transport.get_pipe_transport(0)
        return cast(asyncio.WriteTransport, pipe)

    def _handle(self, line: bytearray) -> None:
        match _parsed(line):
            case {"event": event, **_rest} as message:
                if event == "ready":
                    self.ready.set()
                self._on_event(message)
            case {"id": int(number), **_rest} as message:
                reply = self._waiting.get(number)
                if reply is not None and not reply.done():
                    reply.set_result(message)
            case _:
                # A child that writes nonsense is killed, so that no request waits for it.
                start = bytes(line[:80]).decode(errors="replace")
                self._nonsense = f"it wrote {start!r}, which is not a message"
                self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._transport.kill()

    def _end(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ChildError(self.ending))


def _parsed(line: bytearray) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
