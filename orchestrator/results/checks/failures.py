"""The check for unplanned failures in a run, from its record: lost hosts, ends of nodes and programs, standstills, gaps
in monitoring.

If a host is lost, or a node ends unplanned, whether it is restarted or not, the run differs from the plan. The same
holds if a node or the orchestrator stands still: others wait for it, or take it for lost. The effect of a short
standstill, or of a busy host that kept the orchestrator from monitoring, is unknown, unless it is a negligible part of
the training. So is the effect of a program that ended early with exit code 0. What ended before the start of the
training, or started after its end, did not change it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from node.process.standstill import LEAST
from orchestrator import text
from orchestrator.record.events.nodes import Frozen
from orchestrator.record.events.run import Gap
from orchestrator.record.rows import AFTER_A_ROUND, State
from orchestrator.results.checks.programs import EndedProgram, early_ends
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.facts import Facts
from orchestrator.results.presence import THERE, host_of, lost_hosts, stays

SMALL_SHARE = 0.02  # of the training for which a process may stand still before the check fails
NEGLIGIBLE_SHARE = 0.01  # of the training for which it may stand still, or not monitor, before the effect is unknown
BUSY = 2.0  # s for which a busy host may keep the orchestrator from monitoring in a run of any length
SLACK = 1.0  # s from a node's thaw to its report: its beat


class StoodStill(NamedTuple):
    """``who``, a node or "it" for the orchestrator, stood still for ``seconds`` until ``t``."""

    who: str
    t: float
    seconds: float


def no_unplanned_failures(history: Facts) -> Assessment | None:
    """Check that nothing unplanned happened; None for a run without training."""
    began = history.training_began
    if began is None:
        return None
    lost = lost_hosts(history)
    ends = [state for state in history.states() if state.state == "crashed" and state.detail != "fault"]
    with_host = _ended_with_host(history, ends) if lost else []
    ends = [state for state in ends if state not in with_host]
    done = history.outcome is not None and history.outcome.ended in AFTER_A_ROUND
    until = history.training_ended if done else math.inf
    nodes = [stall for stall in node_standstills(history) if stall.t > began]
    nodes = [stall for stall in nodes if stall.t - stall.seconds < until]
    gaps = [gap for gap in history.recorded(Gap) if gap.t > began]
    gaps = [gap for gap in gaps if gap.event.since < until]
    stalls = [StoodStill("the orchestrator", gap.t, gap.event.stood_still) for gap in gaps]
    own = [stall for stall in stalls if stall.seconds >= LEAST]
    training = history.training_ended - began
    busy = max(BUSY, NEGLIGIBLE_SHARE * training)
    gaps = [gap for gap in gaps if gap.event.seconds - gap.event.stood_still >= busy]
    early = early_ends(history)
    parts = list(lost)
    if with_host:
        names = dict.fromkeys(state.node for state in with_host)
        parts.append(f"{text.count(len(names), 'node')} ended with the host: {text.some(names)}")
    if ends:
        listed = text.some(_end(state, began) for state in ends)
        parts.append(f"{text.count(len(ends), 'node')} ended unplanned: {listed}")
    if early:
        listed = text.some(_early(program, began) for program in early)
        programs = text.count(len(early), "program")
        parts.append(f"{programs} ended before the run did: {listed}; write `expected_to_end: true` if that is right")
    if own:
        parts.append(f"stalled: {_list(own, began)}")
    if nodes:
        parts.append(f"nodes stalled: {_list(nodes, began)}")
    if gaps:
        longest = max(gaps, key=lambda gap: gap.event.seconds)
        times = text.count(len(gaps), "time")
        parts.append(
            f"this host was so busy that the orchestrator took no sample {times}, at most for "
            f"{text.duration(longest.event.seconds)} until {longest.t - began:.1f} s"
        )
    if not parts:
        by_hand = ""
        if any(span.by for span in history.faults()):
            by_hand = " or made manually"
        return "pass", f"no node ended and nothing stalled except as planned{by_hand}"
    sentence = "; ".join(parts)
    stalled = text.share(_most(own + nodes), training)
    if lost or ends or stalled > SMALL_SHARE:
        return "fail", sentence
    if gaps or early or stalled > NEGLIGIBLE_SHARE:
        return "unknown", sentence
    return "pass", sentence


def _ended_with_host(history: Facts, ends: list[State]) -> list[State]:
    """Those of the ``ends`` of nodes that happened while the node's host was lost."""
    away = [stay for stay in stays(history) if stay.state != THERE]
    host_at = host_of(history)
    with_host = []
    for end in ends:
        host = host_at(end.node, end.t)
        own = [stay for stay in away if stay.host == host]
        if any(stay.start - SLACK <= end.t <= stay.end for stay in own):
            with_host.append(end)
    return with_host


def node_standstills(history: Facts) -> Iterator[StoodStill]:
    """The standstills of nodes that no planned pause explains."""
    pauses: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for span in history.faults():
        if span.action != "pause" or span.start is None:
            continue
        until = history.seconds if span.end is None else span.end
        for node in span.nodes:
            pauses[node].append((span.start, until))
    for end, name, _, frozen in history.recorded(Frozen):
        node = name or "?"
        start = end - frozen.seconds - SLACK
        planned = 0.0
        for since, until in pauses[node]:
            planned += max(0.0, min(end, until) - max(start, since))
        seconds = frozen.seconds - planned
        if seconds >= LEAST:
            yield StoodStill(node, end, seconds)


def _most(standstills: list[StoodStill]) -> float:
    """The largest total standstill of any one process, in seconds."""
    totals: defaultdict[str, float] = defaultdict(float)
    for stall in standstills:
        totals[stall.who] += stall.seconds
    return max(totals.values(), default=0.0)


def _list(standstills: list[StoodStill], began: float) -> str:
    parts = []
    for stall in sorted(standstills, key=lambda stall: -stall.seconds):
        parts.append(f"{stall.who} for {text.duration(stall.seconds)} until {stall.t - began:.1f} s")
    return text.some(parts)


def _early(end: EndedProgram, began: float) -> str:
    what = end.label if end.label == end.node else f"{end.label} on {end.node}"
    return f"{what} at {end.t - began:.1f} s ({end.how})"


def _end(state: State, began: float) -> str:
    return f"{state.node} at {state.t - began:.1f} s ({state.detail or 'no cause was recorded'})"
