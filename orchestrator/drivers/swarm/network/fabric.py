"""The links of a run on several hosts: the host of a link's sender shapes it. See `Fabric` for the verbs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

from netem.profile import LinkProfile
from orchestrator.drivers.swarm.agents.calls import HostLinks
from orchestrator.drivers.swarm.agents.channel import Agents
from orchestrator.drivers.swarm.driver import SwarmDriver
from orchestrator.drivers.swarm.network.frames import Frames
from orchestrator.errors import DriverError, FabricError, LostError, OrchestratorError
from orchestrator.fabric.base import Counted, Fabric, LinkChange, LinkRow, NodeHandle, plus
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan
from orchestrator.scenario.sections.topology import Ends

Deduction = Callable[[str, str], float]
"""The seconds that the network between the hosts of two nodes adds to the link from one to the other."""


class SwarmFabric(Coalescing):
    """``driver`` knows the link engine of each host, and which hosts are lost."""

    def __init__(self, agents: Agents, plan: Plan, driver: SwarmDriver, deduction: Deduction) -> None:
        super().__init__(self.alter)
        self.engine = ", ".join(sorted(set(driver.engines.values())))
        self.tcp: Mapping[str, str] = tcp.of_hosts(driver.tcp)
        self._agents, self._driver = agents, driver
        self._plan = plan
        self._hosts = driver.homes
        self._deduction = deduction
        self._notes: list[str] = []
        self._links: dict[Ends, LinkPlan] = {}  # with their present profiles
        self._cut: set[Ends] = set()
        self._following = asyncio.Lock()  # while links follow nodes that have moved
        self._counters: dict[str, Counted] = {}  # the latest of each host
        self._former_counters: list[tuple[str, Counted]] = []  # the last of hosts that have been reopened since
        self.frames = Frames(self._hosts)

    def notes(self) -> list[str]:
        return list(self._notes)

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        return await self._agents.call(handle.host, Fabric.attach, node, handle)

    async def detach(self, node: NodePlan) -> None:
        host = self._hosts[node.name]
        if self._driver.has(host):  # the interfaces of a lost host are gone
            with contextlib.suppress(LostError):
                await self._agents.call(host, Fabric.detach, node)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        """The host of a link's target is told too: it lets in what comes from other hosts."""
        self._links |= {(link.source, link.target): link for link in links}
        await self._shape(links, {*self._hosts.values()})

    async def reshape(self, host: str) -> None:
        """Make the links of a host that was opened anew, as they are now. FabricError if that fails. Its counters
        start at 0."""
        if (last := self._counters.pop(host, None)) is not None:
            self._former_counters.append((host, replace(last, late=0, late_max=0.0)))
        await self._reshape(list(self._links.values()), host)

    async def redirect(self, nodes: Collection[str]) -> None:
        """Let all hosts that are there know where these nodes live now, and shape their links there. A host on which
        that fails counts as lost: its agent then ends what it has made."""
        self.frames.begin_anew()

        async def at(host: str) -> None:
            try:
                await self._agents.call(host, HostLinks.redirect, remotes(self._plan, self._hosts, host))
                await self._reshape([self._links[ends] for ends in self._links if set(ends) & set(nodes)], host)
            except OrchestratorError as error:
                self._agents.lose(host, str(error))

        async with self._following:
            await asyncio.gather(*(at(host) for host in self._driver.hosts if self._driver.has(host)))

    async def _reshape(self, links: Sequence[LinkPlan], host: str) -> None:
        await self._shape(links, {host})
        own = {(link.source, link.target) for link in links if self._hosts[link.source] == host}
        cuts = [LinkChange(*ends, cut=True) for ends in sorted(self._cut & own)]
        for error in await self._agents.call(host, HostLinks.alter, cuts):
            if error is not None:
                raise FabricError(f"{host}: {error}")

    async def _shape(self, links: Sequence[LinkPlan], hosts: Container[str]) -> None:
        by_host = defaultdict(list)
        for link in links:
            shaped = replace(link, profile=self._less(link.source, link.target, link.profile), schedule=None)
            for host in {self._hosts[link.source], self._hosts[link.target]}:
                if host in hosts:
                    by_host[host].append(shaped)
        found = await asyncio.gather(
            *(self._agents.call(host, HostLinks.shape, given) for host, given in by_host.items())
        )
        self._notes += [f"{host}: {note}" for host, notes in zip(by_host, found, strict=True) for note in notes]

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        """A change of a link whose host is lost takes effect when the host is available again."""
        async with self._following:
            pass  # a host that shapes a link from now on knows it then
        by_host = defaultdict(list)
        altered = {(change.source, change.target) for change in changes}
        links, cut = {ends: self._links[ends] for ends in altered}, self._cut & altered
        for number, change in enumerate(changes):
            self._note(change)
            if self._driver.has(self._hosts[change.source]):
                by_host[self._hosts[change.source]].append(number)
        errors: list[Exception | None] = [None] * len(changes)

        async def of(host: str, numbers: list[int]) -> None:
            shaped = [self._deduct(changes[number]) for number in numbers]
            try:
                replies = await self._agents.call(host, HostLinks.alter, shaped)
            except LostError:
                return
            except OrchestratorError as error:
                replies = [str(error)] * len(numbers)
            if len(replies) != len(numbers):
                replies = [f"its agent gave {len(replies)} results of {len(numbers)} changes"] * len(numbers)
            for number, reply in zip(numbers, replies, strict=True):
                errors[number] = None if reply is None else FabricError(f"{host}: {reply}")

        await asyncio.gather(*(of(host, numbers) for host, numbers in by_host.items()))
        if any(errors):  # as if the refused changes had not been requested
            self._links |= links
            self._cut = (self._cut - altered) | cut
            for change, error in zip(changes, errors, strict=True):
                if error is None:
                    self._note(change)
        return errors

    async def counters(self) -> Counted:
        """Those of a lost host stay as they were when they were last read."""
        hosts = sorted({*self._hosts.values(), *self._counters})
        there = [host for host in await asyncio.gather(*map(self._count, hosts)) if host is not None]
        self.frames.read(asyncio.get_running_loop().time(), {host: self._counters[host] for host in there})
        for host in self._counters.keys() - set(there):
            self._counters[host] = replace(self._counters[host], late=0, late_max=0.0)
        return sum_counters([*self._former_counters, *self._counters.items()])

    async def _count(self, host: str) -> str | None:
        """Returns the host, None if it is lost or does not answer."""
        if self._driver.has(host):
            with contextlib.suppress(DriverError):
                self._counters[host] = await self._agents.call(host, Fabric.counters)
                return host
        return None

    def strangers(self) -> dict[str, int]:
        """By host, the packets that came over the trunk in nobody's name, as counted lately."""
        return {host: each.from_strangers for host, each in self._counters.items() if each.from_strangers}

    async def watch(self) -> None:
        """The driver hears what fails on a host."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """The links of a host end with its nodes, see `SwarmDriver.close`."""

    def _note(self, change: LinkChange) -> None:
        """Note a change as made."""
        ends = change.source, change.target
        if change.profile is not None:
            self._links[ends] = replace(self._links[ends], profile=change.profile)
        else:
            (self._cut.add if change.cut else self._cut.discard)(ends)

    def _less(self, source: str, target: str, profile: LinkProfile) -> LinkProfile:
        return replace(profile, latency=max(0.0, profile.latency - self._deduction(source, target)))

    def _deduct(self, change: LinkChange) -> LinkChange:
        if change.profile is None:
            return change
        return replace(change, profile=self._less(change.source, change.target, change.profile))


def remotes(plan: Plan, homes: Mapping[str, str], host: str) -> dict[str, str]:
    """The nodes of other hosts than this, see `orchestrator.fabric.trunk.Trunk`. ``homes``: the host of each node."""
    addresses = {each.name: each.address for each in plan.hosts}
    return {node.mac: addresses[homes[node.name]] for node in plan.nodes if homes[node.name] != host}


def sum_counters(counters: Sequence[tuple[str, Counted]]) -> Counted:
    """The counters of all hosts as those of one fabric. ``counters``: by host, of one engine after the other.

    A link is counted by the host of its source, by several one after the other if the source has moved.
    """
    drops: Counter[str] = Counter()
    to_groups: Counter[str] = Counter()
    rows: dict[Ends, LinkRow] = {}
    for host, each in counters:
        to_groups.update(each.to_groups)
        drops.update({f"{where} on {host}": number for where, number in each.drops.items()})
        for row in each.links:
            ends = str(row["source"]), str(row["target"])
            rows[ends] = plus(rows[ends], row) if ends in rows else row
    engines = [each for _, each in counters]
    return Counted(
        links=list(rows.values()),
        forwarded=sum(each.forwarded for each in engines),
        to_groups=to_groups,
        late=sum(each.late for each in engines),
        late_max=max((each.late_max for each in engines), default=0.0),
        drops=drops,
        cpu_seconds=sum(each.cpu_seconds for each in engines),
    )
