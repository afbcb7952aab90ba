"""The link engine of simulations. It has no packets: it computes the time of each message from the link's profile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple

from netem.impair import Counters
from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from node.assignment import Timeouts, derive_seed
from node.messaging.memory import MemoryNetwork
from orchestrator.fabric.base import Counted, Handle, LinkChange, LinkRow
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.scenario.sections.topology import POPULATION, Ends

PER_MESSAGE = 0.5e-3  # s
PER_BYTE = 12e-9  # s


def processing(size: int) -> float:
    """The seconds that two nodes need for a message of ``size`` bytes in addition to its transfer, as measured.

    They encrypt and copy it, and their event loops take turns. As in the emulation, hardware does not stretch that.
    """
    return PER_MESSAGE + size * PER_BYTE


class ModelFabric:
    """See `orchestrator.fabric.base.Fabric`. ``network`` connects the nodes, which have these ``timeouts``."""

    engine = "model"

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts.beat, timeouts.lost_after
        self.tcp: Mapping[str, str] = {}
        self.network = MemoryNetwork(self._flow, processing)
        self._seeds: dict[Ends, int] = {}
        self._clients: dict[Ends, Flow] = {}  # of clients of a population
        self._passed: dict[Ends, Counters] = {}  # of the clients that have ended
        self._profiles: dict[Ends, LinkProfile] = {}
        self._flows: dict[Ends, Flow] = {}
        self._counted: dict[Ends, Counters] = {}  # at the last count

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: Handle) -> None:
        """Do nothing: a simulated node has no interface."""

    async def detach(self, node: NodePlan) -> None:
        """Do nothing: nothing was attached."""

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for link in links:
            ends = link.source, link.target
            self._seeds[ends] = link.seed
            if ends in self._flows:
                await self.change(*ends, link.profile)
            else:
                self._profiles[ends] = link.profile

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        for change in changes:
            if change.profile is not None:
                await self.change(change.source, change.target, change.profile)
            else:
                await (self.cut if change.cut else self.restore)(change.source, change.target)
        return [None] * len(changes)

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        self._profiles[source, target] = profile
        now = asyncio.get_running_loop().time()
        for ends in ((source, target), (target, source)):  # acknowledgements go the other way
            line = self.network.line(*ends)
            line.reschedule(self._flows[ends].reshape(now, *self._both_ways(ends)))

    async def cut(self, source: str, target: str) -> None:
        self.network.cut(source, target)

    async def restore(self, source: str, target: str) -> None:
        self.network.restore(source, target)

    async def counters(self) -> Counted:
        rows: list[LinkRow] = []
        now = asyncio.get_running_loop().time()
        for ends, flow in self._flows.items():
            counted = flow.counted(now)
            if self._counted.get(ends) != counted:
                self._counted[ends] = counted
                rows.append({"source": ends[0], "target": ends[1], **asdict(counted)})
        rows += [{"source": ends[0], "target": ends[1], **asdict(counted)} for ends, counted in self._passed.items()]
        return Counted(links=rows)

    async def watch(self) -> None:
        """Wait for ever: nothing can break."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def admit(self, client: str, cloud: str, up: LinkProfile, down: LinkProfile, seed: int, round: int) -> None:
        """Give a client of a population its link for one round."""
        for ends, forward, backward in (((client, cloud), up, down), ((cloud, client), down, up)):
            seed_of_link = derive_seed(seed, "link", *ends, str(round))
            self._clients[ends] = Flow(forward, backward, seed_of_link, *self._timeouts)

    def dismiss(self, client: str, cloud: str) -> None:
        """Take the link of a client away. Its counters are added to those of the links of the population."""
        for ends, total in (((client, cloud), (POPULATION, cloud)), ((cloud, client), (cloud, POPULATION))):
            now = asyncio.get_running_loop().time()
            counted, before = self._clients.pop(ends).counted(now), self._passed.get(total, Counters())
            self._passed[total] = Counters(
                *(one + other for one, other in zip(astuple(before), astuple(counted), strict=True))
            )

    def _flow(self, source: str, target: str) -> Flow:
        if (source, target) in self._clients:
            return self._clients[source, target]
        flow = Flow(*self._both_ways((source, target)), self._seeds[source, target], *self._timeouts)
        self._flows[source, target] = flow
        return flow

    def _both_ways(self, ends: Ends) -> tuple[LinkProfile, LinkProfile]:
        return self._profiles[ends], self._profiles[ends[::-1]]
