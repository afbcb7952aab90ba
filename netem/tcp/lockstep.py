"""Flows in lockstep: one computation for links that differ in nothing, as those of a message to 10,000 receivers.

Nothing is random on a link without loss and jitter. So flows over such links with equal profiles and beats stay equal
as long as they get the same calls at the same times. They share one `Flow`. The first call at a time computes the next
one, and the same call for the others finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from random import Random
from typing import Any

from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.path import is_random

_Call = tuple[Flow, str, tuple[int, ...]]  # a flow, a method and its arguments but the time


class Flows:
    """Makes the flows of many links."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}

    def flow(
        self,
        forward: LinkProfile,
        backward: LinkProfile,
        seed: int,
        beat: float,
        patience: float,
        beat_seed: int | None = None,
    ) -> Flow | LockstepFlow:
        """A flow with the times and counters of `Flow` with these arguments."""
        make = partial(Flow, forward, backward, seed, beat, patience, beat_seed=beat_seed)
        if is_random(forward, backward):
            return make()
        if beat_seed is None:
            beat_seed = seed
        key = (forward, backward, beat, patience, beat_seed)
        if key not in self._groups:
            self._groups[key] = _Group(make)
        return LockstepFlow(self._groups[key], seed)


class LockstepFlow:
    """One of a group of flows. ``flow`` is its present state, with the counters."""

    __slots__ = ("_group", "_seed", "flow")

    def __init__(self, group: _Group, seed: int) -> None:
        self._group: _Group | None = group
        self.flow = group.join()
        self._seed = seed

    def open(self, now: float) -> float:
        return float(self._call("open", now))

    def send(self, now: float, size: int) -> float:
        return float(self._call("send", now, size))

    def cut(self, now: float) -> None:
        self._call("cut", now)

    def restore(self, now: float) -> list[float]:
        return list(self._call("restore", now))

    def reshape(self, now: float, forward: LinkProfile, backward: LinkProfile) -> list[float]:
        """See `Flow.reshape`. The flow leaves its group."""
        if self._group is not None:
            self._group = None
            self.flow = self.flow.copy(now, Random(self._seed))
        return self.flow.reshape(now, forward, backward)

    def _call(self, method: str, now: float, *arguments: int) -> Any:
        if self._group is None or self._group.size == 1:
            bound = getattr(self.flow, method)
            return bound(now, *arguments)
        self.flow, result = self._group.call(self.flow, method, now, *arguments)
        return result


class _Group:
    """Flows that were equal when ``make`` made them. Those that are still equal share one object, which does not change
    any more."""

    def __init__(self, make: Callable[[], Flow]) -> None:
        self.size = 0
        self._make = make
        self._now = 0.0
        self._calls: dict[_Call, tuple[Flow, Any]] = {}  # at this time

    def join(self) -> Flow:
        """The flow of one more member. That of the first one is its own, so it may change as long as it is alone."""
        self.size += 1
        if self.size <= 2:
            self._new = self._make()
        return self._new

    def call(
        self,
        flow: Flow,
        method: str,
        now: float,
        *arguments: int,
    ) -> tuple[Flow, Any]:
        """The flow after the call of a method, and what it returned."""
        if now != self._now:
            self._now = now
            self._calls.clear()
        key = (flow, method, arguments)
        if key not in self._calls:
            after = flow.copy(now)
            bound = getattr(after, method)
            self._calls[key] = after, bound(now, *arguments)
        return self._calls[key]
