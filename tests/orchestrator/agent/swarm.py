"""A swarm in this process: its agents live in the event loop of the test, over loopback."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from orchestrator.agent.worker import Examine, Worker
from orchestrator.drivers.hosts.agents.channel import AgentChannel
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.settings import FILE, Settings
from orchestrator.drivers.swarm.cluster import Agent, SwarmHost
from tests.fakes.swarm import FakeCluster


async def _no_run(*_: Any) -> Any:
    raise AssertionError("no run begins")


async def _nobody_asks(*_: Any) -> Any:
    raise AssertionError("nobody examines the host")


class ClusterOfAgents(FakeCluster):
    """A fake swarm with real agents. ``examine`` gives each host what its agent examines with, or the error with
    which the agent does not begin. ``hello`` is what each agent says besides."""

    def __init__(
        self, members: Sequence[SwarmHost], folder: Path, examine: Callable[[str], Examine | str], hello: Message
    ) -> None:
        super().__init__(members)
        self.calls: list[str] = []
        self._settings: Settings
        self._agents: dict[str, AsyncExitStack] = {}
        self._folder, self._examine, self._hello = folder, examine, hello
        self._loop = asyncio.get_running_loop()
        self._stack = AsyncExitStack()
        self._failed: dict[str, str] = {}
        self.started = asyncio.Event()

    def start_agents(
        self, run: str, directory: Path, *_: Any, hosts: Collection[str] | None = None, **others: Any
    ) -> None:
        assert directory.is_dir()
        super().start_agents(run, directory, hosts=hosts)
        self.calls.append(f"start {', '.join(sorted(hosts or ()))}")
        settings = Settings.from_json(others["secrets"][FILE])
        asyncio.run_coroutine_threadsafe(self._begin(settings, hosts or ()), self._loop).result()

    def agents(self, run: str) -> dict[str, Agent]:
        return {host: Agent("rejected", error) for host, error in self._failed.items()}

    def stop_agents(self, run: str) -> list[str]:
        self.calls.append("stop")
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result()
        return []

    async def end(self, host: str) -> None:
        """Have the agent of a host fall silent, and forget what it has made."""
        await self._agents.pop(host).aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder / host)

    async def begin(self, host: str) -> None:
        """Let the agent of a host begin again."""
        await self._serve(host, self._settings, _nobody_asks)

    async def _begin(self, settings: Settings, hosts: Collection[str]) -> None:
        self._settings = settings
        for host in hosts:
            examine = self._examine(host)
            if isinstance(examine, str):
                self._failed[host] = examine
            else:
                await self._serve(host, settings, examine)
        self.started.set()

    async def _serve(self, host: str, settings: Settings, examine: Examine) -> None:
        folder = self._folder / host
        folder.mkdir()
        stack = self._agents[host] = AsyncExitStack()
        self._stack.push_async_callback(stack.aclose)
        channel = AgentChannel(settings.address, settings.keys, settings.server, lambda message: None)
        stack.push_async_callback(channel.close)
        worker = Worker(folder, channel.tell, _no_run, examine)
        stack.push_async_callback(worker.close)
        serving = asyncio.create_task(channel.serve({"host": host, **self._hello}, worker.answer, settings.lease))
        stack.callback(serving.cancel)
