"""Make planned faults at their time, round or event and manual faults immediately, and undo each fault when it is over.

Faults may overlap. `orchestrator.run.links.states` combines them on links, and the factors of slow nodes multiply.
Every fault is recorded when it takes effect, with the round that it hits.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.plan import Plan
from orchestrator.record.rows import FaultSpan
from orchestrator.run.links.media import Media
from orchestrator.run.links.states import Links
from orchestrator.run.nodes.processes import NodeProcesses
from orchestrator.run.resume import NOTHING, Past

Act = Callable[["FaultInjector", Fault], Awaitable[None]]
Work = Coroutine[Any, Any, None]


class FaultInjector:
    """Runs the plan's faults against ``nodes``, ``links`` and ``media`` on asyncio's clock.

    ``note(fault, phase, detail)`` is called when a fault starts, ends or is skipped: phase "start", "end" or "skipped".
    ``spawn`` runs a coroutine concurrently, handles its errors, and cancels it at the end. ``readdress`` gives a node
    another address, and ``move`` leads a device to another edge.
    """

    def __init__(
        self,
        plan: Plan,
        nodes: NodeProcesses,
        links: Links,
        media: Media,
        note: Callable[[Fault, str, str], None],
        spawn: Callable[[Work], None],
        readdress: Callable[[str], Work],
        move: Callable[[str, str], Work],
    ) -> None:
        self._faults = plan.faults
        self._nodes = nodes
        self._note = note
        self._links = links
        self._media = media
        self._until_next_round: list[Fault] = []
        self._spawn = spawn
        self._readdress = readdress
        self._move = move
        self._reached = 0
        self._awaited: dict[str, list[Fault]] = {}  # by the event at which they start
        self.ids = itertools.count(_next_id(self._faults))  # for manual faults

    def begin(self, past: Past = NOTHING) -> None:
        """Start the faults: training starts now, or continues after ``past``. Times count from the start of training.
        In a continued run, finished faults stay finished. Active faults are active again for the rest of their time."""
        self._reached = past.round
        faults = list(self._faults)
        behind: dict[int, FaultSpan] = {}  # those that have started or were skipped, by their ids
        for span in past.faults:
            if span.by:
                faults.append(Fault.from_json(span.planned))
            if span.start is not None or span.skipped is not None:
                behind[span.id] = span
        self.ids = itertools.count(_next_id(faults))

        def started(fault: Fault) -> float:
            span = behind.get(fault.id)
            if span is None:
                return math.inf
            return span.start or 0.0

        due: defaultdict[float, list[Fault]] = defaultdict(list)
        for fault in sorted(faults, key=started):
            if fault.id in behind:
                self._continue_if_active(fault, behind[fault.id], past.seconds)
            elif fault.at is not None:
                due[fault.at].append(fault)
            elif fault.event is not None:
                self._awaited.setdefault(fault.event, []).append(fault)
            elif fault.round is not None and fault.round <= past.round:
                self._spawn(self._turn_round([], [fault]))  # its round had just started
        for at, faults_of_time in due.items():
            delay = max(0.0, at - past.training)
            self._spawn(self._begin_at(faults_of_time, delay))

    def _continue_if_active(
        self,
        fault: Fault,
        span: FaultSpan,
        now: float,
    ) -> None:
        _, undo = self._ACTIONS[fault.action]
        if undo is None or span.start is None:
            return
        if span.end is None:
            lasted = now - span.start
            self._spawn(self._continue(fault, lasted))

    async def _begin_at(self, faults: list[Fault], delay: float) -> None:
        await asyncio.sleep(delay)  # one timer: faults of one time keep their order
        for fault in faults:
            self._spawn(self._run(fault))

    def round_started(self, round: int) -> None:
        """End the faults that last a round and start the faults of this round. Called when a leader's round starts. If
        a round starts again after a restart of its coordinator, its faults are not repeated."""
        if round <= self._reached:
            return
        due = []
        for fault in self._faults:
            if fault.round is None:
                continue
            if self._reached < fault.round <= round:
                due.append(fault)
        self._reached = round
        over = self._until_next_round
        self._until_next_round = []
        self._spawn(self._turn_round(over, due))

    def event_reported(self, name: str) -> None:
        """Start the faults of the first event with this name."""
        for fault in self._awaited.pop(name, []):
            self._spawn(self._run(fault))

    async def make(self, fault: Fault, took_effect: Callable[[], object]) -> None:
        """Make a manual fault immediately. ``took_effect`` is called when it has, before its start is noted.
        OrchestratorError if it is not possible now; then nothing is noted."""
        await self._act(fault)
        took_effect()
        self._note(fault, "start", "")
        if fault.duration is not None:
            ending = self._end_after(fault, fault.duration)
            self._spawn(ending)

    async def _act(self, fault: Fault) -> None:
        act, _ = self._ACTIONS[fault.action]
        await act(self, fault)

    async def _end_after(self, fault: Fault, duration: float) -> None:
        await asyncio.sleep(duration)
        await self._end(fault)

    async def _turn_round(self, over: list[Fault], due: list[Fault]) -> None:
        for fault in over:
            await self._end(fault)
        for fault in due:
            if not fault.lasts_a_round:
                running = self._run(fault)
                self._spawn(running)
                continue
            started = await self._start(fault)
            if started:
                self._until_next_round.append(fault)

    async def _run(self, fault: Fault) -> None:
        await asyncio.sleep(0)  # after those that end now
        started = await self._start(fault)
        if started and fault.duration is not None:
            await self._end_after(fault, fault.duration)

    async def _continue(self, fault: Fault, lasted: float) -> None:
        """Apply again a fault that was active for ``lasted`` seconds. Its start is in the record already."""
        try:
            await self._act(fault)
        except OrchestratorError as error:
            self._note(fault, "end", str(error))
            return
        if fault.lasts_a_round:
            self._until_next_round.append(fault)
        elif fault.duration is not None:
            remaining = max(0.0, fault.duration - lasted)
            await self._end_after(fault, remaining)

    async def _start(self, fault: Fault) -> bool:
        try:
            await self._act(fault)
        except OrchestratorError as error:
            self._note(fault, "skipped", str(error))
            return False
        self._note(fault, "start", "")
        return True

    async def _end(self, fault: Fault) -> None:
        _, undo = self._ACTIONS[fault.action]
        if undo is None:
            return
        try:
            await undo(self, fault)
        except OrchestratorError as error:
            self._note(fault, "end", str(error))
        else:
            self._note(fault, "end", "")

    async def _crash(self, fault: Fault) -> None:
        if fault.program is None:
            await self._nodes.crash(_node(fault))
            return
        returns = fault.duration is not None or fault.lasts_a_round
        programs = self._nodes.programs
        await programs.crash(fault.program, returns=returns)

    async def _revive(self, fault: Fault) -> None:
        if fault.program is None:
            await self._nodes.revive(_node(fault))
            return
        programs = self._nodes.programs
        programs.revive(fault.program)

    async def _pause(self, fault: Fault) -> None:
        if fault.program is None:
            await self._nodes.pause(_node(fault), fault.id)
            return
        programs = self._nodes.programs
        await programs.pause(fault.program)

    async def _resume(self, fault: Fault) -> None:
        if fault.program is None:
            await self._nodes.resume(_node(fault), fault.id)
            return
        programs = self._nodes.programs
        await programs.resume(fault.program)

    async def _power_off(self, fault: Fault) -> None:
        """Cut the links first, so that no peer learns of the end."""
        node = _node(fault)
        await self._links.cut(fault.links, fault.id)
        try:
            await self._nodes.crash(node, without_power=True)
        except OrchestratorError:
            await self._links.lift(fault.id)
            raise

    async def _power_on(self, fault: Fault) -> None:
        await self._links.lift(fault.id)
        await self._nodes.revive(_node(fault))

    async def _cut(self, fault: Fault) -> None:
        if fault.medium is None:
            await self._links.cut(fault.links, fault.id)
        else:
            await self._links.close(fault.channels, fault.id)

    async def _degrade(self, fault: Fault) -> None:
        if fault.medium is None:
            changes = fault.changes_by_link()
            await self._links.overlay(changes, fault.id)
        else:
            await self._media.overlay(fault.channels, fault.id)

    async def _hand_over(self, fault: Fault) -> None:
        ways = {}
        for source, target, way in fault.crossings:
            ways[source, target] = way
        await self._links.reroute(ways, fault.id)

    async def _lift(self, fault: Fault) -> None:
        await self._links.lift(fault.id)
        await self._media.lift(fault.id)

    async def _slow(self, fault: Fault) -> None:
        node = _node(fault)
        assert fault.factor is not None
        await self._nodes.slow(node, fault.id, fault.factor)

    async def _speed_up(self, fault: Fault) -> None:
        await self._nodes.speed_up(_node(fault), fault.id)

    async def _change_address(self, fault: Fault) -> None:
        await self._readdress(_node(fault))

    async def _move_device(self, fault: Fault) -> None:
        await self._move(_node(fault), fault.to or "")

    async def _join(self, fault: Fault) -> None:
        await self._nodes.join(_node(fault))

    async def _leave(self, fault: Fault) -> None:
        await self._nodes.leave(_node(fault))

    _ACTIONS: Mapping[str, tuple[Act, Act | None]] = {
        "crash": (_crash, _revive),
        "power-off": (_power_off, _power_on),
        "pause": (_pause, _resume),
        "disconnect": (_cut, _lift),
        "partition": (_cut, _lift),
        "degrade": (_degrade, _lift),
        "handover": (_hand_over, _lift),
        "slow": (_slow, _speed_up),
        "new-address": (_change_address, None),
        "move": (_move_device, None),
        "join": (_join, None),
        "leave": (_leave, None),
    }


def _next_id(faults: Iterable[Fault]) -> int:
    ids = [fault.id for fault in faults]
    return 1 + max(ids, default=0)


def _node(fault: Fault) -> str:
    assert fault.node is not None, f"fault {fault.id} ({fault.action}) has no node"
    return fault.node
