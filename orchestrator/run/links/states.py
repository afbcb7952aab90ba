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
Crossings = tuple[Crossing, ...]
Settings = Mapping[str, Any]  # of a profile, by their keys


class LinkState(NamedTuple):
    """A state of a link, wanted or present."""

    profile: LinkProfile
    cut: bool
    crossings: Crossings = ()


class LinkStates:
    """The wanted state of each link. Pure."""

    def __init__(self, links: Iterable[LinkPlan]) -> None:
        self._profiles: dict[Ends, LinkProfile] = {}
        self._planned: dict[Ends, Crossings] = {}
        for link in links:
            pair = (link.source, link.target)
            self._profiles[pair] = link.profile
            if link.crossings:
                self._planned[pair] = link.crossings
        self._handovers = defaultdict[Ends, dict[Cause, Crossings]](dict)
        self._closed = defaultdict[str, set[Cause]](set)  # by channel
        self._cuts = defaultdict[Ends, set[Cause]](set)
        self._overlays = defaultdict[Ends, dict[Cause, Settings]](dict)

    def of(self, pair: Ends) -> LinkState:
        """The profile with every overlay, and whether the link is cut. ProfileError if an overlay does not fit."""
        profile = self._profiles[pair]
        overlays = self._overlays.get(pair, {})
        for overlay in overlays.values():
            profile = profile.merged(overlay)
        crossings = self._crossings(pair)
        cut = bool(self._cuts.get(pair))
        for crossing in crossings:
            if self._closed.get(crossing.channel):
                cut = True
        return LinkState(profile, cut, crossings)

    def follow(
        self,
        pair: Ends,
        profile: LinkProfile,
        cause: Cause,
        *,
        cut: bool,
    ) -> None:
        """Set the current profile of a link from its schedule. ``cut``: the schedule itself cuts the link now."""
        self._profiles[pair] = profile
        if cut:
            self._cuts[pair].add(cause)
        else:
            self._cuts[pair].discard(cause)

    def cut(self, pairs: Iterable[Ends], cause: Cause) -> None:
        for pair in pairs:
            self._cuts[pair].add(cause)

    def mend(self, pairs: Iterable[Ends], cause: Cause) -> None:
        for pair in pairs:
            self._cuts[pair].discard(cause)

    def overlay(self, settings: Mapping[Ends, Settings], cause: Cause) -> None:
        for pair, changes in settings.items():
            self._overlays[pair][cause] = changes

    def reroute(self, ways: Mapping[Ends, Crossings], cause: Cause) -> None:
        for pair, crossings in ways.items():
            self._handovers[pair][cause] = crossings

    def close(self, channels: Iterable[str], cause: Cause) -> list[Ends]:
        """Close these channels. Returns the links that cross one at present."""
        channels = set(channels)
        for channel in channels:
            self._closed[channel].add(cause)
        return self._across(channels)

    def _crossings(self, pair: Ends) -> Crossings:
        handovers = self._handovers.get(pair)
        if handovers:
            latest = list(handovers)[-1]
            return handovers[latest]
        return self._planned.get(pair, ())

    def _across(self, channels: set[str]) -> list[Ends]:
        if not channels:
            return []
        pairs = self._planned.keys() | self._handovers.keys()
        across = []
        for pair in pairs:
            crossings = self._crossings(pair)
            crossed = {crossing.channel for crossing in crossings}
            if crossed & channels:
                across.append(pair)
        return sorted(across)

    def lift(self, cause: Cause) -> list[Ends]:
        """Remove everything of this cause. Returns the links that it concerned."""
        opened = set()
        for channel, causes in self._closed.items():
            if cause in causes:
                causes.discard(cause)
                opened.add(channel)
        touched = self._across(opened)
        for pair, ways in self._handovers.items():
            if ways.pop(cause, None) is not None:
                touched.append(pair)
        for pair in self._profiles:
            overlay = None
            if pair in self._overlays:
                overlay = self._overlays[pair].pop(cause, None)
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
        self._done: dict[Ends, LinkState] = {}
        for link in links:
            pair = (link.source, link.target)
            state = LinkState(link.profile, False, link.crossings)
            self._done[pair] = state
        self._locks = defaultdict[Ends, asyncio.Lock](asyncio.Lock)
        self._fabric = fabric

    async def cut(self, pairs: Collection[Ends], cause: Cause) -> None:
        self._states.cut(pairs, cause)
        await self._settle_or_lift(pairs, cause)

    async def mend(self, pairs: Collection[Ends], cause: Cause) -> None:
        """Remove this cause of a cut from these links only."""
        self._states.mend(pairs, cause)
        await self._settle_all(pairs)

    async def overlay(self, settings: Mapping[Ends, Settings], cause: Cause) -> None:
        """Put an overlay of settings on each of these links until ``cause`` is lifted."""
        self._states.overlay(settings, cause)
        await self._settle_or_lift(settings, cause)

    async def reroute(self, ways: Mapping[Ends, Crossings], cause: Cause) -> None:
        """Let these links cross other channels until ``cause`` is lifted."""
        self._states.reroute(ways, cause)
        await self._settle_or_lift(ways, cause)

    async def close(self, channels: Iterable[str], cause: Cause) -> None:
        """Cut the links that cross these channels, at any time until ``cause`` is lifted."""
        pairs = self._states.close(channels, cause)
        await self._settle_or_lift(pairs, cause)

    async def lift(self, cause: Cause) -> None:
        """Remove a cause from every link."""
        pairs = self._states.lift(cause)
        await self._settle_all(pairs)

    async def follow(
        self,
        pair: Ends,
        profile: LinkProfile,
        cause: Cause,
        *,
        cut: bool,
    ) -> None:
        """Give one link its current profile, see `LinkStates.follow`."""
        self._states.follow(pair, profile, cause, cut=cut)
        await self._settle(pair)

    async def _settle_or_lift(self, pairs: Iterable[Ends], cause: Cause) -> None:
        try:
            await self._settle_all(pairs)
        except OrchestratorError:
            lifted = self._states.lift(cause)
            with contextlib.suppress(OrchestratorError):
                await self._settle_all(lifted)
            raise

    async def _settle_all(self, pairs: Iterable[Ends]) -> None:
        """Settle all links concurrently, so the engine can batch the changes. Raises the first error at the end."""
        await together(map(self._settle, pairs))

    async def _settle(self, pair: Ends) -> None:
        source, target = pair
        fabric = self._fabric
        async with self._locks[pair]:
            goal = self._states.of(pair)
            done = self._done[pair]
            if goal.cut and not done.cut:
                await fabric.cut(source, target)
                done = done._replace(cut=True)
                self._done[pair] = done  # also if the next change is refused
            if goal.profile != done.profile:
                await fabric.change(source, target, goal.profile)
            if goal.crossings != done.crossings:
                assert isinstance(fabric, SharesMedia), "links cross channels only where the engine has them"
                await fabric.reroute(source, target, goal.crossings)
            if done.cut and not goal.cut:
                await fabric.restore(source, target)
            self._done[pair] = goal
