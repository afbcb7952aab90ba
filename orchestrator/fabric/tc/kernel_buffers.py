"""What the policers of the kernel engine's links are set to (`netem.kernel.police`): buffers, and limits of sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Mapping, Sequence

from netem.errors import NetemError
from netem.kernel import police, tc
from netem.kernel.batch import Commands
from netem.kernel.police import Bucket
from orchestrator.errors import HostError
from orchestrator.fabric.tc.alteration import Alteration
from orchestrator.fabric.tc.kernel_counters import Pair
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.fabric.tc.traffic_control import TrafficControl

States = dict[int, tc.KernelLinkState]
"""What tc shows of the links on an interface, by index."""

WIDEN_EVERY = 0.05  # s
TRIES = 40


class KernelBuffers:
    """The settings of the policers of attached links. If packets waited when the policer of a buffer was changed, its
    bucket is smaller than the buffer. It is changed again once fewer wait: some times soon, and then whenever the
    counters are read (`widen`)."""

    def __init__(self, links: KernelLinks, control: TrafficControl) -> None:
        self._links = links
        self._tc = control
        self._wanted: dict[Pair, Bucket | None] = {}
        self._set: dict[Pair, Bucket | None] = {}
        self._largest: dict[Pair, int | None] = {}  # what the policers of sizes let through
        self._interfaces: dict[Pair, str] = {}  # of links with a policer that has been changed
        self._widening: asyncio.Task[None] | None = None
        self._tries = 0

    def made(self, link: Pair) -> None:
        """The policers of a link are new, with a full bucket."""
        self._largest[link] = self._links[link].profile.drop_above
        self._fill(link)

    def _fill(self, link: Pair) -> None:
        """The bucket of a link is full."""
        bucket = self._links.bucket(link)
        self._wanted[link] = bucket
        self._set[link] = bucket

    def opened(self, link: Pair) -> Commands:
        """The command for a link that is cut, if any: its buffer drops nothing."""
        limited = self._set.get(link) is not None
        self._wanted[link] = None
        self._set[link] = None
        if not limited:
            return []
        policer = self._links[link].policer
        return [police.change_command(policer, None)]

    def restored(self, link: Pair) -> Commands:
        """The commands for a link that is empty after a cut."""
        commands = self._resized(link)
        self._fill(link)
        bucket = self._set[link]
        if bucket is not None:
            policer = self._links[link].policer
            commands.append(police.change_command(policer, bucket))
        return commands

    def _resized(self, link: Pair) -> Commands:
        """The command for a link with another limit of sizes than its policer has, if any."""
        largest = self._links[link].profile.drop_above
        if self._largest.get(link) == largest:
            return []
        self._largest[link] = largest
        policer = self._links[link].size_policer
        return [police.size_command(policer, largest)]

    async def prepare(self, alterations: Sequence[Alteration]) -> None:
        """Add the commands for the policers to each change of a profile that needs any. The policer of the buffer gets
        the part of the new buffer that packets which wait at present leave."""
        changed = []
        interfaces = set()
        for alteration in alterations:
            alteration.police += self._resized(alteration.pair)
            wanted = self._wanted.get(alteration.pair)
            if wanted == self._links.bucket(alteration.pair):
                continue
            changed.append(alteration)
            if alteration.interface and wanted is not None:
                interfaces.add(alteration.interface)
        shown = await self._shown(interfaces)
        for alteration in changed:
            interface = alteration.interface or ""
            states = shown.get(interface, {})
            state = states.get(alteration.link.index)
            waiting = 0.0
            if state is not None:
                waiting = police.waiting_bytes(alteration.before, state.backlog)
            self._change(alteration, interface, waiting)
        if self._narrow():
            self._tries = TRIES
            if self._widening is None or self._widening.done():
                self._widening = asyncio.create_task(self._widen_soon())

    def _change(self, alteration: Alteration, interface: str, waiting: float) -> None:
        """Add the command for the policer of the buffer, while so many bytes wait."""
        pair = alteration.pair
        link = alteration.link
        wanted = self._links.bucket(pair)
        bucket = None
        if wanted is not None:
            bucket = wanted.rest(waiting, link.piece)
        self._wanted[pair] = wanted
        self._set[pair] = bucket
        alteration.police.append(police.change_command(link.policer, bucket))
        self._interfaces[pair] = interface

    def _narrow(self) -> list[Pair]:
        """The links with a bucket smaller than the buffer."""
        narrow = []
        for link, wanted in self._wanted.items():
            now = self._set[link]
            if wanted is not None and now is not None and now.size < wanted.size:
                narrow.append(link)
        return narrow

    async def _widen_soon(self) -> None:
        while self._tries > 0:
            narrow = self._narrow()
            if not narrow:
                return
            self._tries -= 1
            await asyncio.sleep(WIDEN_EVERY)
            interfaces = {self._interfaces.get(link, "") for link in narrow}
            try:
                shown = await self._shown(interfaces)
                backlogs = {}
                for link in narrow:
                    state = self._state(link, shown)
                    if state is not None:
                        backlogs[link] = state.backlog
                await self.widen(backlogs)
            except (HostError, NetemError):
                return  # the counters are read as well, and report what is wrong

    async def _shown(self, interfaces: Collection[str]) -> dict[str, States]:
        """What tc shows of the links on each of these interfaces that exists."""
        names = sorted(name for name in interfaces if name)
        if not names:
            return {}
        commands = [tc.show_command(name) for name in names]
        replies = await self._tc.attempt(commands)
        shown = {}
        for name, reply in zip(names, replies, strict=True):
            if reply.shown:
                shown[name] = tc.parse_qdiscs(reply.shown)
        return shown

    def _state(self, link: Pair, shown: Mapping[str, States]) -> tc.KernelLinkState | None:
        interface = self._interfaces.get(link, "")
        states = shown.get(interface, {})
        index = self._links[link].index
        return states.get(index)

    def close(self) -> None:
        if self._widening is not None:
            self._widening.cancel()

    async def undo(self, refused: Sequence[Alteration], cut: Container[Pair]) -> None:
        """Set the policers of links as they were before a refused change. ``cut``: the links that are cut."""
        commands: Commands = []
        for alteration in refused:
            pair = alteration.pair
            if pair in cut:
                commands += self.opened(pair)
            else:
                commands += self.restored(pair)
        if commands:
            await self._tc.attempt(commands)

    async def widen(self, backlogs: Mapping[Pair, int]) -> None:
        """Give the policers with a bucket smaller than the buffer what fits at present. ``backlogs``: the bytes in the
        netem of each link."""
        commands = []
        for pair in self._narrow():
            wanted = self._wanted[pair]
            now = self._set[pair]
            if pair not in backlogs or wanted is None or now is None:
                continue
            link = self._links[pair]
            backlog = backlogs[pair]
            waiting = police.waiting_bytes(link.profile, backlog)
            fitting = wanted.rest(waiting, link.piece)
            if fitting.size > now.size:
                self._set[pair] = fitting
                command = police.change_command(link.policer, fitting)
                commands.append(command)
        if commands:
            await self._tc.attempt(commands)
