"""The buffers of the kernel engine's links: what the policer of each is set to (`netem.kernel.police`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Mapping, Sequence

from netem.errors import NetemError
from netem.kernel import police, tc
from netem.kernel.police import Bucket
from orchestrator.errors import HostError
from orchestrator.fabric.tc.alteration import Alteration
from orchestrator.fabric.tc.kernel_counters import Pair
from orchestrator.fabric.tc.kernel_links import KernelLinks
from orchestrator.fabric.tc.traffic_control import TrafficControl

WIDEN_EVERY = 0.05  # s
TRIES = 40


class KernelBuffers:
    """The settings of the policers of attached links. If packets waited when a policer was changed, its bucket is
    smaller than the buffer. It is changed again once fewer wait: some times soon, and then whenever the counters are
    read (`widen`)."""

    def __init__(self, links: KernelLinks, control: TrafficControl) -> None:
        self._links = links
        self._tc = control
        self._wanted: dict[Pair, Bucket | None] = {}
        self._set: dict[Pair, Bucket | None] = {}
        self._interfaces: dict[Pair, str] = {}  # of links whose policer has been changed
        self._widening: asyncio.Task[None] | None = None
        self._tries = 0

    def made(self, link: Pair) -> None:
        """The policer of a link is new, with a full bucket."""
        self._wanted[link] = self._set[link] = self._links.bucket(link)

    def opened(self, link: Pair) -> list[str] | None:
        """The command for a link that is cut: its policer drops nothing. None if there is none to give."""
        limited = self._set.get(link) is not None
        self._wanted[link] = self._set[link] = None
        if limited:
            return police.change_command(self._links[link].policer, None)
        return None

    def restored(self, link: Pair) -> list[str] | None:
        """The command for a link that is empty after a cut. None if there is none to give."""
        self.made(link)
        bucket = self._set[link]
        if bucket is None:
            return None
        return police.change_command(self._links[link].policer, bucket)

    async def prepare(self, alterations: Sequence[Alteration]) -> None:
        """Add the command for the policer to each change of a profile that needs one: it gets the part of the new
        buffer that packets which wait at present leave."""
        changed = [each for each in alterations if self._wanted.get(each.pair) != self._links.bucket(each.pair)]
        limited = {each.interface for each in changed if each.interface and self._wanted.get(each.pair) is not None}
        shown = await self._shown(limited)
        for each in changed:
            state = shown.get(each.interface or "", {}).get(each.link.index)
            if state is not None:
                waiting = police.waiting_bytes(each.before, state.backlog)
            else:
                waiting = 0.0
            wanted = self._links.bucket(each.pair)
            self._wanted[each.pair] = wanted
            if wanted is None:
                self._set[each.pair] = None
            else:
                self._set[each.pair] = wanted.rest(waiting, each.link.piece)
            each.police = police.change_command(each.link.policer, self._set[each.pair])
            self._interfaces[each.pair] = each.interface or ""
        if self._narrow():
            self._tries = TRIES
            if self._widening is None or self._widening.done():
                self._widening = asyncio.create_task(self._widen_soon())

    def _narrow(self) -> list[Pair]:
        """The links whose bucket is smaller than the buffer."""
        found = []
        for link, wanted in self._wanted.items():
            now = self._set[link]
            if wanted is not None and now is not None and now.size < wanted.size:
                found.append(link)
        return found

    async def _widen_soon(self) -> None:
        while self._tries > 0 and (narrow := self._narrow()):
            self._tries -= 1
            await asyncio.sleep(WIDEN_EVERY)
            try:
                shown = await self._shown({self._interfaces.get(link, "") for link in narrow})
                states = {link: self._state(link, shown) for link in narrow}
                await self.widen({link: state.backlog for link, state in states.items() if state is not None})
            except (HostError, NetemError):
                return  # the counters are read as well, and report what is wrong

    async def _shown(self, interfaces: Collection[str]) -> dict[str, dict[int, tc.KernelLinkState]]:
        """What tc shows of the links on each of these interfaces that is there."""
        names = sorted(name for name in interfaces if name)
        if names:
            replies = await self._tc.attempt([tc.show_command(name) for name in names])
        else:
            replies = []
        return {name: tc.parse_qdiscs(reply.shown) for name, reply in zip(names, replies, strict=True) if reply.shown}

    def _state(self, link: Pair, shown: Mapping[str, Mapping[int, tc.KernelLinkState]]) -> tc.KernelLinkState | None:
        return shown.get(self._interfaces.get(link, ""), {}).get(self._links[link].index)

    def close(self) -> None:
        if self._widening is not None:
            self._widening.cancel()

    async def undo(self, refused: Sequence[Alteration], cut: Container[Pair]) -> None:
        """Set the policers of links whose change was refused as they were. ``cut``: the links that are cut."""
        commands = [self.opened(each.pair) if each.pair in cut else self.restored(each.pair) for each in refused]
        given = [each for each in commands if each is not None]
        if given:
            await self._tc.attempt(given)

    async def widen(self, backlogs: Mapping[Pair, int]) -> None:
        """Give the policers whose bucket is smaller than the buffer what fits at present. ``backlogs``: the bytes in
        the netem of each link."""
        commands = []
        for link in self._narrow():
            wanted = self._wanted[link]
            now = self._set[link]
            if link not in backlogs or wanted is None or now is None:
                continue
            waiting = police.waiting_bytes(self._links[link].profile, backlogs[link])
            fitting = wanted.rest(waiting, self._links[link].piece)
            if fitting.size > now.size:
                self._set[link] = fitting
                commands.append(police.change_command(self._links[link].policer, fitting))
        if commands:
            await self._tc.attempt(commands)
