"""The work of an agent: it serves an orchestrator over loopback."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

from orchestrator.agent.work import work
from orchestrator.agent.worker import Worker
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import LEASE, Settings
from orchestrator.planning.keys import keypair

LOOPBACK, PATIENCE = "127.0.0.1", 20.0


class Logging:
    """A worker whose calls log in a thread, as urllib3 does when many threads use the Engine."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def answer(self, call: str, arguments: Message) -> Any:
        await asyncio.to_thread(logging.getLogger("urllib3").warning, "the pool is full")
        return "done"

    async def close(self) -> None:
        pass


async def test_what_threads_log_reaches_the_orchestrator(tmp_path: Path) -> None:
    server, keys, worker = keypair(), keypair(), Logging()
    events: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
    agents = Agents(server, keys.public, LEASE, lambda host, event: events.put_nowait((host, event)))
    address = f"tcp://{LOOPBACK}:{agents.listen(LOOPBACK)}"
    settings = Settings(run="run", address=address, server=server.public, keys=keys, lease=LEASE)
    working = asyncio.create_task(work("pc", tmp_path, lambda *_: cast(Worker, worker), settings.to_json()))
    try:
        assert await agents.wait_for(["pc"], PATIENCE) == []
        assert await agents.request("pc", "any", {}, PATIENCE) == "done"
        async with asyncio.timeout(PATIENCE):
            host, event = await events.get()
        assert (host, event["name"], event["log"], event["data"]) == ("pc", "log", "agent", b"the pool is full\n")
    finally:
        worker.over.set()
        assert await working == 0
        await agents.close()
