"""The links of a run on several hosts. See `Fabric` and `SharesMedia` for the methods.

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

Links = Sequence[LinkPlan]
Changes = Sequence[LinkChange]
Channels = Mapping[str, ChannelProfile]
Hosts = Mapping[str, str]  # by node
Traffic = tuple[CrossTraffic, int, float]  # with its seed and start time
HostCounters = tuple[str, Counted]


class HostsFabric(Coalescing):
    """``driver`` knows the link engine of each host, what was measured between hosts, and which hosts are lost."""

    def __init__(self, agents: Agents, plan: Plan, driver: HostsDriver) -> None:
        super().__init__(self.alter)
        engines = set(driver.engines.values())
        self.engine = ", ".join(sorted(engines))
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
        self._traffic: dict[str, Traffic] = {}  # by channel
        self._following = asyncio.Lock()  # while links follow nodes that have moved
        self._counters: dict[str, Counted] = {}  # the latest of each host
        self._former_counters: list[HostCounters] = []  # the last of hosts that have been reopened since
        self.frames = Frames(self._hosts)

    def notes(self) -> list[str]:
        return list(self._notes)

    async def attach(self, node: NodePlan, handle: NodeHandle) -> dict[str, str]:
        host = handle.host
        return await self._agents.call(host, Fabric.attach, node, handle)

    async def detach(self, node: NodePlan) -> None:
        host = self._hosts[node.name]
        await self._at(host, Fabric.detach, node)  # the interfaces of a lost host are gone

    async def unsent(self, handle: NodeHandle) -> int:
        host = handle.host
        if not self._driver.has(host):
            return 0  # a lost host sends nothing
        return await self._agents.call(host, KeepsNetworks.unsent, handle)

    async def forget(self, handle: NodeHandle) -> None:
        await self._at(handle.host, KeepsNetworks.forget, handle)

    async def shape(self, links: Links) -> None:
        """The host of a link's target gets the link too: it admits what comes from other hosts."""
        for link in links:
            self._links[link.source, link.target] = link
        self._homes = self._find_homes()
        channel_hosts = set(self._homes.values())
        await together(self._make_channels(host, self._channels) for host in channel_hosts)
        hosts = set(self._hosts.values())
        await self._shape(links, hosts)

    async def share(self, channels: Channels) -> None:
        """Channels that no link crosses are made later. A host that refuses gets the former profiles again."""
        async with self._following:
            former = {}
            for name in channels:
                if name in self._channels:
                    former[name] = self._channels[name]
            self._channels |= channels
        by_home: defaultdict[str, dict[str, ChannelProfile]] = defaultdict(dict)
        for name, profile in channels.items():
            home = self._home(name)
            by_home[home][name] = profile
        calls = []
        for home, own in by_home.items():
            calls.append(self._at(home, SharesMedia.share, own))
        try:
            await together(calls)
        except OrchestratorError:
            self._channels |= former
            raise

    async def occupy(self, channel: str, traffic: CrossTraffic | None, seed: int = 0) -> None:
        async with self._following:
            self._traffic.pop(channel, None)
            if traffic is not None:
                start = asyncio.get_running_loop().time()
                self._traffic[channel] = traffic, seed, start
        home = self._home(channel)
        await self._at(
            home,
            SharesMedia.occupy,
            channel,
            traffic,
            seed,
        )

    async def reshape(self, host: str) -> None:
        """Make the links of a host that was opened again; its counters start at 0. FabricError if that fails."""
        last = self._counters.pop(host, None)
        if last is not None:
            former = _at_rest(last)
            self._former_counters.append((host, former))
        await self._make_channels(host, self._channels)
        links = list(self._links.values())
        await self._reshape(links, host)

    async def redirect(self, nodes: Collection[str]) -> None:
        """Send the present hosts of these nodes to all available hosts, and shape their links there. A host on which
        that fails counts as lost: its agent then removes what it has made."""
        self.frames.begin_anew()
        before = {}
        for ends in self._links:
            before[ends] = self._shaper(ends)
        homes = self._homes
        self._homes = self._find_homes()
        moved = set(nodes)
        changed: list[Ends] = []
        for ends in self._links:
            has_moved = not moved.isdisjoint(ends)
            has_other_shaper = self._shaper(ends) != before[ends]
            if has_moved or has_other_shaper:
                changed.append(ends)
        channels: list[str] = []  # those with another home now
        for name in self._channels:
            former_home = homes.get(medium_of(name))
            if self._home(name) != former_home:
                channels.append(name)

        async def redirect_on(host: str) -> None:
            try:
                addresses = remotes(self._plan, self._hosts, host)
                await self._agents.call(host, HostLinks.redirect, addresses)
                await self._make_channels(host, channels)
                links = [self._links[ends] for ends in changed]
                await self._reshape(links, host)
            except OrchestratorError as error:
                self._agents.lose(host, str(error))

        async with self._following:
            calls = []
            for host in self._driver.hosts:
                if self._driver.has(host):
                    calls.append(redirect_on(host))
            await asyncio.gather(*calls)

    async def _reshape(self, links: Links, host: str) -> None:
        await self._shape(links, {host})
        cuts: list[Ends] = []
        for link in links:
            ends = (link.source, link.target)
            shaper = self._shaper(ends)
            if shaper == host and ends in self._cut:
                cuts.append(ends)
        cuts.sort()
        changes = [LinkChange(*ends, cut=True) for ends in cuts]
        errors = await self._agents.call(host, HostLinks.alter, changes)
        for error in errors:
            if error is not None:
                raise FabricError(f"{host}: {error}")

    async def _shape(self, links: Links, hosts: Container[str]) -> None:
        by_host = defaultdict(list)
        for link in links:
            ends = (link.source, link.target)
            shaper = self._shaper(ends)
            if not shaper:
                continue
            source = self._hosts[link.source]
            target = self._hosts[link.target]
            shaped = replace(
                link,
                profile=self._less(*ends, link.profile),
                schedule=None,
                at_target=shaper != source,
            )
            for host in {source, target}:
                if host in hosts:
                    by_host[host].append(shaped)
        calls = []
        for host, own in by_host.items():
            call = self._agents.call(host, HostLinks.shape, own)
            calls.append(call)
        notes_of_hosts = await asyncio.gather(*calls)
        for host, notes in zip(by_host, notes_of_hosts, strict=True):
            self._notes += [f"{host}: {note}" for note in notes]

    async def alter(self, changes: Changes) -> list[Exception | None]:
        """A change on a lost host takes effect when it is back. A handover to a medium of another host is refused."""
        async with self._following:
            pass  # a host that shapes a link from now on knows it then
        altered: set[Ends] = set()
        for change in changes:
            altered.add((change.source, change.target))
        former_links = {}
        for ends in altered:
            former_links[ends] = self._links[ends]
        former_cuts = self._cut & altered
        crossed = _crossed_media(changes)
        homeless = crossed - self._homes.keys()
        errors: list[Exception | None] = [None] * len(changes)
        by_host = defaultdict(list)
        for number, change in enumerate(changes):
            ends = (change.source, change.target)
            host = self._shaper(ends)
            refusal = await self._admit(change, host)
            if refusal is not None:
                errors[number] = refusal
                continue
            self._note(change)
            if self._driver.has(host):
                by_host[host].append(number)

        async def alter_on(host: str, numbers: list[int]) -> None:
            shaped = [self._deduct(changes[number]) for number in numbers]
            try:
                replies = await self._agents.call(host, HostLinks.alter, shaped)
            except LostError:
                return
            except OrchestratorError as error:
                reason = str(error)
                replies = [reason] * len(numbers)
            if len(replies) != len(numbers):
                mismatch = f"its agent gave {len(replies)} results of {len(numbers)} changes"
                replies = [mismatch] * len(numbers)
            for number, reply in zip(numbers, replies, strict=True):
                if reply is None:
                    errors[number] = None
                else:
                    errors[number] = FabricError(f"{host}: {reply}")

        calls = []
        for host, numbers in by_host.items():
            calls.append(alter_on(host, numbers))
        await asyncio.gather(*calls)
        if any(errors):  # as if the refused changes had not been requested
            self._links |= former_links
            self._cut -= altered
            self._cut |= former_cuts
            for change, error in zip(changes, errors, strict=True):
                if error is None:
                    self._note(change)
            for medium in homeless - self._used_media():
                self._homes.pop(medium, None)
        return errors

    def _used_media(self) -> set[str]:
        media = set()
        for link in self._links.values():
            for channel, _ in link.crossings:
                media.add(medium_of(channel))
        return media

    async def counters(self) -> Counted:
        """Those of a lost host stay as they were when they were last read."""
        hosts = {*self._hosts.values(), *self._counters}
        calls = [self._count(host) for host in sorted(hosts)]
        available = {}
        for host in await asyncio.gather(*calls):
            if host is not None:
                available[host] = self._counters[host]
        now = asyncio.get_running_loop().time()
        self.frames.read(now, available)
        for host, last in self._counters.items():
            if host not in available:
                self._counters[host] = _at_rest(last)
        counters = [*self._former_counters, *self._counters.items()]
        return sum_counters(counters)

    async def _count(self, host: str) -> str | None:
        """Returns the host, None if it is lost or does not answer."""
        if not self._driver.has(host):
            return None
        with contextlib.suppress(DriverError):
            counted = await self._agents.call(host, Fabric.counters)
            self._counters[host] = counted
            return host
        return None

    def strangers(self) -> dict[str, int]:
        """By host, the packets of no node that came over the trunk, as counted lately."""
        packets = {}
        for host, counted in self._counters.items():
            if counted.from_strangers:
                packets[host] = counted.from_strangers
        return packets

    async def watch(self) -> None:
        """The driver is informed about what fails on a host."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """The links of a host end with its nodes, see `HostsDriver.close`."""

    def _note(self, change: LinkChange) -> None:
        """Note a change as made."""
        ends = (change.source, change.target)
        if change.profile is not None:
            link = self._links[ends]
            self._links[ends] = replace(link, profile=change.profile)
        elif change.crossings is not None:
            link = self._links[ends]
            self._links[ends] = replace(link, crossings=change.crossings)
        elif change.cut:
            self._cut.add(ends)
        else:
            self._cut.discard(ends)

    # Shared media

    def _find_homes(self) -> dict[str, str]:
        links = [*self._plan.links, *self._links.values()]
        faults = self._plan.faults
        planned = ways(links, faults)
        return media_homes(planned, self._hosts, self._homes)

    def _home(self, channel: str) -> str:
        """The host that has a channel; empty if none has."""
        medium = medium_of(channel)
        return self._homes.get(medium, "")

    def _shaper(self, ends: Ends) -> str:
        """The host that shapes a link; empty if its media have no home."""
        crossings = self._links[ends].crossings
        if crossings:
            return self._home(crossings[0].channel)
        source, _ = ends
        return self._hosts[source]

    async def _make_channels(self, host: str, names: Iterable[str]) -> None:
        """Make those of these channels that have this host as their home, with their cross traffic."""
        channels = {}
        for name in names:
            if self._home(name) == host:
                channels[name] = self._channels[name]
        if channels:
            await self._agents.call(host, SharesMedia.share, channels)
        loop = asyncio.get_running_loop()
        for name in channels.keys() & self._traffic.keys():
            traffic, seed, start = self._traffic[name]
            elapsed = loop.time() - start
            remaining = traffic.since(elapsed)
            await self._agents.call(
                host,
                SharesMedia.occupy,
                name,
                remaining,
                seed,
            )

    async def _admit(self, change: LinkChange, host: str) -> FabricError | None:
        """Let a link cross other channels; a medium without a home gets it here. Returns why it cannot."""
        for channel, member in change.crossings or ():
            medium = medium_of(channel)
            home = self._homes.get(medium)
            if home is None:
                self._homes[medium] = host
                error = await self._make_medium(medium, host)
                if error is not None:
                    del self._homes[medium]
                    return FabricError(f"{host}: {error}")
            elif home != host:
                return FabricError(f"{member} cannot join {medium}: its home is {home}, not {host}")
        return None

    async def _make_medium(self, medium: str, host: str) -> OrchestratorError | None:
        """Make the channels of a medium on a host. Returns why that failed. A lost host gets them when it is back."""
        if not self._driver.has(host):
            return None
        names = []
        for name in self._channels:
            if medium_of(name) == medium:
                names.append(name)
        try:
            await self._make_channels(host, names)
        except LostError:
            pass
        except OrchestratorError as error:
            return error
        return None

    async def _at(
        self,
        host: str,
        method: Callable[..., Any],
        *arguments: Any,
    ) -> None:
        """Call an agent, unless its host is lost. Then the host gets the present state when it is available again."""
        if not self._driver.has(host):
            return
        with contextlib.suppress(LostError):
            await self._agents.call(host, method, *arguments)

    def _less(self, source: str, target: str, profile: LinkProfile) -> LinkProfile:
        """The profile without what the network between the hosts of two nodes adds."""
        source_host = self._hosts[source]
        target_host = self._hosts[target]
        ends = (source_host, target_host)
        between = self._driver.between.get(ends)
        if between is None:
            return profile
        latency = profile.latency - between.delay
        return replace(profile, latency=max(0.0, latency))

    def _deduct(self, change: LinkChange) -> LinkChange:
        if change.profile is None:
            return change
        ends = (change.source, change.target)
        profile = self._less(*ends, change.profile)
        return replace(change, profile=profile)


def _crossed_media(changes: Iterable[LinkChange]) -> set[str]:
    """The media to which changes hand links over."""
    media = set()
    for change in changes:
        for channel, _ in change.crossings or ():
            media.add(medium_of(channel))
    return media


def remotes(plan: Plan, homes: Hosts, host: str) -> dict[str, str]:
    """The nodes of other hosts than this, see `orchestrator.fabric.trunk.Trunk`. ``homes``: the host of each node."""
    addresses = {}
    for planned in plan.hosts:
        addresses[planned.name] = planned.address
    by_mac = {}
    for node in plan.nodes:
        home = homes[node.name]
        if home != host:
            by_mac[node.mac] = addresses[home]
    return by_mac


def sum_counters(counters: Sequence[HostCounters]) -> Counted:
    """The counters of all hosts as those of one fabric. ``counters``: by host, of one engine after the other. A link is
    counted by the host of its source, by several one after the other if the source has moved."""
    drops: Counter[str] = Counter()
    to_groups: Counter[str] = Counter()
    rows: dict[Ends, LinkRow] = {}
    channels: dict[tuple[object, object], ChannelRow] = {}
    for host, counted in counters:
        to_groups.update(counted.to_groups)
        for place, packets in counted.drops.items():
            drops[f"{place} on {host}"] += packets
        for row in counted.links:
            source = str(row["source"])
            target = str(row["target"])
            ends = (source, target)
            if ends in rows:
                row = plus(row, rows[ends])
            rows[ends] = row
        for channel_row in counted.channels:
            key = (channel_row["channel"], channel_row["member"])
            if key in channels:
                channel_row = plus(channel_row, channels[key])
            channels[key] = channel_row
    engines = [counted for _, counted in counters]
    delays = [engine.late_max for engine in engines]
    return Counted(
        links=list(rows.values()),
        forwarded=sum(engine.forwarded for engine in engines),
        to_groups=to_groups,
        late=sum(engine.late for engine in engines),
        late_max=max(delays, default=0.0),
        drops=drops,
        cpu_seconds=sum(engine.cpu_seconds for engine in engines),
        channels=list(channels.values()),
    )


def _at_rest(last: Counted) -> Counted:
    """The last counters of a host that is lost."""
    channels = [row | {"queued_bytes": 0} for row in last.channels]
    return replace(
        last,
        late=0,
        late_max=0.0,
        channels=channels,
    )
