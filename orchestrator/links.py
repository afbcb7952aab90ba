"""What weighs on each link of a run, and keeping the engine at it.

A link has the profile of the moment, which a schedule may change; faults lay settings over it and cut it, and so does
the interruption of a handover. They overlap as they like: a link is whole when nothing cuts it any more, and its
profile is the one of the moment with every overlay on it, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from netem.profile import LinkProfile
from orchestrator.errors import OrchestratorError
from orchestrator.planning.plan import LinkPlan

Pair = tuple[str, str]
Weight = Hashable  # who weighs on a link: a fault's id, or a schedule's name


class LinkState(NamedTuple):
    """What a link is to be, or is."""

    profile: LinkProfile
    cut: bool


class LinkPowers(Protocol):
    """What can be done to a link; each raises OrchestratorError if it cannot be done now."""

    async def cut(self, source: str, target: str) -> None: ...

    async def restore(self, source: str, target: str) -> None: ...

    async def change(self, source: str, target: str, profile: LinkProfile) -> None: ...


class LinkStates:
    """What each link is to be now. Pure."""

    def __init__(self, links: Iterable[LinkPlan]) -> None:
        self._profiles = {(link.source, link.target): link.profile for link in links}
        self._cuts: defaultdict[Pair, set[Weight]] = defaultdict(set)
        self._overlays: defaultdict[Pair, dict[Weight, Mapping[str, Any]]] = defaultdict(dict)

    def of(self, pair: Pair) -> LinkState:
        """The profile of the moment with every overlay, and whether anything cuts the link.

        Raises ProfileError where an overlay does not go with the profile of the moment.
        """
        profile = self._profiles[pair]
        for overlay in self._overlays.get(pair, {}).values():
            profile = profile.merged(overlay)
        return LinkState(profile, bool(self._cuts.get(pair)))

    def follow(self, pair: Pair, profile: LinkProfile, weight: Weight, *, cut: bool) -> None:
        """A schedule's new profile of the moment, and whether the schedule itself cuts the link now."""
        self._profiles[pair] = profile
        (self._cuts[pair].add if cut else self._cuts[pair].discard)(weight)

    def cut(self, pairs: Iterable[Pair], weight: Weight) -> None:
        """Weigh a cut on these links."""
        for pair in pairs:
            self._cuts[pair].add(weight)

    def overlay(self, pairs: Iterable[Pair], weight: Weight, settings: Mapping[str, Any]) -> None:
        """Lay settings over these links."""
        for pair in pairs:
            self._overlays[pair][weight] = settings

    def lift(self, weight: Weight) -> list[Pair]:
        """Take away all that weighs under this name; the links on which something did."""
        touched = []
        for pair in self._profiles:
            overlay = self._overlays[pair].pop(weight, None) if pair in self._overlays else None
            cut = pair in self._cuts and weight in self._cuts[pair]
            if cut:
                self._cuts[pair].discard(weight)
            if cut or overlay is not None:
                touched.append(pair)
        return touched


class Links:
    """The links of a run in the engine behind ``powers``: what is asked here has been done when the call returns.

    One link is changed by one caller at a time, to what it is to be by then, so that whoever comes last is right.
    A weight that cannot be put on all of its links is taken off again, and the error raised.
    """

    def __init__(self, links: Iterable[LinkPlan], powers: LinkPowers) -> None:
        links = list(links)
        self._states = LinkStates(links)
        self._done = {(link.source, link.target): LinkState(link.profile, cut=False) for link in links}
        self._locks: defaultdict[Pair, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._powers = powers

    async def cut(self, pairs: Iterable[Pair], weight: Weight) -> None:
        """Let nothing cross these links while ``weight`` is on them."""
        pairs = list(pairs)
        self._states.cut(pairs, weight)
        await self._settle_or_lift(pairs, weight)

    async def overlay(self, pairs: Iterable[Pair], weight: Weight, settings: Mapping[str, Any]) -> None:
        """Lay settings over these links while ``weight`` is on them."""
        pairs = list(pairs)
        self._states.overlay(pairs, weight, settings)
        await self._settle_or_lift(pairs, weight)

    async def lift(self, weight: Weight) -> None:
        """Take a weight off every link."""
        await self._settle_all(self._states.lift(weight))

    async def follow(self, pair: Pair, profile: LinkProfile, weight: Weight, *, cut: bool) -> None:
        """Give one link its profile of the moment, see `LinkStates.follow`."""
        self._states.follow(pair, profile, weight, cut=cut)
        await self._settle(pair)

    async def _settle_or_lift(self, pairs: list[Pair], weight: Weight) -> None:
        try:
            await self._settle_all(pairs)
        except OrchestratorError:
            with contextlib.suppress(OrchestratorError):
                await self._settle_all(self._states.lift(weight))
            raise

    async def _settle_all(self, pairs: Iterable[Pair]) -> None:
        """All at the same time, for an engine makes together what comes together; raises the first error at the end."""
        for error in await asyncio.gather(*map(self._settle, pairs), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _settle(self, pair: Pair) -> None:
        async with self._locks[pair]:
            asked, done = self._states.of(pair), self._done[pair]
            if asked.cut and not done.cut:
                await self._powers.cut(*pair)
            if asked.profile != done.profile:
                await self._powers.change(*pair, asked.profile)
            if done.cut and not asked.cut:
                await self._powers.restore(*pair)
            self._done[pair] = asked
