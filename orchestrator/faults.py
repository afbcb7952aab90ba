"""Make the planned faults happen, at their time or at their round, and undo each when it is over.

Faults may overlap: a link is restored when the last fault that cut it is over, a profile is the base with every
running overlay on it, a node's slowness is the product of its factors. Every fault is recorded at the moment it
took effect, with the round it hit.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from netem.profile import LinkProfile
from orchestrator.errors import OrchestratorError
from orchestrator.planning.plan import Fault, LinkPlan, Plan

Pair = tuple[str, str]


class Powers(Protocol):
    """What a fault can do to the run; each verb raises OrchestratorError if it cannot be done now."""

    async def crash(self, node: str) -> None: ...

    async def revive(self, node: str) -> None: ...

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    async def slow(self, node: str, factor: float) -> None: ...

    async def join(self, node: str) -> None: ...

    async def leave(self, node: str) -> None: ...

    async def cut(self, source: str, target: str) -> None: ...

    async def restore(self, source: str, target: str) -> None: ...

    async def change(self, source: str, target: str, profile: LinkProfile) -> None: ...


class LinkStates:
    """Which faults weigh on each link now. Pure: each method answers what is left to do."""

    def __init__(self, links: Iterable[LinkPlan]) -> None:
        self._base = {(link.source, link.target): link.profile for link in links}
        self._cuts: defaultdict[Pair, set[int]] = defaultdict(set)
        self._overlays: defaultdict[Pair, dict[int, dict[str, Any]]] = defaultdict(dict)

    def cut(self, pairs: Iterable[Pair], fault: int) -> list[Pair]:
        """Weigh a cut on these links; those that were whole until now."""
        fresh = []
        for pair in pairs:
            if not self._cuts[pair]:
                fresh.append(pair)
            self._cuts[pair].add(fault)
        return fresh

    def restore(self, fault: int) -> list[Pair]:
        """Lift a fault's cuts; the links that are whole again."""
        whole = []
        for pair, faults in self._cuts.items():
            if fault in faults:
                faults.discard(fault)
                if not faults:
                    whole.append(pair)
        return whole

    def overlay(self, pairs: Iterable[Pair], fault: int, profile: dict[str, Any]) -> dict[Pair, LinkProfile]:
        """Lay a fault's settings over these links; each link's profile from now on."""
        for pair in pairs:
            self._overlays[pair][fault] = profile
        return {pair: self._effective(pair) for pair in pairs}

    def lift(self, fault: int) -> dict[Pair, LinkProfile]:
        """Take a fault's settings off again; the profile from now on of each link that had them."""
        touched = [pair for pair, overlays in self._overlays.items() if overlays.pop(fault, None) is not None]
        return {pair: self._effective(pair) for pair in touched}

    def _effective(self, pair: Pair) -> LinkProfile:
        profile = self._base[pair]
        for overlay in self._overlays[pair].values():
            profile = profile.merged(overlay)
        return profile


class FaultInjector:
    """Runs the plan's faults against ``powers`` on asyncio's clock.

    ``note(fault, phase, detail)`` is called with phase "start", "end" or "skipped" at the moment it is so; ``spawn``
    runs a coroutine beside others, answers for what it raises, and ends it in time.
    """

    def __init__(
        self, plan: Plan, powers: Powers, note: Callable[[Fault, str, str], None],
        spawn: Callable[[Awaitable[None]], None],
    ) -> None:  # fmt: skip
        self._faults = plan.faults
        self._powers = powers
        self._note = note
        self._links = LinkStates(plan.links)
        self._slowness: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._until_next_round: list[Fault] = []
        self._spawn = spawn
        self._reached = 0

    def begin(self) -> None:
        """Training starts now: the faults keyed to time are counted from here."""
        for fault in self._faults:
            if fault.at is not None:
                self._spawn(self._run_after(fault, fault.at))

    def round_started(self, round: int) -> None:
        """A round of the leading node starts: end the faults that last a round, start the ones planned for it.

        A round that starts again after a restart of its coordinator brings its faults only once.
        """
        if round <= self._reached:
            return
        due = [fault for fault in self._faults if fault.round is not None and self._reached < fault.round <= round]
        self._reached = round
        over, self._until_next_round = self._until_next_round, []
        self._spawn(self._turn_round(over, due))

    async def _turn_round(self, over: list[Fault], due: list[Fault]) -> None:
        for fault in over:
            await self._end(fault)
        for fault in due:
            if fault.lasts_a_round:
                if await self._start(fault):
                    self._until_next_round.append(fault)
            else:
                self._spawn(self._run_after(fault, 0.0))

    async def _run_after(self, fault: Fault, delay: float) -> None:
        await asyncio.sleep(delay)
        if await self._start(fault) and fault.duration is not None:
            await asyncio.sleep(fault.duration)
            await self._end(fault)

    async def _start(self, fault: Fault) -> bool:
        try:
            await self._ACTIONS[fault.action][0](self, fault)
        except OrchestratorError as error:
            self._note(fault, "skipped", str(error))
            return False
        self._note(fault, "start", "")
        return True

    async def _end(self, fault: Fault) -> None:
        undo = self._ACTIONS[fault.action][1]
        if undo is None:
            return
        try:
            await undo(self, fault)
        except OrchestratorError as error:
            self._note(fault, "end", str(error))
        else:
            self._note(fault, "end", "")

    async def _crash(self, fault: Fault) -> None:
        await self._powers.crash(_node(fault))

    async def _revive(self, fault: Fault) -> None:
        await self._powers.revive(_node(fault))

    async def _pause(self, fault: Fault) -> None:
        await self._powers.pause(_node(fault))

    async def _resume(self, fault: Fault) -> None:
        await self._powers.resume(_node(fault))

    async def _cut(self, fault: Fault) -> None:
        for source, target in self._links.cut(fault.links, fault.id):
            await self._powers.cut(source, target)

    async def _restore(self, fault: Fault) -> None:
        for source, target in self._links.restore(fault.id):
            await self._powers.restore(source, target)

    async def _degrade(self, fault: Fault) -> None:
        await self._change(self._links.overlay(fault.links, fault.id, fault.profile or {}))

    async def _recover(self, fault: Fault) -> None:
        await self._change(self._links.lift(fault.id))

    async def _change(self, profiles: dict[Pair, LinkProfile]) -> None:
        for (source, target), profile in profiles.items():
            await self._powers.change(source, target, profile)

    async def _slow(self, fault: Fault) -> None:
        assert fault.factor is not None
        self._slowness[_node(fault)][fault.id] = fault.factor
        await self._set_slowness(_node(fault))

    async def _speed_up(self, fault: Fault) -> None:
        self._slowness[_node(fault)].pop(fault.id, None)
        await self._set_slowness(_node(fault))

    async def _set_slowness(self, node: str) -> None:
        factor = 1.0
        for each in self._slowness[node].values():
            factor *= each
        await self._powers.slow(node, factor)

    async def _join(self, fault: Fault) -> None:
        await self._powers.join(_node(fault))

    async def _leave(self, fault: Fault) -> None:
        await self._powers.leave(_node(fault))

    _ACTIONS: dict[
        str,
        tuple[
            Callable[[FaultInjector, Fault], Awaitable[None]],
            Callable[[FaultInjector, Fault], Awaitable[None]] | None,
        ],
    ] = {  # noqa: RUF012 - a table, never written to
        "crash": (_crash, _revive),
        "pause": (_pause, _resume),
        "disconnect": (_cut, _restore),
        "partition": (_cut, _restore),
        "degrade": (_degrade, _recover),
        "slow": (_slow, _speed_up),
        "join": (_join, None),
        "leave": (_leave, None),
    }


def _node(fault: Fault) -> str:
    assert fault.node is not None, f"fault {fault.id} ({fault.action}) has no node"
    return fault.node
