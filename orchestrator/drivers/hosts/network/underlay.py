"""The network between the hosts of a run, which its links pass: measured, and compared with the configured links."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from netem.measurement.endpoints import probe_arguments
from netem.measurement.probe_plan import PROBE_PAYLOAD, Measurement, ProbePlan, Saturation, plan_probe
from netem.profile import LinkProfile
from orchestrator.drivers.hosts.agents.calls import Host
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.fabric import HostsFabric
from orchestrator.drivers.hosts.network.link_prober import HostsProber
from orchestrator.errors import HostError, LostError, PlanError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.hosts_network import crossed
from orchestrator.planning.hosts.crossings import crossings
from orchestrator.planning.hosts.inventory import Inventory, Underlay
from orchestrator.planning.hosts.moving import Between
from orchestrator.planning.hosts.on_hosts import requested_links
from orchestrator.planning.plan import Plan
from orchestrator.record.events.network import NetworkReading, Pair, PairReading

HEADERS = 28  # bytes of IPv4 and UDP
ECHO_WAIT = 0.2  # s
FILLING = 0.3  # s, the shortest stream that measures a rate
LONGEST = 2.0  # s, the longest one
RAMP = 30  # round trips of such a stream; TCP starts slowly
WINDOW = 4 << 20  # bytes of it in flight at most: 10 Gbit/s with a round trip of 3 ms
ECHOES = 10  # in one reading
SPACING = 0.5  # s between them


@dataclass(frozen=True)
class HostEnd:
    """A host: its ``address`` in the network between hosts, a process there, and the MTU of its interface in bytes."""

    name: str
    address: str
    pid: int
    mtu: int


async def measure_all(ends: Iterable[HostEnd], prober: HostsProber) -> Between:
    """Measure between each two hosts. HostError if a host does not answer another."""
    in_order = sorted(ends, key=lambda end: end.name)
    pairs = combinations(in_order, 2)
    between = {}
    for one, other in pairs:
        underlay = await measure_pair(one, other, prober)
        between[one.name, other.name] = underlay
        between[other.name, one.name] = underlay
    return between


async def measure_pair(one: HostEnd, other: HostEnd, prober: HostsProber) -> Underlay:
    """Measure between two hosts: half of the round trip, as their clocks differ. HostError if no packet comes back."""
    plan = plan_probe(LinkProfile(), LinkProfile())
    measurement = await _measure(one, other, prober, plan)
    round_trip = measurement.rtt_median
    if round_trip is None:
        raise HostError(
            f"no packet of {one.name} comes back from {other.name} ({other.address})",
            "do the hosts reach each other by these addresses, also by UDP?",
        )
    mtu = min(one.mtu, other.mtu)
    return Underlay(round_trip / 2, None, mtu)


async def rates_between(
    one: HostEnd,
    other: HostEnd,
    delay: float,
    prober: HostsProber,
) -> tuple[float | None, float | None]:
    """The rates in bit/s of Ethernet frames in both directions, by one TCP stream each; None if TCP does not pass.
    ``delay``: one way in seconds. HostError if a host cannot take part."""
    ramp = RAMP * 2 * delay
    seconds = max(FILLING, ramp)
    seconds = min(LONGEST, seconds)
    stream = Saturation(
        "tcp",
        0.0,
        seconds,
        size=0,
        window=WINDOW,
        drain=0.0,
        queue=0.0,
        fills=False,
    )
    wait = 2 * delay + ECHO_WAIT
    plan = ProbePlan(
        count=1,
        spacing=wait,
        size=PROBE_PAYLOAD,
        wait=wait,
        forward=stream,
        back=stream,
    )
    measurement = await _measure(one, other, prober, plan)
    return measurement.forward.rate, measurement.back.rate


async def passes(
    one: HostEnd,
    other: HostEnd,
    prober: HostsProber,
    size: int,
) -> bool:
    """Whether IP packets of ``size`` bytes come back from the other end."""
    plan = ProbePlan(
        count=5,
        spacing=0.02,
        size=size - HEADERS,
        wait=ECHO_WAIT,
        forward=None,
        back=None,
    )
    measurement = await _measure(one, other, prober, plan)
    return measurement.rtt_median is not None


async def _measure(
    one: HostEnd,
    other: HostEnd,
    prober: HostsProber,
    plan: ProbePlan,
) -> Measurement:
    responder = NodeHandle(other.pid, other.name)
    sender = NodeHandle(one.pid, one.name)
    async with prober.responding(responder, other.address) as ready:
        arguments = probe_arguments(other.address, ready, plan)
        data = await prober.probe(sender, arguments)
    return Measurement.from_mapping(data)


def refuse_short(plan: Plan, between: Between) -> None:
    """HostError if the configured delay of a link is below that of the network between its hosts."""
    homes = {node.name: node.host for node in plan.nodes}
    inventory = Inventory(plan.hosts, between)
    try:
        links = requested_links(plan.links, plan.faults)
        crossings(links, homes, inventory)
    except PlanError as error:
        raise HostError(str(error)) from None


class HostsUnderlay:
    """The network between the hosts during the run, see `HostsNetwork`."""

    def __init__(
        self,
        plan: Plan,
        agents: Agents,
        driver: HostsDriver,
        fabric: HostsFabric,
    ) -> None:
        self.homes = driver.homes
        self._links = plan.links
        self._agents = agents
        self._driver = driver
        self._fabric = fabric
        self._addresses: dict[str, str] = {}
        for host in plan.hosts:
            self._addresses[host.name] = host.address

    @property
    def first(self) -> NetworkReading:
        readings = []
        for pair in self._pairs:
            underlay = self._driver.between[pair]
            reading = PairReading(pair, underlay.delay)
            readings.append(reading)
        frames = self._fabric.frames.readings()
        return NetworkReading(tuple(readings), frames, first=True)

    @property
    def _pairs(self) -> list[Pair]:
        return crossed(self._links, self.homes)

    async def measure(self) -> NetworkReading:
        """Echoes between each two hosts that links cross, all at the same time. It takes `ECHOES` times `SPACING`."""
        pairs = self._pairs
        before = self._away(pairs)
        reachable = [pair for pair in pairs if before.isdisjoint(pair)]
        _, *measured = await asyncio.gather(
            asyncio.sleep(ECHOES * SPACING),  # also if no host is reachable
            *(self._echo(pair) for pair in reachable),
        )
        away = before | self._away(pairs)
        readings = []
        for reading in measured:
            if reading is None:
                continue
            if away.isdisjoint(reading.hosts):
                readings.append(reading)
        return NetworkReading(
            tuple(readings),
            self._fabric.frames.readings(),
            tuple(sorted(away)),
            strangers=self._fabric.strangers(),
        )

    async def _echo(self, pair: Pair) -> PairReading | None:
        """None if a host is lost before the end."""
        asking, requested = pair
        address = self._addresses[requested]
        try:
            port, token = await self._agents.call(requested, Host.listen, address)
            round_trips = await self._agents.call(
                asking,
                Host.echo,
                address,
                port,
                token,
                ECHOES,
                SPACING,
            )
        except LostError:
            return None
        lost = ECHOES - len(round_trips)
        if not round_trips:
            return PairReading(pair, None, ECHOES, lost)
        delay = median(round_trips) / 2
        shortest = min(round_trips) / 2
        return PairReading(pair, delay, ECHOES, lost, shortest)

    def _away(self, pairs: Iterable[Pair]) -> set[str]:
        away = set()
        for pair in pairs:
            for host in pair:
                if not self._driver.has(host):
                    away.add(host)
        return away
