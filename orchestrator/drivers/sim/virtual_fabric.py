"""The link engine of simulations. It has no packets: it computes the time of each message from the link's profile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial

from netem.impair import Counters
from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.lockstep import Flows, LockstepFlow
from node.assignment import Timeouts, derive_seed
from node.messaging.memory import MemoryNetwork
from orchestrator.drivers.sim.media.channels import SharedMedia
from orchestrator.drivers.sim.media.clients import ClientFlow, FlowClass
from orchestrator.drivers.sim.media.links import SharedFlow
from orchestrator.errors import FabricError
from orchestrator.fabric.base import Counted, LinkChange, LinkRow, NodeHandle, plus
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.population.population import LinkShare, Ways
from orchestrator.scenario.sections.topology import POPULATION, Ends

PER_MESSAGE = 0.5e-3  # s
PER_BYTE = 12e-9  # s
_COUNTERS = [field.name for field in fields(Counters)]


def processing(size: int) -> float:
    """The seconds that two nodes need for a message of ``size`` bytes in addition to its transfer, as measured.

    They encrypt and copy it, and their event loops take turns. As in the emulation, hardware does not stretch that.
    """
    return PER_MESSAGE + size * PER_BYTE


class ModelFabric:
    """See `Fabric` and `SharesMedia` of `orchestrator.fabric.base`. ``network`` connects the nodes, which have these
    ``timeouts``."""

    engine = "model"

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts.beat, timeouts.lost_after
        self.tcp: Mapping[str, str] = {}
        self.network = MemoryNetwork(self._flow, processing)
        self._seeds: dict[Ends, int] = {}
        self._beat_seeds: dict[str, int] = {}  # of a node: that of the first of its links that is used
        self._clients: dict[Ends, Flow | ClientFlow] = {}  # of clients of a population
        self._classes: dict[tuple[object, ...], FlowClass] = {}  # of those that share channels
        self._passed: dict[Ends, LinkRow] = {}  # of the clients that have ended
        self._media: SharedMedia | None = None
        self._profiles: dict[Ends, LinkProfile] = {}
        self._crossings: dict[Ends, tuple[Crossing, ...]] = {}
        self._lockstep = Flows()
        self._flows: dict[Ends, Flow | LockstepFlow | SharedFlow] = {}
        self._counted: dict[Ends, Counters] = {}  # at the last count

    def notes(self) -> list[str]:
        return []

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        """Do nothing: a simulated node has no interface."""
        return {}

    async def detach(self, node: NodePlan) -> None:
        """Do nothing: nothing was attached."""

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        self._media = self._media or SharedMedia()
        self._media.share(channels)
        now = asyncio.get_running_loop().time()
        for ends, flow in self._flows.items():
            ways = (*self._crossings[ends], *self._crossings[ends[::-1]])
            if isinstance(flow, SharedFlow) and any(crossing.channel in channels for crossing in ways):
                flow.change(now, *self._both_ways(ends), self._crossings[ends])
        for client in self._clients.values():
            if isinstance(client, ClientFlow):
                client.change(now, channels)

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        assert self._media is not None
        self._media.occupy(channel, traffic, seed)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for link in links:
            ends = link.source, link.target
            self._check(ends, link.crossings)
            self._seeds[ends] = link.seed
            self._crossings[ends] = link.crossings
            if ends in self._flows:
                await self.change(*ends, link.profile)
            else:
                self._profiles[ends] = link.profile

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        errors: list[Exception | None] = []
        for change in changes:
            ends = change.source, change.target
            try:
                if change.crossings is not None:
                    await self.reroute(*ends, change.crossings)
                elif change.profile is not None:
                    await self.change(*ends, change.profile)
                else:
                    await (self.cut if change.cut else self.restore)(*ends)
                errors.append(None)
            except FabricError as error:
                errors.append(error)
        return errors

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        self._profiles[source, target] = profile
        now = asyncio.get_running_loop().time()
        for ends in ((source, target), (target, source)):  # acknowledgements go the other way
            line = self.network.line(*ends)
            flow = self._flows[ends]
            if isinstance(flow, SharedFlow):
                flow.change(now, *self._both_ways(ends), self._crossings[ends])
            else:
                line.reschedule(flow.reshape(now, *self._both_ways(ends)))

    async def reroute(self, source: str, target: str, crossings: tuple[Crossing, ...]) -> None:
        self._check((source, target), crossings)
        self._crossings[source, target] = crossings
        await self.change(source, target, self._profiles[source, target])

    async def cut(self, source: str, target: str) -> None:
        self.network.cut(source, target)

    async def restore(self, source: str, target: str) -> None:
        self.network.restore(source, target)

    async def counters(self) -> Counted:
        rows: list[LinkRow] = []
        now = asyncio.get_running_loop().time()
        for ends, flow in self._flows.items():
            counted = (flow if isinstance(flow, Flow) else flow.flow).counted(now)
            if self._counted.get(ends) != counted:
                self._counted[ends] = counted
                rows.append(_row(ends, counted))
        rows += self._passed.values()
        return Counted(links=rows, channels=self._media.rows(now) if self._media else ())

    async def watch(self) -> None:
        """Wait for ever: nothing can break."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def admit(
        self,
        client: str,
        cloud: str,
        link: LinkShare,
        crossings: Ways,
        seed: int,
        round: int,
    ) -> None:
        """Give a client of a population its link for one round, with the channels that it crosses up and down."""
        (there, back), media = crossings, self._media
        if media is None:
            alone = (link.up, link.down)
        else:
            alone = (media.alone(link.up, there), media.alone(link.down, back))
        for ends, ways, own, limited in (
            ((client, cloud), (there, back), (link.up, link.down), alone),
            ((cloud, client), (back, there), (link.down, link.up), alone[::-1]),
        ):
            seed_of_link = derive_seed(seed, "link", *ends, str(round))
            flow = Flow(*limited, seed_of_link, *self._timeouts, resume=media is not None)
            self._clients[ends] = flow
            if ways[0] and media is not None:
                move = partial(self._move, ends)
                self._clients[ends] = ClientFlow(media, self._classes, own, ways, flow, seed_of_link, move)

    def _move(self, ends: Ends, arrivals: list[float]) -> None:
        self.network.line(*ends).reschedule(arrivals)

    def dismiss(self, client: str, cloud: str) -> None:
        """Take the link of a client away. Its counters are added to those of the links of the population."""
        for ends, total in (((client, cloud), (POPULATION, cloud)), ((cloud, client), (cloud, POPULATION))):
            now = asyncio.get_running_loop().time()
            flow = self._clients.pop(ends)
            row = _row(total, flow.counted(now))
            if isinstance(flow, ClientFlow):
                flow.close()
            if total in self._passed:
                self._passed[total] = plus(row, self._passed[total])
            else:
                self._passed[total] = row

    def _flow(self, source: str, target: str) -> Flow | LockstepFlow | SharedFlow | ClientFlow:
        ends = source, target
        if ends in self._clients:
            return self._clients[ends]
        seed = self._seeds[ends]
        beats = self._beat_seeds.setdefault(source, seed)
        (forward, backward), media = self._both_ways(ends), self._media
        if media is None:
            self._flows[ends] = self._lockstep.flow(forward, backward, seed, *self._timeouts, beats)
        else:
            crossings = self._crossings[ends]
            move = partial(self._move, ends)
            alone = media.alone(forward, crossings)
            flow = Flow(alone, backward, seed, *self._timeouts, resume=True, beat_seed=beats)
            self._flows[ends] = SharedFlow(media, forward, backward, crossings, seed, flow, move)
        return self._flows[ends]

    def _check(self, ends: Ends, crossings: Sequence[Crossing]) -> None:
        for crossing in crossings:
            if self._media is None or not self._media.has(crossing.channel):
                raise FabricError(
                    f"link {ends[0]} -> {ends[1]}: there is no channel {crossing.channel!r}; share it first"
                )

    def _both_ways(self, ends: Ends) -> tuple[LinkProfile, LinkProfile]:
        """A link's own profile, and the one that acknowledgements meet."""
        back = ends[::-1]
        if self._media is None:
            return self._profiles[ends], self._profiles[back]
        return self._profiles[ends], self._media.alone(self._profiles[back], self._crossings[back])


def _row(ends: Ends, counted: Counters) -> LinkRow:
    return {"source": ends[0], "target": ends[1], **{name: getattr(counted, name) for name in _COUNTERS}}
