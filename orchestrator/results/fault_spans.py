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


def fault_spans(facts: Facts, phases: Iterable[FaultPhase]) -> list[FaultSpan]:
    """The course of every fault: the planned ones in the plan's order, then those by hand. ``phases``: the rows of the
    table fault, in the order of recording; the first of each phase counts."""
    by_fault: defaultdict[int, dict[str, tuple[Any, ...]]] = defaultdict(dict)
    for t, fault, action, target, phase, round, detail in phases:
        by_fault[fault].setdefault(phase, (t, action, target, round, detail))
    known = {fault["id"]: fault for fault in facts.plan.get("faults", ())}
    by = {}
    for _, node, _, injected in facts.recorded(Injected):
        if node is None:
            known[injected.fault] = injected.planned
            by[injected.fault] = str(injected.user)
    order = {name: place for place, name in enumerate(facts.nodes)}
    media = facts.plan.get("media", ())
    members = {name: each["members"] for each in media for name in (each["name"], *each["channels"])}
    return [
        _span(id, known.get(id, {}), by_fault.get(id, {}), order, members, by.get(id, ""))
        for id in [*known, *(id for id in by_fault if id not in known)]
    ]


def _span(
    id: int,
    planned: dict[str, Any],
    phases: Mapping[str, tuple[Any, ...]],
    order: Mapping[str, int],
    members: Mapping[str, Iterable[str]],
    by: str,
) -> FaultSpan:
    """One fault. ``order``: of the nodes. ``members``: of media and channels. ``by``: who made it manually."""
    start, end, skipped = (phases.get(phase) for phase in ("start", "end", "skipped"))
    first = start or skipped or end or (None, "", "", None, "")
    node = planned.get("node")
    medium = planned.get("medium")
    if node:
        touched = {node}
    else:
        touched = {name for link in planned.get("links") or () for name in link}
    if medium:
        touched = {member.partition(" <-> ")[0] for member in members.get(medium, ())}
    return FaultSpan(
        id=id,
        action=str(planned.get("action") or first[1]),
        target=first[2] or node or medium or " | ".join(text.some(side) for side in planned.get("between") or ()),
        start=start[0] if start else None,
        end=end[0] if end else None,
        skipped=skipped[0] if skipped else None,
        round=first[3] if first[3] is not None else planned.get("round"),
        detail=" ".join(phase[4] for phase in (start, skipped, end) if phase and phase[4]),
        nodes=tuple(sorted(touched & order.keys(), key=order.__getitem__)),
        planned=planned,
        by=by,
    )
