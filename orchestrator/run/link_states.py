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
from orchestrator.scenario.topology import Ends

Cause = Hashable  # of a cut or an overlay: a fault's id, or a schedule's name


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
        self._cuts: defaultdict[Ends, set[Cause]] = defaultdict(set)
        self._overlays: defaultdict[Ends, dict[Cause, Mapping[str, Any]]] = defaultdict(dict)

    def of(self, pair: Ends) -> LinkState:
        """The profile of the moment with every overlay, and whether anything cuts the link.

        Raises ProfileError where an overlay does not go with the profile of the moment.
        """
        profile = self._profiles[pair]
        for overlay in self._overlays.get(pair, {}).values():
            profile = profile.merged(overlay)
        return LinkState(profile, bool(self._cuts.get(pair)))

    def follow(self, pair: Ends, profile: LinkProfile, cause: Cause, *, cut: bool) -> None:
        """A schedule's new profile of the moment, and whether the schedule itself cuts the link now."""
        self._profiles[pair] = profile
        (self._cuts[pair].add if cut else self._cuts[pair].discard)(cause)

    def cut(self, pairs: Iterable[Ends], cause: Cause) -> None:
        """Weigh a cut on these links."""
        for pair in pairs:
            self._cuts[pair].add(cause)

    def overlay(self, pairs: Iterable[Ends], cause: Cause, settings: Mapping[str, Any]) -> None:
        """Lay settings over these links."""
        for pair in pairs:
            self._overlays[pair][cause] = settings

    def lift(self, cause: Cause) -> list[Ends]:
        """Take away all that weighs under this name; the links on which something did."""
        touched = []
        for pair in self._profiles:
            overlay = self._overlays[pair].pop(cause, None) if pair in self._overlays else None
            cut = pair in self._cuts and cause in self._cuts[pair]
            if cut:
                self._cuts[pair].discard(cause)
            if cut or overlay is not None:
                touched.append(pair)
        return touched


class Links:
    """The links of a run in the engine behind ``powers``: what is asked here has been done when the call returns.

    One link is changed by one caller at a time, to what it is to be by then, so that whoever comes last is right.
    A cause that cannot be put on all of its links is taken off again, and the error raised.
    """

    def __init__(self, links: Iterable[LinkPlan], powers: LinkPowers) -> None:
        links = list(links)
        self._states = LinkStates(links)
        self._done = {(link.source, link.target): LinkState(link.profile, cut=False) for link in links}
        self._locks: defaultdict[Ends, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._powers = powers

    async def cut(self, pairs: Iterable[Ends], cause: Cause) -> None:
        """Let nothing cross these links while ``cause`` is on them."""
        pairs = list(pairs)
        self._states.cut(pairs, cause)
        await self._settle_or_lift(pairs, cause)

    async def overlay(self, pairs: Iterable[Ends], cause: Cause, settings: Mapping[str, Any]) -> None:
        """Lay settings over these links while ``cause`` is on them."""
        pairs = list(pairs)
        self._states.overlay(pairs, cause, settings)
        await self._settle_or_lift(pairs, cause)

    async def lift(self, cause: Cause) -> None:
        """Take a cause off every link."""
        await self._settle_all(self._states.lift(cause))

    async def follow(self, pair: Ends, profile: LinkProfile, cause: Cause, *, cut: bool) -> None:
        """Give one link its profile of the moment, see `LinkStates.follow`."""
        self._states.follow(pair, profile, cause, cut=cut)
        await self._settle(pair)

    async def _settle_or_lift(self, pairs: list[Ends], cause: Cause) -> None:
        try:
            await self._settle_all(pairs)
        except OrchestratorError:
            with contextlib.suppress(OrchestratorError):
                await self._settle_all(self._states.lift(cause))
            raise

    async def _settle_all(self, pairs: Iterable[Ends]) -> None:
        """All at the same time, for an engine makes together what comes together; raises the first error at the end."""
        for error in await asyncio.gather(*map(self._settle, pairs), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _settle(self, pair: Ends) -> None:
        async with self._locks[pair]:
            asked, done = self._states.of(pair), self._done[pair]
            if asked.cut and not done.cut:
                await self._powers.cut(*pair)
            if asked.profile != done.profile:
                await self._powers.change(*pair, asked.profile)
            if done.cut and not asked.cut:
                await self._powers.restore(*pair)
            self._done[pair] = asked
