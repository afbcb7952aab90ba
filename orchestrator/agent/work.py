"""The work of an agent: to serve an orchestrator.

Its input holds it: the first line is its `Settings`, and at the end of the input it ends what it has made. In a pod it
has no input, and ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.agent.worker import Tell, Worker
from orchestrator.drivers.hosts.agents.channel import AgentChannel
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.settings import ORPHANED, Settings
from orchestrator.host.kernel.routes import way_to

Make = Callable[[Settings, Path, Tell], Worker]

WAIT = 60.0  # s after which an agent that waits for an orchestrator says hello again


async def work(
    host: str,
    folder: Path,
    make: Make,
    line: bytes | None = None,
) -> int:
    """Serve an orchestrator until the input ends, the orchestrator is silent or releases this agent, this host fails,
    or SIGTERM arrives. An agent that was left running waits for an orchestrator. ``line`` stands for an input without
    end. Returns the exit code."""
    loop = asyncio.get_running_loop()
    held = asyncio.StreamReader()
    if line is None:
        protocol = asyncio.StreamReaderProtocol(held)
        await loop.connect_read_pipe(lambda: protocol, sys.stdin)
    else:
        held.feed_data(line + b"\n")
    first_line = await held.readline()
    settings = Settings.from_json(first_line)
    end = asyncio.create_task(held.read())
    loop.add_signal_handler(signal.SIGTERM, end.cancel)
    while True:
        code = await _serve(settings, host, folder, make, end)
        if code is not None:
            return code
        # Its hello may have gone to an orchestrator that has ended since: say hello again.


async def _serve(
    settings: Settings,
    host: str,
    folder: Path,
    make: Make,
    end: asyncio.Task[bytes],
) -> int | None:
    """Serve one orchestrator, at most until ``end``. Returns the exit code; None to say hello again."""
    async with AsyncExitStack() as stack:

        def notice(message: Message) -> None:
            worker.notice(message)

        channel = AgentChannel(settings.address, settings.keys, settings.server, notice)
        stack.push_async_callback(channel.close)
        forwarder = _LogForwarder(channel.tell)
        root_logger = logging.getLogger()
        root_logger.addHandler(forwarder)
        stack.callback(root_logger.removeHandler, forwarder)
        worker = make(settings, folder, channel.tell)
        stack.push_async_callback(worker.close)
        orchestrator_host, _, _port = settings.address.removeprefix("tcp://").rpartition(":")
        address, mtu = way_to(orchestrator_host)
        hello = {
            "host": host,
            "pid": os.getpid(),
            "address": address,
            "mtu": mtu,
            "version": importlib.metadata.version("edgebed"),
        }
        waits = WAIT if settings.standing else settings.lease
        service = channel.serve(hello, worker.answer, settings.lease, waits)
        serving = asyncio.create_task(service)
        over = asyncio.create_task(worker.over.wait())
        tasks = (serving, end, over)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        orphaned = serving.done()
        if end.cancelled():
            channel.tell("broken", error="its agent received SIGTERM")
        for task in (serving, over):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if not orphaned:
            return 0
        if settings.standing and not channel.has_contact:
            return None
        return ORPHANED


class _LogForwarder(logging.Handler):
    """Sends the orchestrator what the agent logs. Any thread may log; only that of the event loop uses the channel."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        data = f"{self.format(record)}\n".encode()
        send = partial(self._tell, "log", log="agent", data=data)
        self._loop.call_soon_threadsafe(send)
