"""What each node did over the run, from its states, the rounds and the reports of training, for timeline and picture.

A record has no event for each step of a role. A running node is "in a round" while it leads one, or, if it trains, from
the start of its parent's round until its last report of training in it. Otherwise it is "waiting". A node whose
parent reports no rounds is only "running".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from orchestrator.record.rows import Round, State
from orchestrator.results.facts import CUT_OFF, IN_ROUND, RUNNING, WAITING
from orchestrator.results.history import History

MOST = 4000  # rounds of nodes; of more, nodes are only "running", so that a page stays small

Span = tuple[float, float]
Change = tuple[float, str]  # a time and the state from then on


class Stretch(NamedTuple):
    """A period of the run, in seconds of the record, in which a node did one thing."""

    start: float
    end: float
    what: str
    detail: str = ""


def activities(history: History) -> dict[str, list[Stretch]]:
    """The stretches of each node that had any state, in order."""
    busy = _spans_of_rounds(history)
    by_node: defaultdict[str, list[State]] = defaultdict(list)
    for state in history.states():
        by_node[state.node].append(state)
    activities: dict[str, list[Stretch]] = {}
    for node, states in by_node.items():
        ends = [state.t for state in states[1:]]
        ends.append(history.seconds)
        work = busy.get(node)
        stretches: list[Stretch] = []
        for state, end in zip(states, ends, strict=True):
            if state.state == RUNNING and work:
                stretches += divided(state.t, end, work)
            else:
                stretches.append(Stretch(state.t, end, state.state, state.detail))
        activities[node] = stretches
    return activities


def _spans_of_rounds(history: History) -> dict[str, list[Span]]:
    """When each node was in a round: one that it led, or trained in, or else one of its parent. Empty if there are more
    than `MOST`."""
    trained = _spans_of_training(history)
    led: defaultdict[str, list[Span]] = defaultdict(list)  # of each coordinator, in order
    for row, end in history.rounds_with_ends():
        led[row.node].append((row.start, end))
    busy = {}
    total = 0
    for name, node in history.nodes.items():
        parent = node.get("parent") or ""
        spans = led.get(name) or trained.get(name) or led.get(parent, [])
        busy[name] = spans
        total += len(spans)
    if total > MOST:
        return {}
    return busy


def course(history: History) -> dict[str, Any]:
    """What nodes and links did, for `Topology` in script/topology.js, which describes the keys. Times are seconds of
    training. A node is "cut off" while a fault disconnects it."""
    began = history.training_began or 0.0
    nodes = _courses_of_nodes(history, began)
    starts = [changes[0][0] for changes in nodes.values() if changes]
    leader = next(iter(history.leaders), None)
    rounds = []
    for row in history.rounds():
        if row.node == leader:
            rounds.append([round(row.start - began, 3), f"round {row.round}"])
    return {
        "begin": min(starts, default=0.0),
        "end": round(history.seconds - began, 3),
        "nodes": nodes,
        "links": _courses_of_links(history, began),
        "rounds": rounds,
    }


def _courses_of_nodes(history: History, began: float) -> dict[str, list[list[Any]]]:
    last = history.seconds
    latest = {state.node: state for state in history.states()}
    cuts: defaultdict[str, list[Span]] = defaultdict(list)
    for span in history.faults():
        if span.action == "disconnect" and span.start is not None:
            cut = (span.start or 0.0, span.end or last)
            for node in set(span.nodes):
                cuts[node].append(cut)
    nodes = {}
    for node, stretches in activities(history).items():
        cuts_of_node = sorted(cuts[node])
        changes = []
        for stretch in stretches:
            for piece in _cut(stretch, cuts_of_node):
                changes.append((piece.start, piece.what))
        state = latest[node]
        if state.state == "done":
            changes.append((state.t, state.state))
        nodes[node] = _changes(changes, began)
    return nodes


def _courses_of_links(history: History, began: float) -> list[list[Any]]:
    """(start, end, one node, the other one, state) of each link that a fault changed."""
    last = history.seconds
    rows = []
    for span in history.faults():
        if span.start is None:
            continue
        start = round(span.start - began, 3)
        end = last if span.end is None else span.end
        end = round(end - began, 3)
        state = "degraded" if span.action == "degrade" else "cut"
        links = span.planned.get("links") or ()
        pairs = {tuple(sorted(link)) for link in links}
        for pair in sorted(pairs):
            rows.append([start, end, *pair, state])
    return rows


def _cut(stretch: Stretch, cuts: Sequence[Span]) -> list[Stretch]:
    """A stretch of a running node, with the periods in which it was cut off."""
    if stretch.what not in (IN_ROUND, WAITING, RUNNING):
        return [stretch]
    pieces = []
    for piece in divided(stretch.start, stretch.end, cuts):
        what = CUT_OFF if piece.what == IN_ROUND else stretch.what
        pieces.append(piece._replace(what=what))
    return pieces


def _changes(changes: Sequence[Change], began: float) -> list[list[Any]]:
    """(time, state) as lists, without changes to the same state."""
    kept: list[list[Any]] = []
    for t, what in changes:
        if not kept or kept[-1][1] != what:
            kept.append([round(t - began, 3), what])
    return kept


def divided(start: float, end: float, work: Sequence[Span]) -> list[Stretch]:
    """The time from ``start`` to ``end``, in a round during ``work`` and waiting between. ``work`` is in order."""
    stretches = []
    at = start
    for work_start, work_end in work:
        since = max(work_start, at)
        until = min(work_end, end)
        if until <= since:
            continue
        if since > at:
            stretches.append(Stretch(at, since, WAITING))
        stretches.append(Stretch(since, until, IN_ROUND))
        at = until
    if end > at:
        stretches.append(Stretch(at, end, WAITING))
    return stretches


def _spans_of_training(history: History) -> dict[str, list[Span]]:
    """From the start of the parent's round until the last report of training in it, for each node that reports."""
    starts: dict[tuple[str, int], float] = {}  # of a node's round; an edge may have several with its devices in it
    latest: dict[str, Round] = {}
    for row in history.rounds():
        starts.setdefault((row.node, row.round), row.start)
        latest[row.node] = row
    spans: defaultdict[str, dict[int, Span]] = defaultdict(dict)
    for metric in history.metrics(None, "train"):
        parent = history.nodes.get(metric.node, {}).get("parent")
        if not parent or metric.round is None:
            continue
        start = starts.get((parent, metric.round))
        if start is not None:
            spans[metric.node][metric.round] = (start, max(start, metric.t))
    for node, by_round in spans.items():
        led = latest[history.nodes[node]["parent"]]
        not_reported = led.end is None and led.round not in by_round
        if not_reported:
            start = starts[led.node, led.round]
            by_round[led.round] = (start, history.seconds)
    return {node: sorted(by_round.values()) for node, by_round in spans.items()}
