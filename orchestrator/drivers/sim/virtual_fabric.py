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
from orchestrator.fabric.base import ChannelRow, Counted, LinkChange, LinkRow, NodeHandle, plus
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.population.population import LinkShare, Ways
from orchestrator.scenario.sections.topology import POPULATION, Ends

PER_MESSAGE = 0.5e-3  # s
PER_BYTE = 12e-9  # s
_COUNTERS = [field.name for field in fields(Counters)]

Connection = Flow | LockstepFlow | SharedFlow
Profiles = tuple[LinkProfile, LinkProfile]  # of a link in one direction, and in the other
Way = tuple[Crossing, ...]


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
        self._timeouts = (timeouts.beat, timeouts.lost_after)
        self.tcp: Mapping[str, str] = {}
        self.network = MemoryNetwork(self._flow, processing)
        self._seeds: dict[Ends, int] = {}
        self._beat_seeds: dict[str, int] = {}  # of a node: that of the first of its links that is used
        self._clients: dict[Ends, Flow | ClientFlow] = {}  # of clients of a population
        self._classes: dict[tuple[object, ...], FlowClass] = {}  # of those that share channels
        self._passed: dict[Ends, LinkRow] = {}  # of the clients that have ended
        self._media: SharedMedia | None = None
        self._profiles: dict[Ends, LinkProfile] = {}
        self._crossings: dict[Ends, Way] = {}
        self._lockstep = Flows()
        self._flows: dict[Ends, Connection] = {}
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
            if not isinstance(flow, SharedFlow):
                continue
            way = self._crossings[ends]
            back = ends[::-1]
            way_back = self._crossings[back]
            crossings = (*way, *way_back)
            if any(crossing.channel in channels for crossing in crossings):
                forward, backward = self._both_ways(ends)
                flow.change(now, forward, backward, way)
        for client in self._clients.values():
            if isinstance(client, ClientFlow):
                client.change(now, channels)

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        assert self._media is not None
        self._media.occupy(channel, traffic, seed)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        for link in links:
            ends = (link.source, link.target)
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
            ends = (change.source, change.target)
            try:
                if change.crossings is not None:
                    await self.reroute(*ends, change.crossings)
                elif change.profile is not None:
                    await self.change(*ends, change.profile)
                elif change.cut:
                    await self.cut(*ends)
                else:
                    await self.restore(*ends)
                errors.append(None)
            except FabricError as error:
                errors.append(error)
        return errors

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        self._profiles[source, target] = profile
        now = asyncio.get_running_loop().time()
        way = (source, target)
        way_back = (target, source)  # of acknowledgements
        for ends in (way, way_back):
            line = self.network.line(*ends)
            flow = self._flows[ends]
            forward, backward = self._both_ways(ends)
            if isinstance(flow, SharedFlow):
                crossings = self._crossings[ends]
                flow.change(now, forward, backward, crossings)
            else:
                arrivals = flow.reshape(now, forward, backward)
                line.reschedule(arrivals)

    async def reroute(self, source: str, target: str, crossings: Way) -> None:
        self._check((source, target), crossings)
        self._crossings[source, target] = crossings
        profile = self._profiles[source, target]
        await self.change(source, target, profile)

    async def cut(self, source: str, target: str) -> None:
        self.network.cut(source, target)

    async def restore(self, source: str, target: str) -> None:
        self.network.restore(source, target)

    async def counters(self) -> Counted:
        rows: list[LinkRow] = []
        now = asyncio.get_running_loop().time()
        for ends, flow in self._flows.items():
            connection = flow if isinstance(flow, Flow) else flow.flow
            counted = connection.counted(now)
            if self._counted.get(ends) != counted:
                self._counted[ends] = counted
                rows.append(_row(ends, counted))
        rows += self._passed.values()
        channels: Sequence[ChannelRow] = ()
        if self._media is not None:
            channels = self._media.rows(now)
        return Counted(links=rows, channels=channels)

    async def watch(self) -> None:
        """Wait forever: nothing can break."""
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
        way_up, way_down = crossings
        number = str(round)
        seed_up = derive_seed(seed, "link", client, cloud, number)
        self._admit(
            (client, cloud),
            (link.up, link.down),
            (way_up, way_down),
            seed_up,
        )
        seed_down = derive_seed(seed, "link", cloud, client, number)
        self._admit(
            (cloud, client),
            (link.down, link.up),
            (way_down, way_up),
            seed_down,
        )

    def _admit(
        self,
        ends: Ends,
        link: Profiles,
        crossings: Ways,
        seed: int,
    ) -> None:
        """Make one direction of a client's link. ``link`` and ``crossings``: of this direction, then of the other."""
        beat, lost_after = self._timeouts
        forward, backward = link
        media = self._media
        if media is None:
            flow = Flow(
                forward,
                backward,
                seed,
                beat,
                lost_after,
                resume=False,
            )
            self._clients[ends] = flow
            return
        way, way_back = crossings
        forward_alone = media.alone(forward, way)
        backward_alone = media.alone(backward, way_back)
        flow = Flow(
            forward_alone,
            backward_alone,
            seed,
            beat,
            lost_after,
            resume=True,
        )
        self._clients[ends] = flow
        if way:
            self._clients[ends] = ClientFlow(
                media,
                self._classes,
                link,
                crossings,
                flow,
                seed,
                partial(self._move, ends),
            )

    def _move(self, ends: Ends, arrivals: list[float]) -> None:
        line = self.network.line(*ends)
        line.reschedule(arrivals)

    def dismiss(self, client: str, cloud: str) -> None:
        """Take the link of a client away. Its counters are added to those of the links of the population."""
        total_up = (POPULATION, cloud)
        total_down = (cloud, POPULATION)
        self._dismiss((client, cloud), total_up)
        self._dismiss((cloud, client), total_down)

    def _dismiss(self, ends: Ends, total: Ends) -> None:
        """Take one direction away. ``total``: the link of the population that gets its counters."""
        now = asyncio.get_running_loop().time()
        flow = self._clients.pop(ends)
        counted = flow.counted(now)
        row = _row(total, counted)
        if isinstance(flow, ClientFlow):
            flow.close()
        if total in self._passed:
            row = plus(row, self._passed[total])
        self._passed[total] = row

    def _flow(self, source: str, target: str) -> Connection | ClientFlow:
        ends = (source, target)
        if ends in self._clients:
            return self._clients[ends]
        seed = self._seeds[ends]
        beat_seed = self._beat_seeds.setdefault(source, seed)
        beat, lost_after = self._timeouts
        forward, backward = self._both_ways(ends)
        media = self._media
        if media is None:
            lockstep = self._lockstep.flow(
                forward,
                backward,
                seed,
                beat,
                lost_after,
                beat_seed,
            )
            self._flows[ends] = lockstep
            return lockstep
        crossings = self._crossings[ends]
        alone = media.alone(forward, crossings)
        flow = Flow(
            alone,
            backward,
            seed,
            beat,
            lost_after,
            resume=True,
            beat_seed=beat_seed,
        )
        shared = SharedFlow(
            media,
            forward,
            backward,
            crossings,
            seed,
            flow,
            partial(self._move, ends),
        )
        self._flows[ends] = shared
        return shared

    def _check(self, ends: Ends, crossings: Sequence[Crossing]) -> None:
        source, target = ends
        media = self._media
        for crossing in crossings:
            channel = crossing.channel
            if media is None or not media.has(channel):
                raise FabricError(f"link {source} -> {target}: there is no channel {channel!r}; share it first")

    def _both_ways(self, ends: Ends) -> Profiles:
        """A link's own profile, and the one that acknowledgements meet."""
        back = ends[::-1]
        forward = self._profiles[ends]
        backward = self._profiles[back]
        if self._media is not None:
            way_back = self._crossings[back]
            backward = self._media.alone(backward, way_back)
        return forward, backward


def _row(ends: Ends, counted: Counters) -> LinkRow:
    source, target = ends
    counts = {name: getattr(counted, name) for name in _COUNTERS}
    return {"source": source, "target": target, **counts}
