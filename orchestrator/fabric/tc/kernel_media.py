"""The shared media of the kernel engine: an IFB device in the hub for each channel, and the redirection of the links
that cross it (`netem.kernel.media`). The devices end with the hub's namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from netem.errors import NetemError
from netem.kernel import batch, filters, media
from netem.kernel.batch import Commands
from netem.kernel.filters import Match, show_counts_command
from netem.kernel.media import CommonQueue, Offered, Queue
from netem.kernel.tc import show_command
from netem.media.profile import ChannelProfile, Crossing
from orchestrator.errors import FabricError, HostError, OrchestratorError
from orchestrator.fabric.base import ChannelRow
from orchestrator.fabric.namespaces.hub import IP_BATCH, TC_BATCH, Hub
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

    def count(self, member: str, queue: Queue) -> None:
        """Note the counters of a member. What has left since the last time was sent at the present rate."""
        before = self.read.get(member, Queue())
        self.read[member] = queue
        bits = 8 * (queue.bytes - before.bytes)
        self.seconds[member] += bits / self.profile.rate

    def row(self, name: str, member: str) -> ChannelRow:
        """The counters of a member of this channel, which has this name."""
        queue = self.read[member]
        return {
            "channel": name,
            "member": member,
            "queued_bytes": queue.waiting_bytes,
            "packets": queue.packets,
            "bytes": queue.bytes,
            "overflowed": queue.dropped,
            "seconds": self.seconds[member],
        }


class KernelMedia:
    """The channels by name, and the links that cross one. ``addresses``: of the nodes."""

    def __init__(
        self,
        hub: Hub,
        control: TrafficControl,
        addresses: Mapping[str, str],
    ) -> None:
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
        class_id = media.class_of(profile, 0)
        flow = Match("127.0.0.1", "127.0.0.2", class_id, 1, device)
        commands = media.channel_commands(device, profile)
        commands += media.member_commands(device, profile, 0, 1)
        commands += media.redirect_commands("lo")
        commands += filters.flow_commands("lo", flow)
        add_device = f"ip link add {device} type ifb"
        refused, _, errors = await hub.attempt(add_device.split())
        if not refused:
            lines = batch.lines(commands)
            refused, _, errors = await hub.attempt(TC_BATCH, stdin=lines)
            await hub.attempt(media.stop_redirecting_command("lo"))
            await hub.attempt(f"ip link del {device}".split())
        if not refused:
            return ""
        return errors.strip() or "refused"

    async def share(self, name: str, profile: ChannelProfile) -> None:
        """Make a channel, or change its rate and buffer in place; if the kernel refuses, nothing changes."""
        channel = self._channels.get(name)
        if channel is None:
            self._channels[name] = await self._make(profile)
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

    async def _make(self, profile: ChannelProfile) -> _KernelChannel:
        """Make the device of the next channel. HostError if the kernel refuses."""
        device = media.device_of(len(self._channels))
        lines = f"link add {device} numtxqueues 1 numrxqueues 1 type ifb\nlink set {device} addrgenmode none up\n"
        try:
            await self._hub.run(IP_BATCH, stdin=lines)
            commands = media.channel_commands(device, profile)
            await self._tc.run(commands)
        except HostError:
            await self._hub.attempt(f"ip link del {device}".split())
            raise
        return _KernelChannel(device, profile)

    def crossed_by(self, source: str) -> bool:
        """Whether a link of this source crosses a channel."""
        return bool(_from_source(self._crossings, source))

    async def cross(self, ways: Mapping[Pair, Sequence[Crossing]]) -> None:
        """Lead these links through these channels. FabricError if one would cross several; on errors nothing
        changes."""
        async with self._crossing:
            changed = {}
            for pair, way in ways.items():
                if list(way) != self.way(pair):
                    changed[pair] = way
            self._check_ways(changed)
            if changed.keys() & self._flows.keys():
                await self.rows()  # the counter of a filter ends with it
            before = dict(self._crossings)
            for pair, way in changed.items():
                self._crossings.pop(pair, None)
                if way:
                    self._crossings[pair] = way[0]
            formerly = set(before.values())
            different = formerly ^ set(self._crossings.values())
            names = sorted({crossing.channel for crossing in different})
            try:
                for name in names:
                    await self._admit(name)
                await self._redirect(changed)
            except (OrchestratorError, NetemError):
                self._crossings = before
                with contextlib.suppress(OrchestratorError, NetemError):
                    together: Commands = []
                    for name in names:
                        together += self._changes(name)
                    await self._tc.attempt(together)
                    await self._redirect(changed)
                raise

    def _check_ways(self, ways: Mapping[Pair, Sequence[Crossing]]) -> None:
        """Raise FabricError if a link would cross several channels, or one that does not exist."""
        unknown = set()
        for way in ways.values():
            if len(way) > 1:
                raise FabricError(SEVERAL)
            for name, _ in way:
                if name not in self._channels:
                    unknown.add(name)
        if unknown:
            raise FabricError(f"there is no channel {min(unknown)}")

    async def attach(self, node: str, interface: str) -> None:
        """Redirect what comes from a node through a new interface."""
        async with self._crossing:
            self._interfaces[node] = interface
            pairs = _from_source(self._crossings, node)
            await self._redirect(pairs)

    def detach(self, node: str) -> None:
        interface = self._interfaces.pop(node, "")
        self._redirecting.discard(interface)
        for pair in _from_source(self._flows, node):
            self._forget(pair)

    async def rows(self) -> list[ChannelRow]:
        """The counters of all members."""
        if not self._channels:
            return []
        channels = self._channels.values()
        interfaces: list[str] = []
        rules = [channel.profile.rule for channel in channels]
        if not all(rule.own_queues for rule in rules):
            interfaces = list(self._redirecting)
        queues = [show_command(channel.device) for channel in channels]
        counts = [show_counts_command(interface) for interface in interfaces]
        replies = await self._tc.attempt(queues + counts)
        shown_counts = []
        for reply in replies[len(queues) :]:
            if not reply.error:
                shown_counts.append(reply.shown)
        offered = self._grown(shown_counts)
        rows: list[ChannelRow] = []
        named = self._channels.items()
        for (name, channel), reply in zip(named, replies, strict=False):
            if reply.error:
                raise FabricError(f"{name}: {reply.error}")
            try:
                shown = media.parse_queues(reply.shown)
                offers = offered.get(name, {})
                members = _members(channel, shown, offers)
            except KeyError as error:
                raise FabricError(f"{name}: tc does not show the queue {error}") from error
            for member, queue in members.items():
                channel.count(member, queue)
                if queue.packets or queue.dropped or queue.waiting:
                    rows.append(channel.row(name, member))
        return rows

    def _members_of(self, name: str) -> list[str]:
        """The present members of a channel, each one once."""
        members: dict[str, None] = {}
        for channel, member in self._crossings.values():
            if channel == name:
                members[member] = None
        return list(members)

    def way(self, pair: Pair) -> list[Crossing]:
        """The channels that a link crosses."""
        if pair in self._crossings:
            return [self._crossings[pair]]
        return []

    def _changes(self, name: str) -> Commands:
        """The commands that give a channel its profile, and each member its part of the buffer."""
        channel = self._channels[name]
        ever = len(channel.members)
        present = len(self._members_of(name))
        return media.change_commands(channel.device, channel.profile, ever, present)

    async def _admit(self, name: str) -> None:
        """Make the queues of new members, and divide the buffer among all members."""
        channel = self._channels[name]
        members = self._members_of(name)
        new = []
        for member in members:
            if member not in channel.members:
                new.append(member)
        numbers = {}
        commands: Commands = []
        profile = channel.profile
        first = len(channel.members)
        for number, member in enumerate(new, start=first):
            numbers[member] = number
            commands += media.member_commands(channel.device, profile, number, len(members))
        if commands:
            await self._tc.run(commands)
        channel.members |= numbers
        await self._tc.run(self._changes(name))

    async def _redirect(self, pairs: Iterable[Pair]) -> None:
        """Redirect these links to their channels if their sources are attached. HostError after the others."""
        pairs_from: defaultdict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            source, _ = pair
            interface = self._interfaces.get(source)
            if interface is None:
                continue
            crossing = self._crossings.get(pair)
            if crossing != self._redirected_to(pair):
                pairs_from[interface].append(pair)
        errors = []
        for interface, changed in pairs_from.items():
            try:
                await self._redirect_from(interface, changed)
            except HostError as error:
                show = f"ip link show dev {interface}"
                gone, _, _ = await self._hub.attempt(show.split())
                if not gone:  # gone: its node has just ended
                    errors.append(error)
        if errors:
            raise errors[0]

    def _redirected_to(self, pair: Pair) -> Crossing | None:
        """Where the packets of a link are redirected at present."""
        index = self._flows.get(pair)
        if index is None:
            return None
        return self._crossed[index]

    async def _redirect_from(self, interface: str, pairs: Sequence[Pair]) -> None:
        if interface not in self._redirecting:
            try:
                redirect = media.redirect_commands(interface)
                await self._tc.run(redirect)
            except HostError:
                stop = media.stop_redirecting_command(interface)
                await self._tc.attempt([stop])
                raise
            self._redirecting.add(interface)
        flows = {}
        for pair in pairs:
            if pair in self._crossings:
                flows[pair] = self._flow(pair)
        commands = {}
        for pair in pairs:
            _, target = pair
            if pair in flows:
                flow = flows[pair]
                commands[pair] = filters.flow_commands(interface, flow)
            else:
                address = self._addresses[target]
                commands[pair] = filters.stop_flow_commands(interface, address)
        together: Commands = []
        for own in commands.values():
            together += own
        replies = iter(await self._tc.attempt(together))
        errors = []
        for pair, own in commands.items():
            refused = False
            for command, reply in zip(own, replies, strict=False):
                if reply.error:
                    refused = True
                    written = " ".join(command)
                    errors.append(HostError(f"`{written}` failed ({reply.error})"))
            index = flows[pair].counter if pair in flows else 0
            source, _ = pair
            detached = self._interfaces.get(source) != interface
            if refused or detached:
                self._crossed.pop(index, None)
                continue
            self._forget(pair)
            if index:
                self._flows[pair] = index
        if errors:
            raise errors[0]

    def _forget(self, pair: Pair) -> None:
        """The filter of a link does not exist any more."""
        index = self._flows.pop(pair, 0)
        self._crossed.pop(index, None)
        self._offered.pop(index, None)

    def _flow(self, pair: Pair) -> Match:
        source, target = pair
        crossing = self._crossings[pair]
        index = next(self._indexes)
        channel = self._channels[crossing.channel]
        self._crossed[index] = crossing
        number = channel.members[crossing.member]
        return Match(
            source=self._addresses[source],
            target=self._addresses[target],
            class_id=media.class_of(channel.profile, number),
            counter=index,
            device=channel.device,
        )

    def _grown(self, shown: Sequence[str]) -> dict[str, dict[str, Offered]]:
        """What each member has offered to each channel since the last reading."""
        grown: defaultdict[str, dict[str, Offered]] = defaultdict(dict)
        redirected = [media.parse_redirected(text) for text in shown]
        for counters in redirected:
            for index, now in counters.items():
                if index not in self._crossed:
                    continue  # it has ended in the meantime
                before = self._offered.get(index, Offered())
                self._offered[index] = now
                name, member = self._crossed[index]
                other = grown[name].get(member, Offered())
                packets = other.packets + (now.packets - before.packets)
                size = other.bytes + (now.bytes - before.bytes)
                grown[name][member] = Offered(packets, size)
        return grown


def _from_source(pairs: Iterable[Pair], node: str) -> list[Pair]:
    """The links from a node."""
    links = []
    for source, target in pairs:
        if source == node:
            links.append((source, target))
    return links


def _members(
    channel: _KernelChannel,
    queues: Mapping[str, Queue],
    offered: Mapping[str, Offered],
) -> Mapping[str, Queue]:
    """The counters of a channel by member."""
    profile = channel.profile
    if not profile.rule.own_queues:
        queue = queues[media.class_of(profile, 0)]
        return channel.common.add(queue, offered)
    members = {}
    for member, number in channel.members.items():
        class_id = media.class_of(profile, number)
        members[member] = queues[class_id]
    return members
