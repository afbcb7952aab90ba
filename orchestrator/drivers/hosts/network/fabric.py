"""The links of a run on several hosts. See `Fabric` and `SharesMedia` for the verbs.

The host of a link's source shapes it. A link that crosses shared media is shaped at their home instead, which may be
the host of its target, see `orchestrator.planning.hosts.media_homes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netem.media.profile import ChannelProfile, CrossTraffic
from netem.profile import LinkProfile
from orchestrator.drivers.hosts.agents.calls import HostLinks
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.driver import HostsDriver
from orchestrator.drivers.hosts.network.frames import Frames
from orchestrator.errors import DriverError, FabricError, LostError, OrchestratorError
from orchestrator.fabric.base import (
    ChannelRow,
    Counted,
    Fabric,
    KeepsNetworks,
    LinkChange,
    LinkRow,
    NodeHandle,
    SharesMedia,
    plus,
)
from orchestrator.fabric.coalesce import Coalescing
from orchestrator.fabric.namespaces import tcp
from orchestrator.planning.hosts.media_homes import media_homes, ways
from orchestrator.planning.plan import LinkPlan, NodePlan, Plan
from orchestrator.scenario.media.section import medium_of
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import together


class HostsFabric(Coalescing):
    """``driver`` knows the link engine of each host, what was measured between hosts, and which hosts are lost."""

    def __init__(self, agents: Agents, plan: Plan, driver: HostsDriver) -> None:
        super().__init__(self.alter)
        self.engine = ", ".join(sorted(set(driver.engines.values())))
        self.tcp: Mapping[str, str] = tcp.of_hosts(driver.tcp)
        self._agents = agents
        self._driver = driver
        self._plan = plan
        self._hosts = driver.homes
        self._notes: list[str] = []
        self._links: dict[Ends, LinkPlan] = {}  # with their present profiles
        self._cut: set[Ends] = set()
        self._homes: dict[str, str] = {}  # by medium
        self._channels: dict[str, ChannelProfile] = {}
        self._traffic: dict[str, tuple[CrossTraffic, int, float]] = {}  # by channel: its seed, and when it began
        self._following = asyncio.Lock()  # while links follow nodes that have moved
        self._counters: dict[str, Counted] = {}  # the latest of each host
        self._former_counters: list[tuple[str, Counted]] = []  # the last of hosts that have been reopened since
        self.frames = Frames(self._hosts)

    def notes(self) -> list[str]:
        return list(self._notes)

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        return await self._agents.call(handle.host, Fabric.attach, node, handle)

    async def detach(self, node: NodePlan) -> None:
        await self._at(self._hosts[node.name], Fabric.detach, node)  # the interfaces of a lost host are gone

    async def unsent(self, handle: NodeHandle) -> int:
        if not self._driver.has(handle.host):
            return 0  # a lost host sends nothing
        return await self._agents.call(handle.host, KeepsNetworks.unsent, handle)

    async def forget(self, handle: NodeHandle) -> None:
        await self._at(handle.host, KeepsNetworks.forget, handle)

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        """The host of a link's target is told too: it lets in what comes from other hosts."""
        self._links |= {(link.source, link.target): link for link in links}
        self._homes = self._find_homes()
        await together(self._make_channels(host, self._channels) for host in {*self._homes.values()})
        await self._shape(links, {*self._hosts.values()})

    async def share(self, channels: Mapping[str, ChannelProfile]) -> None:
        """Channels that no link crosses are made later. A host that refuses gets the former profiles again."""
        async with self._following:
            former = {name: self._channels[name] for name in channels if name in self._channels}
            self._channels |= channels
        by_home: defaultdict[str, dict[str, ChannelProfile]] = defaultdict(dict)
        for name, profile in channels.items():
            by_home[self._home(name)][name] = profile
        try:
            await together(self._at(home, SharesMedia.share, found) for home, found in by_home.items())
        except OrchestratorError:
            self._channels |= former
            raise

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        async with self._following:
            self._traffic.pop(channel, None)
            if traffic is not None:
                self._traffic[channel] = traffic, seed, asyncio.get_running_loop().time()
        await self._at(self._home(channel), SharesMedia.occupy, channel, traffic, seed)

    async def reshape(self, host: str) -> None:
        """Make the links of a host that was opened again; its counters start at 0. FabricError if that fails."""
        last = self._counters.pop(host, None)
        if last is not None:
            self._former_counters.append((host, _at_rest(last)))
        await self._make_channels(host, self._channels)
        await self._reshape(list(self._links.values()), host)

    async def redirect(self, nodes: Collection[str]) -> None:
        """Let all hosts that are there know where these nodes live now, and shape their links there. A host on which
        that fails counts as lost: its agent then ends what it has made."""
        self.frames.begin_anew()
        before = {ends: self._shaper(ends) for ends in self._links}
        homes = self._homes
        self._homes = self._find_homes()
        changed = {ends for ends in self._links if set(ends) & set(nodes) or self._shaper(ends) != before[ends]}
        channels = [name for name in self._channels if self._home(name) != homes.get(medium_of(name))]

        async def at(host: str) -> None:
            try:
                await self._agents.call(host, HostLinks.redirect, remotes(self._plan, self._hosts, host))
                await self._make_channels(host, channels)
                await self._reshape([self._links[ends] for ends in self._links if ends in changed], host)
            except OrchestratorError as error:
                self._agents.lose(host, str(error))

        async with self._following:
            await asyncio.gather(*(at(host) for host in self._driver.hosts if self._driver.has(host)))

    async def _reshape(self, links: Sequence[LinkPlan], host: str) -> None:
        await self._shape(links, {host})
        own = {ends for link in links if self._shaper(ends := (link.source, link.target)) == host}
        cuts = [LinkChange(*ends, cut=True) for ends in sorted(self._cut & own)]
        for error in await self._agents.call(host, HostLinks.alter, cuts):
            if error is not None:
                raise FabricError(f"{host}: {error}")

    async def _shape(self, links: Sequence[LinkPlan], hosts: Container[str]) -> None:
        by_host = defaultdict(list)
        for link in links:
            ends = (link.source, link.target)
            profile = self._less(link.source, link.target, link.profile)
            shaper = self._shaper(ends)
            (source, target) = (self._hosts[node] for node in ends)
            shaped = replace(link, profile=profile, schedule=None, at_target=shaper != source)
            for host in {source, target} if shaper else ():
                if host in hosts:
                    by_host[host].append(shaped)
        found = await asyncio.gather(
            *(self._agents.call(host, HostLinks.shape, given) for host, given in by_host.items())
        )
        self._notes += [f"{host}: {note}" for host, notes in zip(by_host, found, strict=True) for note in notes]

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        """A change on a lost host takes effect when it is back. A handover to a medium of another host is refused."""
        async with self._following:
            pass  # a host that shapes a link from now on knows it then
        by_host = defaultdict(list)
        altered = {(change.source, change.target) for change in changes}
        links = {ends: self._links[ends] for ends in altered}
        cut = self._cut & altered
        crossed = {medium_of(channel) for change in changes for channel, _ in change.crossings or ()}
        homeless = crossed - self._homes.keys()
        errors: list[Exception | None] = [None] * len(changes)
        for number, change in enumerate(changes):
            host = self._shaper((change.source, change.target))
            refusal = await self._admit(change, host)
            if refusal is not None:
                errors[number] = refusal
                continue
            self._note(change)
            if self._driver.has(host):
                by_host[host].append(number)

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
            used = {medium_of(channel) for link in self._links.values() for channel, _ in link.crossings}
            for medium in homeless - used:
                self._homes.pop(medium, None)
        return errors

    async def counters(self) -> Counted:
        """Those of a lost host stay as they were when they were last read."""
        hosts = sorted({*self._hosts.values(), *self._counters})
        there = [host for host in await asyncio.gather(*map(self._count, hosts)) if host is not None]
        self.frames.read(asyncio.get_running_loop().time(), {host: self._counters[host] for host in there})
        for host in self._counters.keys() - set(there):
            self._counters[host] = _at_rest(self._counters[host])
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
        """The links of a host end with its nodes, see `HostsDriver.close`."""

    def _note(self, change: LinkChange) -> None:
        """Note a change as made."""
        ends = change.source, change.target
        if change.profile is not None:
            self._links[ends] = replace(self._links[ends], profile=change.profile)
        elif change.crossings is not None:
            self._links[ends] = replace(self._links[ends], crossings=change.crossings)
        else:
            (self._cut.add if change.cut else self._cut.discard)(ends)

    # Shared media

    def _find_homes(self) -> dict[str, str]:
        planned = ways([*self._plan.links, *self._links.values()], self._plan.faults)
        return media_homes(planned, self._hosts, self._homes)

    def _home(self, channel: str) -> str:
        """The host that has a channel; empty if none has."""
        return self._homes.get(medium_of(channel), "")

    def _shaper(self, ends: Ends) -> str:
        """The host that shapes a link; empty if its media have no home."""
        crossings = self._links[ends].crossings
        if crossings:
            return self._home(crossings[0].channel)
        return self._hosts[ends[0]]

    async def _make_channels(self, host: str, names: Iterable[str]) -> None:
        """Make those of these channels whose home this host is, with their cross traffic."""
        channels = {name: self._channels[name] for name in names if self._home(name) == host}
        if channels:
            await self._agents.call(host, SharesMedia.share, channels)
        for name in channels.keys() & self._traffic.keys():
            traffic, seed, began = self._traffic[name]
            left = traffic.since(asyncio.get_running_loop().time() - began)
            await self._agents.call(host, SharesMedia.occupy, name, left, seed)

    async def _admit(self, change: LinkChange, host: str) -> FabricError | None:
        """Let a link cross other channels; a medium without a home gets it here. Returns why it cannot."""
        for channel, member in change.crossings or ():
            medium = medium_of(channel)
            if medium not in self._homes:
                self._homes[medium] = host
                if self._driver.has(host):
                    try:
                        await self._make_channels(host, [name for name in self._channels if medium_of(name) == medium])
                    except LostError:
                        pass  # it gets them when it is available again
                    except OrchestratorError as error:
                        del self._homes[medium]
                        return FabricError(f"{host}: {error}")
            elif self._homes[medium] != host:
                return FabricError(f"{member} cannot join {medium}: its home is {self._homes[medium]}, not {host}")
        return None

    async def _at(self, host: str, method: Callable[..., Any], *arguments: Any) -> None:
        """Call an agent, unless its host is lost. Then the host gets the present state when it is available again."""
        if self._driver.has(host):
            with contextlib.suppress(LostError):
                await self._agents.call(host, method, *arguments)

    def _less(self, source: str, target: str, profile: LinkProfile) -> LinkProfile:
        """The profile without what the network between the hosts of two nodes adds."""
        between = self._driver.between.get((self._hosts[source], self._hosts[target]))
        if between is None:
            return profile
        return replace(profile, latency=max(0.0, profile.latency - between.delay))

    def _deduct(self, change: LinkChange) -> LinkChange:
        if change.profile is None:
            return change
        return replace(change, profile=self._less(change.source, change.target, change.profile))


def remotes(plan: Plan, homes: Mapping[str, str], host: str) -> dict[str, str]:
    """The nodes of other hosts than this, see `orchestrator.fabric.trunk.Trunk`. ``homes``: the host of each node."""
    addresses = {each.name: each.address for each in plan.hosts}
    return {node.mac: addresses[homes[node.name]] for node in plan.nodes if homes[node.name] != host}


def sum_counters(counters: Sequence[tuple[str, Counted]]) -> Counted:
    """The counters of all hosts as those of one fabric. ``counters``: by host, of one engine after the other. A link is
    counted by the host of its source, by several one after the other if the source has moved."""
    drops: Counter[str] = Counter()
    to_groups: Counter[str] = Counter()
    rows: dict[Ends, LinkRow] = {}
    channels: dict[tuple[object, object], ChannelRow] = {}
    for host, each in counters:
        to_groups.update(each.to_groups)
        drops.update({f"{where} on {host}": number for where, number in each.drops.items()})
        for row in each.links:
            ends = str(row["source"]), str(row["target"])
            if ends in rows:
                rows[ends] = plus(row, rows[ends])
            else:
                rows[ends] = row
        for row in each.channels:
            key = row["channel"], row["member"]
            if key in channels:
                channels[key] = plus(row, channels[key])
            else:
                channels[key] = row
    engines = [each for _, each in counters]
    return Counted(
        links=list(rows.values()),
        forwarded=sum(each.forwarded for each in engines),
        to_groups=to_groups,
        late=sum(each.late for each in engines),
        late_max=max((each.late_max for each in engines), default=0.0),
        drops=drops,
        cpu_seconds=sum(each.cpu_seconds for each in engines),
        channels=list(channels.values()),
    )


def _at_rest(last: Counted) -> Counted:
    """The last counters of a host that is lost."""
    return replace(last, late=0, late_max=0.0, channels=[row | {"queued_bytes": 0} for row in last.channels])
