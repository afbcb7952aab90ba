"""Examines the hosts of the swarm by agents that run only for this. Nothing of them remains."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from orchestrator.drivers.base import Tell
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup, Host
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import LEASE
from orchestrator.drivers.hosts.network.link_prober import HostsProber
from orchestrator.drivers.hosts.network.underlay import HostEnd, measure_pair, passes, rates_between
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.drivers.swarm.standing import Access
from orchestrator.drivers.swarm.starting import start_agents, wait_for_each
from orchestrator.errors import DriverError, HostError, OrchestratorError
from orchestrator.fabric.namespaces.wiring import MTU
from orchestrator.fabric.trunk import mtu_of
from orchestrator.fabric.trunk_trial import address_of
from orchestrator.planning.hosts.inventory import Underlay
from orchestrator.planning.keys import keypair
from orchestrator.record.directory import RunDirectory
from orchestrator.text import count

NAME = "doctor"
SMALL = 100  # bytes of a packet that passes everywhere
AT_ONCE = 4  # tries of the trunk; each starts two processes


HostPair = tuple[str, str]


@dataclass
class Examination:
    """Results, by host: the ``facts``, or why a host is ``silent``. By two hosts, in both orders: the
    ``underlay``. By two hosts, in one order: why it is ``unmeasured``; and what does not pass the trunk, which is
    ``cut``. ``busy``: the runs in the swarm that prevented a measurement of rates."""

    facts: dict[str, HostState] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    underlay: dict[HostPair, Underlay] = field(default_factory=dict)
    unmeasured: dict[HostPair, str] = field(default_factory=dict)
    cut: dict[HostPair, str] = field(default_factory=dict)
    busy: tuple[str, ...] = ()


async def examine(
    cluster: Cluster,
    hosts: Sequence[SwarmHost],
    agent_image: str,
    image: str,
    tell: Tell,
) -> Examination:
    """Examine these usable hosts. ``image``: that of nodes. OrchestratorError if no agents can be started at all."""
    result = Examination()
    if not hosts:
        return result
    with tempfile.TemporaryDirectory(prefix="edgebed-") as folder:
        directory = RunDirectory.create(Path(folder), NAME)
        async with AsyncExitStack() as stack:
            access = Access(keypair(), keypair())
            agents = Agents(access.server, access.agents.public, LEASE)
            stack.push_async_callback(agents.close)
            run = directory.run
            names = [host.name for host in hosts]
            tell(f"starting agents on {count(len(hosts), 'host')} ({run})")
            await start_agents(
                cluster,
                agents,
                run,
                directory.path,
                agent_image,
                names,
                access,
                stack,
            )
            result.silent |= await wait_for_each(cluster, agents, run, names)
            ends = _ends(agents, hosts, result)
            mtu = MTU
            if len(ends) > 1:  # a host reaches itself over its loopback, and packets may be larger there
                mtu = min(end.mtu for end in ends.values())
            addresses = [end.address for end in ends.values()]
            setup = ExaminationSetup(run, image, 0, addresses, mtu)
            hubs = await _ask(agents, ends, setup, result)

            def other_runs() -> tuple[str, ...]:
                runs = cluster.runs().keys() - {run}
                return tuple(sorted(runs))

            if len(hubs) > 1:
                tell(f"measuring between {count(len(hubs), 'host')}")
                ends_of_hubs = [ends[name] for name in hubs]
                ends_of_trunk = list(hubs.values())
                await _measure_delays(agents, ends_of_hubs, result)
                await _try_trunk(agents, ends_of_trunk, result)
                await _measure_rates(agents, ends_of_hubs, result, other_runs, tell)
            tell("removing the agents")
    return result


async def _ask(
    agents: Agents,
    ends: Mapping[str, HostEnd],
    setup: ExaminationSetup,
    result: Examination,
) -> dict[str, HostEnd]:
    """Ask the hosts. Returns the ends of the trunk in the hubs of those that answer."""
    hubs = {}

    async def ask(number: int, name: str) -> None:
        own_setup = replace(setup, number=number)
        try:
            facts, pid = await agents.call(name, Host.facts, own_setup)
            result.facts[name] = facts
            address = address_of(number)
            mtu = mtu_of(setup.mtu)
            hubs[name] = HostEnd(name, address, pid, mtu)
        except (DriverError, HostError) as error:
            result.silent[name] = str(error).removeprefix(f"{name}: ")

    calls = [ask(number, name) for number, name in enumerate(ends)]
    await asyncio.gather(*calls)
    return {name: hubs[name] for name in ends if name in hubs}


async def _measure_delays(agents: Agents, ends: Sequence[HostEnd], result: Examination) -> None:
    """A host takes part in one measurement at a time."""
    prober = HostsProber(agents, MTU)
    free = {end.name: asyncio.Lock() for end in ends}

    async def measure(one: HostEnd, other: HostEnd) -> None:
        pair = (one.name, other.name)
        async with free[one.name], free[other.name]:  # all pairs have the hosts in the same order
            try:
                measured = await measure_pair(one, other, prober)
            except OrchestratorError as error:
                result.unmeasured[pair] = _reason(error)
            else:
                result.underlay[pair] = measured
                result.underlay[other.name, one.name] = measured

    measurements = [measure(one, other) for one, other in combinations(ends, 2)]
    await asyncio.gather(*measurements)


async def _measure_rates(
    agents: Agents,
    ends: Sequence[HostEnd],
    result: Examination,
    others: Callable[[], tuple[str, ...]],
    tell: Tell,
) -> None:
    """One pair of hosts at a time, because pairs may share a wire. ``others`` returns the other runs in the swarm: with
    one, a rate would be what it leaves, and it would be disturbed."""
    prober = HostsProber(agents, MTU)
    rates: dict[HostPair, float | None] = {}
    result.busy = await asyncio.to_thread(others)
    for one, other in combinations(ends, 2):
        pair = (one.name, other.name)
        measured = result.underlay.get(pair)
        if measured is None or result.busy:
            continue
        tell(f"measuring the rate between {one.name} and {other.name}")
        with contextlib.suppress(OrchestratorError):  # it stays unknown
            forward, backward = await rates_between(one, other, measured.delay, prober)
            rates[pair] = forward
            rates[other.name, one.name] = backward
        result.busy = await asyncio.to_thread(others)
    if not result.busy:
        for pair, rate in rates.items():
            underlay = result.underlay[pair]
            result.underlay[pair] = replace(underlay, rate=rate)


async def _try_trunk(agents: Agents, hubs: Sequence[HostEnd], result: Examination) -> None:
    """Send packets over the trunk between each two hosts that have one and reach each other otherwise."""
    prober = HostsProber(agents, MTU)
    some = asyncio.Semaphore(AT_ONCE)

    async def attempt(one: HostEnd, other: HostEnd) -> None:
        pair = (one.name, other.name)
        try:
            async with some:
                lost = await _smallest_lost(one, other, prober)
        except OrchestratorError as error:
            result.unmeasured[pair] = _reason(error)
            return
        if lost is not None:
            result.cut[pair] = f"packets of {lost} bytes"

    with_trunk = []
    for hub in hubs:
        facts = result.facts[hub.name]
        if not facts.trunk:  # which says why it does not work
            with_trunk.append(hub)
    attempts = []
    for one, other in combinations(with_trunk, 2):
        if (one.name, other.name) in result.underlay:
            attempts.append(attempt(one, other))
    await asyncio.gather(*attempts)


async def _smallest_lost(one: HostEnd, other: HostEnd, prober: HostsProber) -> int | None:
    """The size of the smallest tried packets that do not pass, in bytes; None if all pass."""
    if await passes(one, other, prober, one.mtu):
        return None
    if await passes(one, other, prober, SMALL):
        return one.mtu
    return SMALL


def _reason(error: OrchestratorError) -> str:
    return str(getattr(error, "what", error))


def _ends(agents: Agents, hosts: Sequence[SwarmHost], result: Examination) -> dict[str, HostEnd]:
    """The ends of the network between the hosts with connected agents."""
    ends = {}
    for host in hosts:
        if host.name in result.silent:
            continue
        try:
            hello = agents.hello(host.name)
        except KeyError:
            result.silent[host.name] = "its agent has ended"
            continue
        pid = int(hello["pid"])
        mtu = int(hello["mtu"])
        name = host.name
        ends[name] = HostEnd(name, host.address, pid, mtu)
    return ends
