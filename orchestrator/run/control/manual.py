"""Commands of a user to a run: make faults, and set the pace of a simulation.

Each operation checks a request and hands faults to the code that makes the planned ones. Requests come from
`orchestrator.run.control.commands`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from netem.units import format_duration
from node.runtime.clock import VirtualLoop
from orchestrator.errors import OrchestratorError, RunError
from orchestrator.host.process.user_socket import user_name
from orchestrator.planning.faults.manual import ByHand, faults_by_hand
from orchestrator.run.context import RunContext
from orchestrator.run.control.pace import Pacing
from orchestrator.run.nodes.session import Session

Reply = dict[str, Any]
Operations = Mapping[str, Callable[..., Reply]]
LONGEST_VIA = 100  # characters


class Commands:
    """The operations of one run. ``pacing``: that of its clock, if it is virtual."""

    def __init__(self, run: RunContext, session: Session, pacing: Pacing | None) -> None:
        self._run = run
        self._session = session
        self._pacing = pacing
        self._simulated = run.plan.driver_kind.simulated

    def of(self, uid: int) -> Operations:
        """The operations of a user, by name. One that takes time replies with its ``work``, a coroutine that returns
        the reply. ValueError or TypeError if a request makes no sense."""
        inject = partial(self._inject, uid)
        return {"inject": inject, "pace": self._set_pace}

    def _inject(self, uid: int, fault: object, via: object = "") -> Reply:
        """Make the faults of a rule of `orchestrator.planning.faults.manual`. ``via``: the tool that the user used."""
        if not isinstance(fault, dict):
            raise TypeError("a fault is a mapping, such as {action: crash, node: device-0-1}")
        now = self._session.trained or 0.0
        rules = faults_by_hand(fault, self._run.plan, now, 0)
        tool = str(via)[:LONGEST_VIA]
        return {"work": self._make(rules, uid, tool)}

    async def _make(self, rules: Sequence[ByHand], uid: int, via: str) -> Reply:
        session = self._session
        refused = list[Reply]()
        replies = []
        for planned, written in rules:
            try:
                at = self._present()
                number = next(session.faults.ids)
                fault = replace(planned, id=number, at=at)
                rule = {"at": format_duration(at), **written}
                facts = {"uid": uid, "via": via, "written": rule}
                await session.make_by_hand(fault, user_name(uid), facts)
            except OrchestratorError as error:
                refusal = {
                    "action": planned.action,
                    "target": planned.target,
                    "reason": str(error),
                }
                refused.append(refusal)
            else:
                reply = {
                    "fault": fault.id,
                    "action": fault.action,
                    "target": fault.target,
                    "for": fault.duration,
                    "at": at,
                    "t": round(self._run.clock(), 6),
                    "round": session.progress.round or None,
                }
                replies.append(reply)
        return {"faults": replies, "refused": refused, "notes": []}

    def _present(self) -> float:
        """The seconds of training until now. RunError if no fault can be made now."""
        if self._session.ended.done():
            raise RunError("the run is ending")
        if self._session.trained is None:
            raise RunError("the training has not started")
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.catch_up()
        digits = 6 if self._simulated else 3
        return round(self._session.trained, digits)

    def _set_pace(self, to: object) -> Reply:
        if self._pacing is None:
            raise ValueError(f"the driver {self._run.plan.driver} works in real time; only a simulation has a pace")
        if self._session.ended.done():
            return {"error": "the run is ending"}
        waiting = self._pacing.set(str(to))
        self._run.view.line(f"pace: {to}")
        if waiting is None:
            return self._standing()
        return {"work": self._stepped(waiting)}

    async def _stepped(self, waiting: asyncio.Future[int]) -> Reply:
        await asyncio.wait([waiting])
        if waiting.cancelled():
            return {"error": "the run has ended, or has another pace now"}
        return self._standing()

    def _standing(self) -> Reply:
        self._run.record.flush()  # readers of the record see everything until now
        ahead = 0.0
        if self._pacing is not None:
            ahead = self._pacing.ahead
        t = self._run.clock() + ahead
        return {
            "t": round(t, 6),
            "round": self._session.progress.round or None,
        }
