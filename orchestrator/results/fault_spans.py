"""The course of each fault of a run, put together from its plan and its record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator import text
from orchestrator.record.events.run import Injected
from orchestrator.record.rows import FaultPhase, FaultSpan

if TYPE_CHECKING:
    from orchestrator.results.facts import Facts

Members = Mapping[str, Iterable[str]]  # of each medium and channel


def fault_spans(facts: Facts, phases: Iterable[FaultPhase]) -> list[FaultSpan]:
    """The course of every fault: the planned ones in the plan's order, then the manual ones. ``phases``: the rows of
    the table fault, in the order of recording; the first of each phase counts."""
    phases_of: defaultdict[int, dict[str, FaultPhase]] = defaultdict(dict)
    for row in phases:
        phases_of[row.fault].setdefault(row.phase, row)
    planned = {fault["id"]: fault for fault in facts.plan.get("faults", ())}
    users = {}
    for _, node, _, injected in facts.recorded(Injected):
        if node is None:
            planned[injected.fault] = injected.planned
            users[injected.fault] = str(injected.user)
    order = {name: place for place, name in enumerate(facts.nodes)}
    members = _members(facts)
    spans = []
    for fault in dict.fromkeys([*planned, *phases_of]):
        plan = planned.get(fault, {})
        own_phases = phases_of.get(fault, {})
        user = users.get(fault, "")
        spans.append(_span(fault, plan, own_phases, order, members, user))
    return spans


def _members(facts: Facts) -> dict[str, list[str]]:
    """The members of each medium, by its name and the names of its channels."""
    members = {}
    for medium in facts.plan.get("media", ()):
        for name in (medium["name"], *medium["channels"]):
            members[name] = medium["members"]
    return members


def _span(
    id: int,
    planned: dict[str, Any],
    phases: Mapping[str, FaultPhase],
    order: Mapping[str, int],
    members: Members,
    by: str,
) -> FaultSpan:
    """One fault. ``order``: of the nodes. ``members``: of media and channels. ``by``: who made it manually."""
    start = phases.get("start")
    end = phases.get("end")
    skipped = phases.get("skipped")
    first = start or skipped or end
    round = planned.get("round")
    action = planned.get("action") or ""
    if first is not None:
        action = action or first.action
        if first.round is not None:
            round = first.round
    recorded = [phase for phase in (start, skipped, end) if phase is not None]
    details = [phase.detail for phase in recorded if phase.detail]
    nodes = _touched(planned, members) & order.keys()
    return FaultSpan(
        id=id,
        action=str(action),
        target=_target(planned, first),
        start=_time(start),
        end=_time(end),
        skipped=_time(skipped),
        round=round,
        detail=" ".join(details),
        nodes=tuple(sorted(nodes, key=order.__getitem__)),
        planned=planned,
        by=by,
    )


def _time(phase: FaultPhase | None) -> float | None:
    return None if phase is None else phase.t


def _touched(planned: Mapping[str, Any], members: Members) -> set[str]:
    """The names of the nodes that a fault affects, and perhaps others."""
    medium = planned.get("medium")
    if medium:
        return {member.partition(" <-> ")[0] for member in members.get(medium, ())}
    node = planned.get("node")
    if node:
        return {node}
    touched: set[str] = set()
    for link in planned.get("links") or ():
        touched.update(link)
    return touched


def _target(planned: Mapping[str, Any], first: FaultPhase | None) -> str:
    """What a fault is about: as it was recorded with its ``first`` phase, or as it was planned."""
    if first is not None and first.target:
        return first.target
    target: str = planned.get("node") or planned.get("medium") or ""
    if target:
        return target
    sides = [text.some(side) for side in planned.get("between") or ()]
    return " | ".join(sides)
