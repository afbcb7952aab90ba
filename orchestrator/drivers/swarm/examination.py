"""Asks the hosts of the swarm about themselves, by agents that live for this question. Nothing of them stays."""

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
from orchestrator.drivers.hosts.network.prober import HostsProber
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


@dataclass
class Examination:
    """Results, by host: the ``facts``, or why a host is ``silent``. By two hosts, in both orders: the
    ``underlay``. By two hosts, in one order: why it is ``unmeasured``; and what does not pass the trunk, which is
    ``cut``. ``busy``: the runs in the swarm that prevented a measurement of rates."""

    facts: dict[str, HostState] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    underlay: dict[tuple[str, str], Underlay] = field(default_factory=dict)
    unmeasured: dict[tuple[str, str], str] = field(default_factory=dict)
    cut: dict[tuple[str, str], str] = field(default_factory=dict)
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
            names = [each.name for each in hosts]
            tell(f"starting agents on {count(len(hosts), 'host')} ({run})")
            await start_agents(cluster, agents, run, directory.path, agent_image, names, access, stack)
            result.silent |= await wait_for_each(cluster, agents, run, names)
            ends = _ends(agents, hosts, result)
            # A host reaches itself over its loopback, whose packets may be larger than those of a network.
            if len(ends) > 1:
                mtu = min(each.mtu for each in ends.values())
            else:
                mtu = MTU
            addresses = [each.address for each in ends.values()]
            hubs = await _ask(agents, ends, ExaminationSetup(run, image, 0, addresses, mtu), result)
            if len(hubs) > 1:
                tell(f"measuring between {count(len(hubs), 'host')}")
                ends_of_hubs = [ends[name] for name in hubs]
                await _measure_delays(agents, ends_of_hubs, result)
                await _try_trunk(agents, list(hubs.values()), result)
                await _measure_rates(
                    agents, ends_of_hubs, result, lambda: tuple(sorted(cluster.runs().keys() - {run})), tell
                )
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
        try:
            result.facts[name], hub = await agents.call(name, Host.facts, replace(setup, number=number))
            hubs[name] = HostEnd(name, address_of(number), hub, mtu_of(setup.mtu))
        except (DriverError, HostError) as error:
            result.silent[name] = str(error).removeprefix(f"{name}: ")

    await asyncio.gather(*(ask(number, name) for number, name in enumerate(ends)))
    return {name: hubs[name] for name in ends if name in hubs}


async def _measure_delays(agents: Agents, ends: Sequence[HostEnd], result: Examination) -> None:
    """A host takes part in one measurement at a time."""
    prober = HostsProber(agents, MTU)
    free = {each.name: asyncio.Lock() for each in ends}

    async def measure(one: HostEnd, other: HostEnd) -> None:
        async with free[one.name], free[other.name]:  # all pairs have the hosts in the same order
            try:
                measured = await measure_pair(one, other, prober)
            except OrchestratorError as error:
                result.unmeasured[one.name, other.name] = str(getattr(error, "what", error))
            else:
                result.underlay[one.name, other.name] = result.underlay[other.name, one.name] = measured

    await asyncio.gather(*(measure(*pair) for pair in combinations(ends, 2)))


async def _measure_rates(
    agents: Agents,
    ends: Sequence[HostEnd],
    result: Examination,
    others: Callable[[], tuple[str, ...]],
    tell: Tell,
) -> None:
    """One pair of hosts at a time, because pairs may share a wire. ``others`` tells the other runs in the swarm: with
    one, a rate would be what it leaves, and it would be disturbed."""
    prober = HostsProber(agents, MTU)
    rates = dict[tuple[str, str], float | None]()
    result.busy = await asyncio.to_thread(others)
    for one, other in combinations(ends, 2):
        measured = result.underlay.get((one.name, other.name))
        if measured is None or result.busy:
            continue
        tell(f"measuring the rate between {one.name} and {other.name}")
        with contextlib.suppress(OrchestratorError):  # it stays unknown
            there, back = await rates_between(one, other, measured.delay, prober)
            rates |= {(one.name, other.name): there, (other.name, one.name): back}
        result.busy = await asyncio.to_thread(others)
    if not result.busy:
        for pair, rate in rates.items():
            result.underlay[pair] = replace(result.underlay[pair], rate=rate)


async def _try_trunk(agents: Agents, hubs: Sequence[HostEnd], result: Examination) -> None:
    """Send packets over the trunk between each two hosts that have one and reach each other otherwise."""
    prober = HostsProber(agents, MTU)
    some = asyncio.Semaphore(AT_ONCE)

    async def attempt(one: HostEnd, other: HostEnd) -> None:
        async with some:
            try:
                if not await passes(one, other, prober, one.mtu):
                    if await passes(one, other, prober, SMALL):
                        least = one.mtu
                    else:
                        least = SMALL
                    result.cut[one.name, other.name] = f"packets of {least} bytes"
            except OrchestratorError as error:
                result.unmeasured[one.name, other.name] = str(getattr(error, "what", error))

    laid = [each for each in hubs if not result.facts[each.name].trunk]
    pairs = [pair for pair in combinations(laid, 2) if (pair[0].name, pair[1].name) in result.underlay]
    await asyncio.gather(*(attempt(*pair) for pair in pairs))


def _ends(agents: Agents, hosts: Sequence[SwarmHost], result: Examination) -> dict[str, HostEnd]:
    """The ends of the network between the hosts whose agents are there."""
    ends = {}
    for host in hosts:
        if host.name not in result.silent:
            try:
                hello = agents.hello(host.name)
            except KeyError:
                result.silent[host.name] = "its agent has ended"
            else:
                ends[host.name] = HostEnd(host.name, host.address, int(hello["pid"]), int(hello["mtu"]))
    return ends
