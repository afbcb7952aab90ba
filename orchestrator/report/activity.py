"""What each node did over the run, from its states, the rounds and the reports of training, for timeline and picture.

A record has no event for each step of a role. A running node is "in a round" while it leads one, or, if it trains, from
the beginning of its parent's round until its last report of training in it. Otherwise it is "waiting". A node whose
parent tells of no rounds is only "running".
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


class Stretch(NamedTuple):
    """A period of the run, in seconds of the record, in which a node did one thing."""

    start: float
    end: float
    what: str
    detail: str = ""


def activities(history: History) -> dict[str, list[Stretch]]:
    """The stretches of each node that had any state, in order."""
    last = history.seconds
    trained = _spans_of_training(history)
    rounds: defaultdict[str, list[Span]] = defaultdict(list)  # of each coordinator, in order
    for each, end in history.rounds_with_ends():
        rounds[each.node].append((each.start, end))
    parents = {name: node.get("parent") for name, node in history.nodes.items()}
    busy = {
        name: rounds.get(name) or trained.get(name) or rounds.get(parent or "", []) for name, parent in parents.items()
    }
    if sum(map(len, busy.values())) > MOST:
        busy = {}
    by_node: defaultdict[str, list[State]] = defaultdict(list)
    for state in history.states():
        by_node[state.node].append(state)
    found: dict[str, list[Stretch]] = {}
    for node, states in by_node.items():
        ends = [state.t for state in states[1:]] + [last]
        work = busy.get(node)
        found[node] = []
        for state, end in zip(states, ends, strict=True):
            if state.state == RUNNING and work:
                found[node] += divided(state.t, end, work)
            else:
                found[node].append(Stretch(state.t, end, state.state, state.detail))
    return found


def course(history: History) -> dict[str, Any]:
    """What nodes and links did, for `Topology` in script/topology.js, which describes the keys. Times are seconds of
    training. A node is "cut off" while a fault disconnects it."""
    began = history.training_began or 0.0
    last = history.seconds
    ends = {state.node: state for state in history.states()}
    cut = [span for span in history.faults() if span.action == "disconnect" and span.start is not None]
    nodes = {}
    for node, stretches in activities(history).items():
        cuts = sorted((span.start or 0.0, span.end or last) for span in cut if node in span.nodes)
        changes = [(each.start, each.what) for stretch in stretches for each in _cut(stretch, cuts)]
        latest = ends[node]
        nodes[node] = _changes([*changes, (latest.t, latest.state)] if latest.state == "done" else changes, began)
    links = [
        [
            *(round((last if t is None else t) - began, 3) for t in (span.start, span.end)),
            *(*ends, "degraded" if span.action == "degrade" else "cut"),
        ]
        for span in history.faults()
        if span.start is not None
        for ends in sorted({tuple(sorted(link)) for link in span.planned.get("links") or ()})
    ]
    rounds = [
        [round(each.start - began, 3), f"round {each.round}"]
        for each in history.rounds()
        if each.node == next(iter(history.leaders), None)
    ]
    starts = [changes[0][0] for changes in nodes.values() if changes]
    begin = min(starts, default=0.0)
    return {"begin": begin, "end": round(last - began, 3), "nodes": nodes, "links": links, "rounds": rounds}


def _cut(stretch: Stretch, cuts: Sequence[Span]) -> list[Stretch]:
    """A stretch of a running node, with the periods in which it was cut off."""
    if stretch.what not in (IN_ROUND, WAITING, RUNNING):
        return [stretch]
    pieces = divided(stretch.start, stretch.end, cuts)
    return [each._replace(what=CUT_OFF if each.what == IN_ROUND else stretch.what) for each in pieces]


def _changes(changes: Sequence[tuple[float, str]], began: float) -> list[list[Any]]:
    """(time, state) as lists, without changes to the same state."""
    found: list[list[Any]] = []
    for t, what in changes:
        if not found or found[-1][1] != what:
            found.append([round(t - began, 3), what])
    return found


def divided(start: float, end: float, work: Sequence[Span]) -> list[Stretch]:
    """The time from ``start`` to ``end``, in a round during ``work`` and waiting between. ``work`` is in order."""
    found = []
    at = start
    for begin, until in work:
        begin = max(begin, at)
        until = min(until, end)
        if until > begin:
            if begin > at:
                found.append(Stretch(at, begin, WAITING))
            found.append(Stretch(begin, until, IN_ROUND))
            at = until
    if end > at:
        found.append(Stretch(at, end, WAITING))
    return found


def _spans_of_training(history: History) -> dict[str, list[Span]]:
    """From the beginning of the parent's round until the last report of training in it, for each node that reports."""
    begins: dict[tuple[str, int], float] = {}  # of a node's round; an edge may have several with its devices in it
    latest: dict[str, Round] = {}
    for each in history.rounds():
        begins.setdefault((each.node, each.round), each.start)
        latest[each.node] = each
    spans: defaultdict[str, dict[int, Span]] = defaultdict(dict)
    for metric in history.metrics(None, "train"):
        parent = history.nodes.get(metric.node, {}).get("parent")
        if parent and metric.round is not None:
            begin = begins.get((parent, metric.round))
        else:
            begin = None
        if begin is not None and metric.round is not None:
            spans[metric.node][metric.round] = (begin, max(begin, metric.t))
    for node, of in spans.items():
        led = latest[history.nodes[node]["parent"]]
        if led.end is None and led.round not in of:  # it has not reported yet
            of[led.round] = (begins[led.node, led.round], history.seconds)
    return {node: sorted(of.values()) for node, of in spans.items()}
