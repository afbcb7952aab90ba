"""The shared media of a run: their channels with the values of faults, and their cross traffic while the run trains."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from netem.media.conversion import channel_like
from netem.media.profile import ChannelProfile
from netem.profile import LinkProfile
from orchestrator.errors import EngineError, OrchestratorError
from orchestrator.fabric.base import Fabric, SharesMedia
from orchestrator.planning.plan import CrossTrafficPlan, MediumPlan, channels_of
from orchestrator.record.events.links import CrossTraffic
from orchestrator.run.links.states import Cause

Values = Mapping[str, Mapping[str, Any]]  # of channels, by their names and keys


class Media:
    """The channels of a run in the engine ``fabric``. EngineError if there are some and the engine cannot share them.
    Faults put values on channels as overlays, which may overlap: of two values the later one wins."""

    def __init__(self, media: Iterable[MediumPlan], fabric: Fabric) -> None:
        self._planned = channels_of(media)
        self._profiles = dict(self._planned)  # by schedules
        self._overlays: dict[Cause, Values] = {}
        self._lock = asyncio.Lock()
        self._carried: dict[str, CrossTrafficPlan] = {}  # by channel, the latest that started
        self._powers = None
        if isinstance(fabric, SharesMedia):
            self._powers = fabric
        if self._profiles and self._powers is None:
            raise EngineError(f"links of the engine {fabric.engine} cannot share media: set `engine: userspace`")

    def of(self, channel: str) -> ChannelProfile:
        """A channel with the values of all overlays."""
        profile = self._profiles[channel]
        for overlay in self._overlays.values():
            values = overlay.get(channel, {})
            profile = replace(profile, **values)
        return profile

    async def open(self) -> None:
        await self._share(self._profiles)

    async def overlay(self, values: Values, cause: Cause) -> None:
        """Give channels other values until ``cause`` is lifted. If one refuses (OrchestratorError), none has them."""
        self._overlays[cause] = values
        try:
            await self._share(values)
        except OrchestratorError:
            del self._overlays[cause]
            for channel in values:
                with contextlib.suppress(OrchestratorError):
                    await self._share([channel])
            raise

    async def follow(self, channel: str, link: LinkProfile) -> None:
        """Give a channel the rate and the buffer of its schedule; nothing changes if refused (OrchestratorError)."""
        before = self._profiles[channel]
        planned = self._planned[channel]
        self._profiles[channel] = channel_like(planned, link)
        try:
            await self._share([channel])
        except OrchestratorError:
            self._profiles[channel] = before
            raise

    async def lift(self, cause: Cause) -> None:
        lifted = self._overlays.pop(cause, {})
        await self._share(lifted)

    async def carry(
        self,
        traffic: CrossTrafficPlan,
        elapsed: float,
        note: Callable[[CrossTraffic], None],
    ) -> None:
        """Let a channel carry cross traffic at its time, ``elapsed`` seconds into training; ``note`` its ends."""
        assert self._powers is not None
        loop = asyncio.get_running_loop()
        began = loop.time() - elapsed
        start = began + traffic.at
        end = None
        if traffic.duration is not None:
            end = start + traffic.duration
        if end is not None and end <= loop.time():
            return
        channel = traffic.channel
        cross_traffic = traffic.traffic
        mean_rate = cross_traffic.mean_rate(traffic.duration or math.inf)
        start_event = CrossTraffic(channel, "start", cross_traffic.kind, mean_rate)
        until_start = start - loop.time()
        await asyncio.sleep(max(0.0, until_start))
        self._carried[channel] = traffic
        carried_before = max(0.0, elapsed - traffic.at)  # s, in the part of the run that is continued
        remaining = cross_traffic.since(carried_before)
        await self._powers.occupy(channel, remaining, traffic.seed)
        note(start_event)
        if end is None:
            return
        until_end = end - loop.time()
        await asyncio.sleep(max(0.0, until_end))
        if self._carried[channel] is traffic:  # the next one may start at that very time
            await self._powers.occupy(channel, None)
        note(replace(start_event, phase="end"))

    async def _share(self, channels: Iterable[str]) -> None:
        """Give the engine these channels as they are wanted at that moment."""
        async with self._lock:
            wanted = {name: self.of(name) for name in channels}
            if wanted and self._powers is not None:
                await self._powers.share(wanted)
