"""The report's timeline: rounds, what nodes did, their faults, and when their hosts were there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator import text
from orchestrator.report.activity import activities
from orchestrator.report.figures import FAULTS, LEAST, time_axis
from orchestrator.report.marks import Figure, Mark, axis, bars, figure, rounded
from orchestrator.results.facts import IN_ROUND, RUNNING, WAITING
from orchestrator.results.history import History
from orchestrator.results.presence import THERE, moves, nodes_by_host, stays

STATES = {
    name: f"var(--state-{name.replace(' ', '-')})"
    for name in (
        *("starting", "registered", IN_ROUND, WAITING, RUNNING),
        *("paused", "crashed", "restarting", "left", "failed"),
    )
}
HOST_STATES = {THERE: "var(--many)", "lost": "var(--crash)", "unusable": "var(--state-failed)"}
ROUND = ("var(--round-even)", "var(--round-odd)")
ABANDONED = "var(--state-crashed)"
MOVED = "var(--moved)"
ALL_NODES = 40  # in larger runs, the timeline leaves out nodes to which nothing happened
THICK, THIN = 0.78, 0.3  # of a row


class Bars:
    """Periods in rows of the timeline, in groups with these colours: a mark for each group that has any."""

    def __init__(self, colours: Mapping[str, str], began: float, thick: float = THICK) -> None:
        self._colours = colours
        self._began = began
        self._half = thick / 2
        self._of: dict[str, list[tuple[list[float], str, str]]] = {group: [] for group in colours}

    def add(
        self,
        group: str,
        row: int | None,
        start: float,
        end: float,
        hover: str,
        text: str = "",
    ) -> None:
        """Times are those of the record. A period without a row, or of no group, is left out."""
        if row is not None and group in self._of:
            box = rounded((start - self._began, end - self._began, row - self._half, row + self._half))
            self._of[group].append((box, hover, text))

    def marks(self, prefix: str = "") -> Iterator[Mark]:
        for group, of in self._of.items():
            if of:
                boxes, hovers, texts = zip(*of, strict=True)
                more = {"notes": hovers if any(hovers) else (), "texts": texts if any(texts) else ()}
                yield bars(f"{prefix}{group}", boxes, self._colours[group], **more)


def timeline(history: History) -> tuple[Figure, int]:
    """The timeline: rounds of the coordinators above the nodes' states and faults; and the number of omitted nodes. In
    a run on several hosts each host has a row, and its nodes by the plan are below it."""
    began = history.training_began or 0.0
    counting = {each.node for each in history.rounds()}
    coordinators = [name for name in history.nodes if name in counting]
    shown = _shown(history)
    labels = [f"{name} rounds" for name in coordinators]
    rows: dict[str, int] = {}
    hosts: dict[str, int] = {}
    for host, nodes in (nodes_by_host(history) or {"": shown}).items():
        if host:
            hosts[host] = len(labels)
            labels.append(f"host {host}")
        for name in shown:
            if name in nodes:
                rows[name] = len(labels)
                labels.append(name)
    pitch = 19 if len(labels) <= 45 else 13
    marks = [
        *_round_bars(history, {name: index for index, name in enumerate(coordinators)}, began),
        *_host_bars(history, hosts, began),
        *_move_bars(history, hosts, rows, began),
        *_state_bars(history, rows, began),
        *_fault_bars(history, rows, began),
    ]
    rules = [row - 0.5 for row in (hosts.values() or (len(coordinators),)) if 0 < row < len(labels)]
    if history.training_began is None:
        whole = None
    else:
        whole = (0.0, max(round(history.seconds - began, 3), 1e-3))
    x = axis(time_axis(history), range=whole)
    drawn = figure(
        "Rounds, nodes and faults over time", x, axis(labels=labels), marks, pitch * len(labels), rules=rules
    )
    return drawn, len(history.nodes) - len(shown)


def _shown(history: History) -> list[str]:
    """The nodes that get a row: all, or in a large run the leaders and the nodes to which something happened."""
    if len(history.nodes) <= ALL_NODES:
        return list(history.nodes)
    touched = {node for span in history.faults() if span.start is not None for node in span.nodes}
    usual = {"planned", "starting", "registered", "running", "done"}
    touched |= {state.node for state in history.states() if state.state not in usual}
    return [name for name in history.nodes if name in touched or name in history.leaders]


def _round_bars(history: History, rows: dict[str, int], began: float) -> list[Mark]:
    found = Bars({"round": ROUND[0], "next round": ROUND[1], "abandoned round": ABANDONED}, began)
    for each, end in history.rounds_with_ends():
        if each.end is None:
            lasted = "did not end"
        else:
            lasted = text.duration(end - each.start)
        hover = f"{each.node}: round {each}, {lasted}{', abandoned' if each.abandoned else ''}"
        number = each.edge_round or each.round
        if each.abandoned:
            group = "abandoned round"
        else:
            group = ("round", "next round")[number % 2]
        found.add(group, rows[each.node], each.start, end, hover, str(number))
    alternating = {"group": "rounds, every other darker"}
    return [mark if mark["name"] == "abandoned round" else mark | alternating for mark in found.marks()]


def _host_bars(history: History, rows: Mapping[str, int], began: float) -> Iterator[Mark]:
    found = Bars(HOST_STATES, began)
    for stay in stays(history):
        reason = f" ({stay.reason})" if stay.reason else ""
        hover = f"host {stay.host}: {stay.state}{reason}, {text.duration(stay.end - stay.start)}"
        found.add(stay.state, rows.get(stay.host), stay.start, stay.end, hover)
    return found.marks("host ")


def _move_bars(history: History, hosts: Mapping[str, int], rows: Mapping[str, int], began: float) -> Iterator[Mark]:
    """The moments at which nodes moved to another host: in the rows of both hosts, and of the node."""
    found = Bars({"node moves": MOVED}, began)
    for move in moves(history):
        for row in (hosts.get(move.source), hosts.get(move.target), rows.get(move.node)):
            found.add("node moves", row, move.t, move.t + LEAST * history.seconds, move.words)
    return found.marks()


def _state_bars(history: History, rows: dict[str, int], began: float) -> Iterator[Mark]:
    found = Bars(STATES, began)
    for node, stretches in activities(history).items():
        for each in stretches:
            if each.end > each.start:
                hover = f"{node}: {each.what} ({each.detail}), {text.duration(each.end - each.start)}"
                found.add(each.what, rows.get(node), each.start, each.end, hover * bool(each.detail))
    return found.marks()


def _fault_bars(history: History, rows: dict[str, int], began: float) -> Iterator[Mark]:
    found = Bars(FAULTS, began, THIN)
    last = history.seconds
    for span in history.faults():
        if span.start is not None:
            end = max(last if span.end is None else span.end, span.start + LEAST * last)
            for node in span.nodes:
                found.add(span.action, rows.get(node), span.start, end, str(span))
    return found.marks()
