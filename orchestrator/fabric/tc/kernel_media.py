"""The shared media of the kernel engine: an IFB device in the hub for each channel, and the redirection of the links
that cross it (`netem.kernel.media`). The devices end with the hub's namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from netem.errors import NetemError
from netem.kernel import batch, filters, media
from netem.kernel.filters import Match, show_counts_command
from netem.kernel.media import CommonQueue, Offered, Queue
from netem.kernel.tc import show_command
from netem.media.profile import ChannelProfile, Crossing
from orchestrator.errors import FabricError, HostError, OrchestratorError
from orchestrator.fabric.base import ChannelRow
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.tc.kernel_counters import Pair
from orchestrator.fabric.tc.traffic_control import TrafficControl

SEVERAL = "the kernel engine leads a link through one medium: choose `engine: userspace` for several"


@dataclass
class _KernelChannel:
    """``members``: all that it has had, with numbers. ``read`` and ``seconds``: their counters, see ChannelRow."""

    device: str
    profile: ChannelProfile
    members: dict[str, int] = field(default_factory=dict)
    read: dict[str, Queue] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    common: CommonQueue = field(default_factory=CommonQueue)


class KernelMedia:
    """The channels by name, and the links that cross one. ``addresses``: of the nodes."""

    def __init__(self, hub: Hub, control: TrafficControl, addresses: Mapping[str, str]) -> None:
        self._hub = hub
        self._tc = control
        self._addresses = addresses
        self._channels: dict[str, _KernelChannel] = {}
        self._crossings: dict[Pair, Crossing] = {}
        self._interfaces: dict[str, str] = {}  # of the attached nodes
        self._redirecting: set[str] = set()  # interfaces
        self._crossing = asyncio.Lock()  # while members join, so that a node is attached before or after
        self._flows: dict[Pair, int] = {}  # the links that are redirected, with the index of the action
        self._indexes = count(1)  # of actions; an index is never used again, so that its counter starts at 0
        self._crossed: dict[int, Crossing] = {}  # by the index
        self._offered: dict[int, Offered] = {}  # by the index, at the last reading

    @classmethod
    async def missing(cls, hub: Hub) -> str:
        """Why this host cannot share media, found by trying; empty if it can."""
        device = media.device_of(0)
        profile = ChannelProfile(1e6)
        flow = Match("127.0.0.1", "127.0.0.2", media.class_of(profile, 0), 1, device)
        commands = [
            *media.channel_commands(device, profile),
            *media.member_commands(device, profile, 0, 1),
            *media.redirect_commands("lo"),
            *filters.flow_commands("lo", flow),
        ]
        refused, _, said = await hub.attempt(["ip", "link", "add", device, "type", "ifb"])
        if not refused:
            refused, _, said = await hub.attempt(["tc", "-batch", "-"], stdin=batch.lines(commands))
            await hub.attempt(media.stop_redirecting_command("lo"))
            await hub.attempt(["ip", "link", "del", device])
        return (said.strip() or "refused") if refused else ""

    async def share(self, name: str, profile: ChannelProfile) -> None:
        """Make a channel, or change its rate and buffer in place; if the kernel refuses, nothing changes."""
        channel = self._channels.get(name)
        if channel is None:
            device = media.device_of(len(self._channels))
            made = f"link add {device} numtxqueues 1 numrxqueues 1 type ifb\nlink set {device} addrgenmode none up\n"
            try:
                await self._hub.run(["ip", "-batch", "-"], stdin=made)
                await self._tc.run(media.channel_commands(device, profile))
            except HostError:
                await self._hub.attempt(["ip", "link", "del", device])
                raise
            self._channels[name] = _KernelChannel(device, profile)
            return
        await self.rows()  # what has left was sent at the rate until now
        before = channel.profile
        channel.profile = profile
        try:
            await self._tc.run(self._changes(name))
        except HostError as error:
            channel.profile = before
            await self._tc.attempt(self._changes(name))
            raise FabricError(f"{name}: {error}") from error

    def crossed_by(self, source: str) -> bool:
        """Whether a link of this source crosses a channel."""
        return any(pair[0] == source for pair in self._crossings)

    async def cross(self, ways: Mapping[Pair, Sequence[Crossing]]) -> None:
        """Lead these links through these channels. FabricError if one would cross several; on errors nothing
        changes."""
        async with self._crossing:
            changed = {pair: way for pair, way in ways.items() if list(way) != self.way(pair)}
            if any(len(way) > 1 for way in changed.values()):
                raise FabricError(SEVERAL)
            unknown = {each.channel for way in changed.values() for each in way} - self._channels.keys()
            if unknown:
                raise FabricError(f"there is no channel {min(unknown)}")
            if changed.keys() & self._flows.keys():
                await self.rows()  # the counter of a filter ends with it
            before = dict(self._crossings)
            for pair, way in changed.items():
                self._crossings.pop(pair, None)
                if way:
                    self._crossings[pair] = way[0]
            names = sorted({each.channel for each in {*before.values()} ^ {*self._crossings.values()}})
            try:
                for name in names:
                    await self._admit(name)
                await self._redirect(changed)
            except (OrchestratorError, NetemError):
                self._crossings = before
                with contextlib.suppress(OrchestratorError, NetemError):
                    await self._tc.attempt([command for name in names for command in self._changes(name)])
                    await self._redirect(changed)
                raise

    async def attach(self, node: str, interface: str) -> None:
        """Redirect what comes from a node through a new interface."""
        async with self._crossing:
            self._interfaces[node] = interface
            await self._redirect([pair for pair in self._crossings if pair[0] == node])

    def detach(self, node: str) -> None:
        self._redirecting.discard(self._interfaces.pop(node, ""))
        for pair in [pair for pair in self._flows if pair[0] == node]:
            self._forget(pair)

    async def rows(self) -> list[ChannelRow]:
        """The counters of all members."""
        if not self._channels:
            return []
        common = not all(each.profile.rule.own_queues for each in self._channels.values())
        interfaces = list(self._redirecting) if common else []
        commands = [show_command(each.device) for each in self._channels.values()]
        replies = await self._tc.attempt([*commands, *map(show_counts_command, interfaces)])
        offered = self._grown([reply.shown for reply in replies[len(commands) :] if not reply.error])
        rows: list[ChannelRow] = []
        for (name, channel), reply in zip(self._channels.items(), replies, strict=False):
            if reply.error:
                raise FabricError(f"{name}: {reply.error}")
            try:
                members = _members(channel, media.parse_queues(reply.shown), offered.get(name, {}))
            except KeyError as error:
                raise FabricError(f"{name}: tc does not show the queue {error}") from error
            for member, now in members.items():
                grown = now.bytes - channel.read.get(member, Queue()).bytes
                channel.read[member] = now
                channel.seconds[member] += 8 * grown / channel.profile.rate
                if now.packets or now.dropped or now.waiting:
                    counts: ChannelRow = {"packets": now.packets, "bytes": now.bytes, "overflowed": now.dropped}
                    of: ChannelRow = {"channel": name, "member": member, "queued_bytes": now.waiting_bytes}
                    rows.append(of | counts | {"seconds": channel.seconds[member]})
        return rows

    def way(self, pair: Pair) -> list[Crossing]:
        """The channels that a link crosses."""
        if pair in self._crossings:
            return [self._crossings[pair]]
        return []

    def _changes(self, name: str) -> list[list[str]]:
        """The commands that give a channel its profile, and each member its part of the buffer."""
        channel = self._channels[name]
        present = {each.member for each in self._crossings.values() if each[0] == name}
        return media.change_commands(channel.device, channel.profile, len(channel.members), len(present))

    async def _admit(self, name: str) -> None:
        """Make the queues of new members, and divide the buffer among all members."""
        channel = self._channels[name]
        members = dict.fromkeys(each.member for each in self._crossings.values() if each.channel == name)
        new = [member for member in members if member not in channel.members]
        numbers = {member: number for number, member in enumerate(new, start=len(channel.members))}
        commands = [
            command
            for number in numbers.values()
            for command in media.member_commands(channel.device, channel.profile, number, len(members))
        ]
        if commands:
            await self._tc.run(commands)
        channel.members |= numbers
        await self._tc.run(self._changes(name))

    async def _redirect(self, pairs: Iterable[Pair]) -> None:
        """Redirect these links to their channels if their sources are attached. HostError after the others."""
        of: defaultdict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            if pair in self._flows:
                is_now = self._crossed[self._flows[pair]]
            else:
                is_now = None
            if pair[0] in self._interfaces and self._crossings.get(pair) != is_now:
                of[self._interfaces[pair[0]]].append(pair)
        errors = []
        for interface, changed in of.items():
            try:
                await self._redirect_from(interface, changed)
            except HostError as error:
                gone, _, _ = await self._hub.attempt(["ip", "link", "show", "dev", interface])
                errors += [] if gone else [error]  # gone: its node has just ended
        if errors:
            raise errors[0]

    async def _redirect_from(self, interface: str, pairs: Sequence[Pair]) -> None:
        if interface not in self._redirecting:
            try:
                await self._tc.run(media.redirect_commands(interface))
            except HostError:
                await self._tc.attempt([media.stop_redirecting_command(interface)])
                raise
            self._redirecting.add(interface)
        flows = {pair: self._flow(pair) for pair in pairs if pair in self._crossings}
        commands = {}
        for pair in pairs:
            if pair in flows:
                commands[pair] = filters.flow_commands(interface, flows[pair])
            else:
                commands[pair] = filters.stop_flow_commands(interface, self._addresses[pair[1]])
        replies = iter(await self._tc.attempt(list(chain.from_iterable(commands.values()))))
        errors = []
        for pair, own in commands.items():
            refused = False
            for command, reply in zip(own, replies, strict=False):
                if reply.error:
                    refused = True
                    errors.append(HostError(f"`{' '.join(command)}` failed ({reply.error})"))
            index = flows[pair].counter if pair in flows else 0
            if refused or self._interfaces.get(pair[0]) != interface:  # detached meanwhile
                self._crossed.pop(index, None)
                continue
            self._forget(pair)
            if index:
                self._flows[pair] = index
        if errors:
            raise errors[0]

    def _forget(self, pair: Pair) -> None:
        """The filter of a link is not there any more."""
        index = self._flows.pop(pair, 0)
        self._crossed.pop(index, None)
        self._offered.pop(index, None)

    def _flow(self, pair: Pair) -> Match:
        crossing = self._crossings[pair]
        index = next(self._indexes)
        channel = self._channels[crossing.channel]
        self._crossed[index] = crossing
        place = media.class_of(channel.profile, channel.members[crossing.member])
        return Match(self._addresses[pair[0]], self._addresses[pair[1]], place, index, channel.device)

    def _grown(self, shown: Sequence[str]) -> dict[str, dict[str, Offered]]:
        """What each member has offered to each channel since the last reading."""
        found: defaultdict[str, dict[str, Offered]] = defaultdict(dict)
        for index, now in [each for text in shown for each in media.parse_redirected(text).items()]:
            if index not in self._crossed:
                continue  # it has ended meanwhile
            before = self._offered.get(index, Offered())
            self._offered[index] = now
            name, member = self._crossed[index]
            other = found[name].get(member, Offered())
            more = Offered(now.packets - before.packets, now.bytes - before.bytes)
            found[name][member] = Offered(other.packets + more.packets, other.bytes + more.bytes)
        return found


def _members(
    channel: _KernelChannel, queues: Mapping[str, Queue], offered: Mapping[str, Offered]
) -> Mapping[str, Queue]:
    """The counters of a channel by member."""
    if not channel.profile.rule.own_queues:
        return channel.common.add(queues[media.class_of(channel.profile, 0)], offered)
    return {member: queues[media.class_of(channel.profile, number)] for member, number in channel.members.items()}
