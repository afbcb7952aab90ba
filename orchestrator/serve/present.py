"""How a run stands, and what was planned for it, in plain JSON values."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from netem.errors import NetemError
from netem.library import PROFILES
from netem.profile import LinkProfile
from netem.units import parse_duration
from orchestrator.report.figures import link_colour
from orchestrator.results.checks import Check, overall
from orchestrator.results.history import History
from orchestrator.scenario.sections.topology import Ends
from orchestrator.serve.fold import Flow, Fold, many_devices, told_fault

FRESH = 2.5  # s after which the last reading of a rate says nothing about now
COMPUTES = 0.2  # of the speed of its hardware, from which on a node counts as computing
SENDS = 1.2  # s since its messages grew, within which a node counts as sending
BUSY = 0.5  # of a link's rate
ENDS = ("planned", "done", "left", "crashed", "failed")  # states that the end of the orchestrator does not change
CUTS = ("disconnect", "partition")
PACE = 5  # rounds by which the time left is estimated


@dataclass(frozen=True)
class Given:
    """What the plan says about links and faults, once for all calls of `present`."""

    links_of: Mapping[str, Collection[Ends]]  # by node
    rates: Mapping[Ends, float | None]  # bit/s
    faults: dict[int, dict[str, Any]]  # by id

    @classmethod
    def of(cls, history: History) -> Given:
        """Read the plan of a run."""
        links_of: dict[str, set[Ends]] = {name: set() for name in history.nodes}
        for ends in history.link_classes:
            for name in ends:
                links_of.setdefault(name, set()).add(ends)
        return cls(
            links_of,
            {(link["source"], link["target"]): _rate(link["profile"]) for link in history.plan.get("links", [])},
            {fault["id"]: fault for fault in history.plan.get("faults", [])},
        )


def planned(history: History, name: str) -> dict[str, Any]:
    """What does not change while a run goes on: its nodes, links and faults, in the plan's order, and its clock."""
    plan = history.plan
    return {
        "run": name,
        "name": str(plan.get("name") or history.run),
        "question": history.question,
        "algorithm": (plan.get("algorithm") or {}).get("name"),
        "driver": history.driver,
        "simulated": history.simulated,
        "seed": plan.get("seed"),
        "began": history.meta.get("started"),
        "rounds": history.rounds_planned,
        "leaders": list(history.leaders),
        "profiles": list(PROFILES),
        "colours": {name: link_colour(name) for name in dict.fromkeys(history.link_classes.values())},
        "bands": bool(many_devices(history)),
        "nodes": [_node(node) for node in history.nodes.values()],
        "links": [_link(history, link) for link in plan.get("links", [])],
        "faults": [told_fault(fault) for fault in plan.get("faults", [])],
    }


def present(history: History, fold: Fold, results: Collection[Check], given: Given) -> dict[str, Any]:
    """How the run stands at its latest row. ``results``: the checks as they stood when they were last made.

    round: the one that goes on; when the run has ended, how many were done.
    nodes: [activity, detail, cores used, resident bytes, processor seconds], links: [state, bytes/s, bytes delivered,
    packets that did not arrive], each in the plan's order.
    """
    outcome, status = history.outcome, history.status
    running, simulated = status == "running", history.simulated  # one query each
    known = ChainMap({id: {**fault, "id": id} for id, fault in fold.by_hand.items()}, given.faults)
    in_force = [known[id] for id in fold.in_force if running and id in known]
    cut = {ends for fault in in_force if fault["action"] in CUTS for ends in _pairs(fault)}
    changed = {ends for fault in in_force if fault["action"] not in CUTS for ends in _pairs(fault)}
    return {
        "status": status,
        "behind": fold.behind,
        "now": round(fold.now, 3),
        "training": fold.training,
        "engine": history.engine,
        "ended": outcome.ended if outcome else None,
        "error": outcome.error if outcome else None,
        "verdict": overall(results) if results else None,
        "checks": list(results),
        "round": fold.round if running or fold.behind else history.rounds_done(),
        "left": time_left(history, fold) if running else None,
        "next": next_fault(history.plan, fold) if running else None,
        "in_force": [fault["id"] for fault in in_force],
        "nodes": [
            _activity(fold, name, node, given.links_of[name], cut, simulated=simulated, running=running)
            for name, node in history.nodes.items()
        ],
        "links": [_flow(fold, ends, rate, cut, changed, running=running) for ends, rate in given.rates.items()],
        "kinds": {kind: [round(count) for count in counts] for kind, counts in fold.kinds.items()},
        "probes": fold.probes,
        "looks": fold.looks,
    }


def time_left(history: History, fold: Fold) -> dict[str, Any] | None:
    """The seconds until the run ends at the latest by its plan, and those that its missing rounds take at their latest
    pace: {"seconds", "of": "rounds" or "time"}. None if neither is known."""
    if fold.training is None:
        return None
    left = []
    if (after := _seconds((history.plan.get("stop") or {}).get("after"))) is not None:
        left.append((max(0.0, fold.training + after - fold.now), "time"))
    ends: dict[int, float] = {}
    for t, node, number, _, phase, _ in reversed(fold.points("rounds")):
        if phase == "end" and node in history.leaders:
            ends.setdefault(number, t)
            if len(ends) > PACE:
                break
    if history.rounds_planned and ends:
        done = max(ends)
        first = max(0, done - PACE)
        began = ends.get(first, fold.training if first == 0 else None)
        if began is not None and done > first:
            pace = (ends[done] - began) / (done - first)
            left.append((max(0.0, ends[done] + pace * (history.rounds_planned - done) - fold.now), "rounds"))
    if not left:
        return None
    seconds, of = min(left)
    return {"seconds": round(seconds, 1), "of": of}


def next_fault(plan: Mapping[str, Any], fold: Fold) -> dict[str, Any] | None:
    """The next planned fault that has not been seen: {"id", "in": seconds} or {"id", "round"}. Faults with a time come
    before those with a round."""
    began = fold.now if fold.training is None else fold.training
    waiting = [fault for fault in plan.get("faults", []) if fault.get("id") not in fold.seen_faults]
    timed = [(began + fault["at"] - fold.now, fault) for fault in waiting if fault.get("at") is not None]
    if coming := [each for each in timed if each[0] > 0]:
        seconds, fault = min(coming, key=lambda each: each[0])
        return {"id": fault["id"], "in": round(seconds, 1)}
    numbered = [fault for fault in waiting if fault.get("round") is not None and fault["round"] >= fold.round]
    if not numbered:
        return None
    fault = min(numbered, key=lambda each: each["round"])
    return {"id": fault["id"], "round": fault["round"]}


def _activity(
    fold: Fold,
    name: str,
    node: Mapping[str, Any],
    links: Collection[Ends],
    cut: Collection[Ends],
    *,
    simulated: bool,
    running: bool,
) -> list[Any]:
    """What a node does, as far as the record tells. Under `sim` it tells no processor time, so a node that runs is
    "running". When the orchestrator is gone, so are the nodes that it did not end."""
    _, state, detail = fold.states.get(name, (0.0, "planned", ""))
    cpu = fold.cpu.get(name)
    share = cpu.rate if running and cpu is not None and _is_fresh(fold, cpu) else 0.0
    if not running:
        state = state if state in ENDS else "gone"
    elif state == "running":
        speed = (node.get("hardware") or {}).get("speed") or 1.0
        if links and all(ends in cut for ends in links):
            state = "cut off"
        elif simulated:
            pass
        elif share >= COMPUTES * min(1.0, speed):
            state = "computing"
        elif fold.now - fold.sending.get(name, -SENDS) < SENDS:
            state = "sending"
        else:
            state = "waiting"
    if running and name in fold.open_rounds:
        number, edge_round, _ = fold.open_rounds[name]
        detail = f"round {number}" if edge_round is None else f"round {number}, edge round {edge_round}"
    return [state, detail, round(share, 3), fold.rss.get(name, 0), round(cpu.total, 3) if cpu else 0]


def _flow(
    fold: Fold, ends: Ends, most: float | None, cut: Collection[Ends], changed: Collection[Ends], *, running: bool
) -> list[Any]:
    flow, dropped = fold.links.get(ends), fold.dropped.get(ends)
    rate = flow.rate if running and flow is not None and _is_fresh(fold, flow) else 0.0
    if ends in cut:
        state = "cut"
    elif ends in changed:
        state = "degraded"
    elif rate:
        state = "busy" if most and 8 * rate >= BUSY * most else "in use"
    else:
        state = "idle"
    return [state, round(rate), round(flow.total) if flow else 0, round(dropped.total) if dropped else 0]


def _is_fresh(fold: Fold, flow: Flow) -> bool:
    return fold.now - flow.t <= FRESH


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("name", "tier", "parent", "children", "neighbours", "samples", "host")
    hardware = node.get("hardware") or {}
    return {key: node.get(key) for key in keys} | {"hardware": hardware.get("name"), "speed": hardware.get("speed")}


def _link(history: History, link: Mapping[str, Any]) -> dict[str, Any]:
    ends = link["source"], link["target"]
    try:
        described = LinkProfile.from_mapping(link["profile"]).describe()
    except NetemError:  # written by another version
        described = ""
    facts = {"source": ends[0], "target": ends[1], "class": link["link_class"], "kind": history.link_kinds[ends]}
    return {**facts, "asked": described, "changes": "schedule" in link}


def _pairs(fault: Mapping[str, Any]) -> list[Ends]:
    return [(link[0], link[1]) for link in fault.get("links") or ()]


def _rate(profile: Mapping[str, Any]) -> float | None:
    try:
        return LinkProfile.from_mapping(profile).rate
    except NetemError:
        return None


def _seconds(value: Any) -> float | None:
    """A duration of plan.json, in seconds."""
    return parse_duration(value) if isinstance(value, str) else value
