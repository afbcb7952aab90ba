"""Transfers over shared media under the driver `sim`, without roles or training, for comparisons with other engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netem.media.profile import ChannelProfile, Crossing, CrossTraffic
from netem.profile import LinkProfile
from node.assignment import Timeouts
from node.messaging.delivery.pair import InFlight
from node.messaging.wire import Message
from node.runtime.clock import run_virtual
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.planning.plan import LinkPlan
from orchestrator.population.population import LinkShare

SINK = "sink"


@dataclass(frozen=True)
class Sending:
    """A member's transfer of ``size`` bytes through ``channels``. It starts at ``at`` seconds. ``latency`` is one way;
    the acknowledgements come back over a link without channels."""

    member: str
    size: int
    channels: tuple[str, ...]
    latency: float = 0.005
    at: float = 0.0
    rate: float | None = None
    loss: float = 0.0


def seconds(
    channels: Mapping[str, ChannelProfile],
    sendings: Sequence[Sending],
    seed: int = 0,
    *,
    clients: bool = False,
    change: tuple[float, Mapping[str, ChannelProfile]] | None = None,
) -> list[float]:
    """The seconds of each transfer, with the processing of its message. ``clients``: as of clients of a population.
    ``change``: when channels change, and what they then are."""
    arrived = run_virtual(_Simulation(channels, sendings, None, seed, clients, change).run(None))
    return [arrived[each.member] - each.at for each in sendings]


def rates(
    channels: Mapping[str, ChannelProfile],
    sendings: Sequence[Sending],
    since: float,
    until: float,
    traffic: CrossTraffic | None = None,
) -> list[float]:
    """The bit/s of each member, with headers, between two times. ``traffic``: on the first channel."""
    carried = run_virtual(_Simulation(channels, sendings, traffic).run((since, until)))
    return [8 * carried[each.member] / (until - since) for each in sendings]


class _Simulation:
    def __init__(
        self,
        channels: Mapping[str, ChannelProfile],
        sendings: Sequence[Sending],
        traffic: CrossTraffic | None,
        seed: int = 0,
        clients: bool = False,
        change: tuple[float, Mapping[str, ChannelProfile]] | None = None,
    ) -> None:
        self.channels, self.sendings, self.traffic, self.seed = channels, sendings, traffic, seed
        self.clients, self.change = clients, change
        self.arrived: dict[str, float] = {}
        self._done = asyncio.Event()

    def arrive(self, source: str, in_flight: InFlight) -> None:
        """Be the endpoint of all links."""
        self.arrived[source] = asyncio.get_running_loop().time()
        if len(self.arrived) == len(self.sendings):
            self._done.set()

    async def run(self, between: tuple[float, float] | None) -> dict[str, float]:
        fabric, loop = ModelFabric(Timeouts()), asyncio.get_running_loop()
        began = loop.time()
        await fabric.share(self.channels)
        if self.traffic is not None:
            await fabric.occupy(next(iter(self.channels)), self.traffic, 1)
        fabric.network.endpoints[SINK] = self  # type: ignore[assignment]
        for seed, each in enumerate(self.sendings, start=len(self.sendings) * self.seed):
            profile = LinkProfile(latency=each.latency, rate=each.rate, loss=each.loss)
            crossings = tuple(Crossing(channel, each.member) for channel in each.channels)
            back = LinkProfile(latency=each.latency)
            if self.clients:
                fabric.admit(each.member, SINK, LinkShare("", 1.0, profile, back), (crossings, ()), 2 * seed, 1)
            else:
                there = LinkPlan(each.member, SINK, "", profile, 2 * seed, crossings=crossings)
                await fabric.shape([there, LinkPlan(SINK, each.member, "", back, 2 * seed + 1)])
            message = fabric.network.in_flight(Message("model", each.member), each.size)
            loop.call_at(began + each.at, fabric.network.line(each.member, SINK).send, message)
        if between is not None:
            before, after = [await self._carried(fabric, began + at) for at in between]
            return {member: size - before.get(member, 0.0) for member, size in after.items()}
        if self.change is not None:
            await asyncio.sleep(began + self.change[0] - loop.time())
            await fabric.share(self.change[1])
        await self._done.wait()
        return {member: at - began for member, at in self.arrived.items()}

    async def _carried(self, fabric: ModelFabric, at: float) -> dict[str, float]:
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        return {str(row["member"]): float(row["bytes"]) for row in (await fabric.counters()).channels}
