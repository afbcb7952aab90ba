"""The container of an agent that does the work: it has the rights that a service cannot have.

Its input holds it: the first line is its `Settings`, and at the end of the input it ends what it has made.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from orchestrator.agent.facts import examine
from orchestrator.agent.place import open_place
from orchestrator.agent.sensors import of_host
from orchestrator.agent.worker import Worker
from orchestrator.drivers.swarm.channel import AgentChannel
from orchestrator.drivers.swarm.settings import ORPHANED, Settings
from orchestrator.errors import HostError


async def work(host: str, folder: Path) -> int:
    """Serve the orchestrator until the input ends, the orchestrator is silent for the lease, this host fails, or
    SIGTERM. Returns the exit code."""
    loop = asyncio.get_running_loop()
    held = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(held), sys.stdin)
    settings = Settings.from_json(await held.readline())
    async with AsyncExitStack() as stack:
        channel = AgentChannel(settings.address, settings.keys, settings.server, lambda message: worker.notice(message))
        stack.push_async_callback(channel.close)
        logging.getLogger().addHandler(_Telling(channel.tell))
        worker = Worker(folder, channel.tell, open_place, examine, of_host)
        stack.push_async_callback(worker.close)
        hello = {
            "host": host,
            "pid": os.getpid(),
            "mtu": await underlay_mtu(settings.address),
            "version": importlib.metadata.version("edgebed"),
        }
        serving = asyncio.create_task(channel.serve(hello, worker.answer, settings.lease))
        loop.add_signal_handler(signal.SIGTERM, serving.cancel)
        ends = (serving, asyncio.create_task(held.read()), asyncio.create_task(worker.broken.wait()))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        orphaned = serving.done() and not serving.cancelled()
        for task in ends:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return ORPHANED if orphaned else 0


class _Telling(logging.Handler):
    """Tells the orchestrator what the agent logs."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("log", log="agent", data=f"{self.format(record)}\n".encode())


async def underlay_mtu(address: str) -> int:
    """The MTU in bytes of the interface towards ``tcp://ADDRESS:PORT``. HostError if there is no way there."""
    to = address.removeprefix("tcp://").rpartition(":")[0]
    (route,) = json.loads(await _said("ip", "-json", "route", "get", to))
    (interface,) = json.loads(await _said("ip", "-json", "link", "show", "dev", route["dev"]))
    return int(interface["mtu"])


async def _said(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, errors = await process.communicate()
    if process.returncode:
        raise HostError(f"`{' '.join(command)}` failed ({errors.decode().strip()})")
    return said
