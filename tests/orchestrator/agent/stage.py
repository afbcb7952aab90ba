"""Agents of several hosts in this process, over loopback, and the orchestrator's side of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.agent.datasets import DataSets
from orchestrator.agent.images import Images
from orchestrator.agent.worker import Examine, Open, Worker
from orchestrator.drivers.hosts.agents.channel import AgentChannel
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.outage import OutageTimeouts
from orchestrator.drivers.hosts.programs import HostsProgramsDriver
from orchestrator.host.sensors.sensor import Sensor
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.hosts.placement import Placement
from orchestrator.planning.keys import keypair
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

LOOPBACK = "127.0.0.1"
LEASE = 2.0  # s
AWAY = OutageTimeouts(grace=LEASE + 1.0, end=LEASE + 2.0)
PATIENCE = 20.0


async def _nobody_asks(*_: Any) -> Any:
    raise AssertionError("nobody examines the host")


class Stage:
    """``workers`` are the agents by host; their files lie in ``folder``. ``sensors`` are those of each host. ``ended``
    has the hosts whose agents have heard nothing for their lease, and have ended everything."""

    def __init__(self, plan: Plan, directory: RunDirectory, folder: Path, stack: AsyncExitStack) -> None:
        self.keys, self.agents_keys = keypair(), keypair()
        self.ended: set[str] = set()
        self.driver = (HostsProgramsDriver if plan.programs else HostsDriver)(plan, directory, AWAY)
        self.agents = Agents(
            self.keys, self.agents_keys.public, LEASE, self.driver.hear, self.driver.lose, self.driver.find
        )
        stack.push_async_callback(self.agents.close)
        self.driver.use(self.agents)
        self.workers: dict[str, Worker] = {}
        self.sensors: dict[str, list[Sensor]] = {}
        self._port = self.agents.listen(LOOPBACK)
        self._folder, self._stack = folder, stack
        self._agents_ends: dict[str, AsyncExitStack] = {}

    def datasets_of(self, host: str) -> Path:
        """Where a host keeps data sets, also when its agent is gone."""
        return self._folder.with_name("datasets") / host

    async def leave(self, host: str) -> None:
        """Have the agent of a host fall silent, and forget what it has made."""
        await self._agents_ends.pop(host).aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder / host)

    async def join(self, host: str, make: Open, examine: Examine = _nobody_asks, images: Images | None = None) -> None:
        """Let the agent of a host begin."""
        folder = self._folder / host
        folder.mkdir()
        stack = self._agents_ends[host] = AsyncExitStack()
        self._stack.push_async_callback(stack.aclose)
        address = f"tcp://{LOOPBACK}:{self._port}"
        channel = AgentChannel(address, self.agents_keys, self.keys.public, lambda message: worker.notice(message))
        stack.push_async_callback(channel.close)
        datasets = self.datasets_of(host)
        datasets.mkdir(parents=True, exist_ok=True)
        sensors = lambda: self.sensors.get(host, [])  # noqa: E731
        worker = Worker(folder, channel.tell, make, examine, sensors, images, datasets=DataSets(datasets))
        self.workers[host] = worker
        stack.push_async_callback(worker.close)

        async def serve() -> None:
            await channel.serve({"host": host}, worker.answer, LEASE)
            await worker.close()
            self.ended.add(host)

        serving = asyncio.create_task(serve())
        stack.callback(serving.cancel)
        assert await self.agents.wait_for([host], PATIENCE) == []


def spread(plan: Plan, hosts: Sequence[str]) -> Plan:
    """The plan with its nodes on these hosts, one after the other. Each may live on all of them."""
    nodes = [replace(node, host=hosts[number % len(hosts)]) for number, node in enumerate(plan.nodes)]
    facts = tuple(HostFacts(host, f"127.0.0.{number}", "amd64", 4, 1 << 33) for number, host in enumerate(hosts, 1))
    homes = {node.name: node.host for node in nodes}
    placement = Placement(homes, dict.fromkeys(homes, ""), {}, dict.fromkeys(homes, tuple(hosts)), (), ())
    return replace(plan, nodes=tuple(nodes), hosts=facts, placement=placement)
