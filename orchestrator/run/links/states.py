"""The present state of each link of a run, from schedules and faults, and its application to the link engine.

A link has a current profile, which a schedule may change. Faults put overlays of settings on the profile or cut the
link; the interruption of a handover also cuts it. All may overlap. A link is up when no cause cuts it. Its profile is
the current profile with every overlay, in the order in which they came. The channels of shared media that it crosses
are those of the latest handover, otherwise those of the plan; a closed channel cuts the links that cross it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from netem.media.profile import Crossing
from netem.profile import LinkProfile
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.base import Fabric, SharesMedia
from orchestrator.planning.plan import LinkPlan
from orchestrator.scenario.sections.topology import Ends
from orchestrator.together import together

Cause = Hashable  # the cause of a cut or an overlay: a fault's id, or a schedule's name


class LinkState(NamedTuple):
    """A state of a link, wanted or present."""

    profile: LinkProfile
    cut: bool
    crossings: tuple[Crossing, ...] = ()


class LinkStates:
    """The wanted state of each link. Pure."""

    def __init__(self, links: Iterable[LinkPlan]) -> None:
        links = list(links)
        self._profiles = {(link.source, link.target): link.profile for link in links}
        self._planned = {(link.source, link.target): link.crossings for link in links if link.crossings}
        self._handovers: defaultdict[Ends, dict[Cause, tuple[Crossing, ...]]] = defaultdict(dict)
        self._closed: defaultdict[str, set[Cause]] = defaultdict(set)  # by channel
        self._cuts: defaultdict[Ends, set[Cause]] = defaultdict(set)
        self._overlays: defaultdict[Ends, dict[Cause, Mapping[str, Any]]] = defaultdict(dict)

    def of(self, pair: Ends) -> LinkState:
        """The profile with every overlay, and whether the link is cut. ProfileError if an overlay does not fit."""
        profile = self._profiles[pair]
        for overlay in self._overlays.get(pair, {}).values():
            profile = profile.merged(overlay)
        crossings = self._crossings(pair)
        closed = any(self._closed.get(each.channel) for each in crossings)
        return LinkState(profile, bool(self._cuts.get(pair)) or closed, crossings)

    def follow(self, pair: Ends, profile: LinkProfile, cause: Cause, *, cut: bool) -> None:
        """Set the current profile of a link from its schedule. ``cut``: the schedule itself cuts the link now."""
        self._profiles[pair] = profile
        (self._cuts[pair].add if cut else self._cuts[pair].discard)(cause)

    def cut(self, pairs: Iterable[Ends], cause: Cause) -> None:
        for pair in pairs:
            self._cuts[pair].add(cause)

    def mend(self, pairs: Iterable[Ends], cause: Cause) -> None:
        for pair in pairs:
            self._cuts[pair].discard(cause)

    def overlay(self, settings: Mapping[Ends, Mapping[str, Any]], cause: Cause) -> None:
        for pair, changes in settings.items():
            self._overlays[pair][cause] = changes

    def reroute(self, ways: Mapping[Ends, tuple[Crossing, ...]], cause: Cause) -> None:
        for pair, crossings in ways.items():
            self._handovers[pair][cause] = crossings

    def close(self, channels: Iterable[str], cause: Cause) -> list[Ends]:
        """Close these channels. Returns the links that cross one at present."""
        channels = set(channels)
        for channel in channels:
            self._closed[channel].add(cause)
        return self._across(channels)

    def _crossings(self, pair: Ends) -> tuple[Crossing, ...]:
        handovers = self._handovers.get(pair)
        if handovers:
            return list(handovers.values())[-1]
        return self._planned.get(pair, ())

    def _across(self, channels: set[str]) -> list[Ends]:
        pairs = (self._planned.keys() | self._handovers.keys()) if channels else ()
        return sorted(pair for pair in pairs if any(each.channel in channels for each in self._crossings(pair)))

    def lift(self, cause: Cause) -> list[Ends]:
        """Remove everything of this cause. Returns the links that it concerned."""
        opened = {channel for channel, causes in self._closed.items() if cause in causes}
        for channel in opened:
            self._closed[channel].discard(cause)
        touched = self._across(opened)
        touched += [pair for pair, ways in self._handovers.items() if ways.pop(cause, None) is not None]
        for pair in self._profiles:
            if pair in self._overlays:
                overlay = self._overlays[pair].pop(cause, None)
            else:
                overlay = None
            cut = pair in self._cuts and cause in self._cuts[pair]
            if cut:
                self._cuts[pair].discard(cause)
            if cut or overlay is not None:
                touched.append(pair)
        return list(dict.fromkeys(touched))


class Links:
    """The links of a run in the engine ``fabric``. When a call returns, the engine has made its change. One
    caller at a time changes a link, to the state wanted at that moment, so the last change wins. A cause that cannot be
    applied to all of its links is removed again, and the error is raised."""

    def __init__(self, links: Iterable[LinkPlan], fabric: Fabric) -> None:
        links = list(links)
        self._states = LinkStates(links)
        self._done = {(link.source, link.target): LinkState(link.profile, False, link.crossings) for link in links}
        self._locks: defaultdict[Ends, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fabric = fabric

    async def cut(self, pairs: Collection[Ends], cause: Cause) -> None:
        self._states.cut(pairs, cause)
        await self._settle_or_lift(pairs, cause)

    async def mend(self, pairs: Collection[Ends], cause: Cause) -> None:
        """Remove this cause of a cut from these links only."""
        self._states.mend(pairs, cause)
        await self._settle_all(pairs)

    async def overlay(self, settings: Mapping[Ends, Mapping[str, Any]], cause: Cause) -> None:
        """Put an overlay of settings on each of these links until ``cause`` is lifted."""
        self._states.overlay(settings, cause)
        await self._settle_or_lift(settings, cause)

    async def reroute(self, ways: Mapping[Ends, tuple[Crossing, ...]], cause: Cause) -> None:
        """Let these links cross other channels until ``cause`` is lifted."""
        self._states.reroute(ways, cause)
        await self._settle_or_lift(ways, cause)

    async def close(self, channels: Iterable[str], cause: Cause) -> None:
        """Cut the links that cross these channels, at any time until ``cause`` is lifted."""
        await self._settle_or_lift(self._states.close(channels, cause), cause)

    async def lift(self, cause: Cause) -> None:
        """Remove a cause from every link."""
        await self._settle_all(self._states.lift(cause))

    async def follow(self, pair: Ends, profile: LinkProfile, cause: Cause, *, cut: bool) -> None:
        """Give one link its current profile, see `LinkStates.follow`."""
        self._states.follow(pair, profile, cause, cut=cut)
        await self._settle(pair)

    async def _settle_or_lift(self, pairs: Iterable[Ends], cause: Cause) -> None:
        try:
            await self._settle_all(pairs)
        except OrchestratorError:
            with contextlib.suppress(OrchestratorError):
                await self._settle_all(self._states.lift(cause))
            raise

    async def _settle_all(self, pairs: Iterable[Ends]) -> None:
        """Settle all links concurrently, so the engine can batch the changes. Raises the first error at the end."""
        await together(map(self._settle, pairs))

    async def _settle(self, pair: Ends) -> None:
        async with self._locks[pair]:
            goal = self._states.of(pair)
            done = self._done[pair]
            if goal.cut and not done.cut:
                await self._fabric.cut(*pair)
                self._done[pair] = done = done._replace(cut=True)  # also if the next change is refused
            if goal.profile != done.profile:
                await self._fabric.change(*pair, goal.profile)
            if goal.crossings != done.crossings:
                assert isinstance(self._fabric, SharesMedia), "links cross channels only where the engine has them"
                await self._fabric.reroute(*pair, goal.crossings)
            if done.cut and not goal.cut:
                await self._fabric.restore(*pair)
            self._done[pair] = goal
