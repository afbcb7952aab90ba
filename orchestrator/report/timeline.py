"""The report's timeline: rounds, what nodes did, their faults, and when their hosts were available."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator import text
from orchestrator.report.activity import activities
from orchestrator.report.figures import FAULTS, LEAST, time_axis
from orchestrator.report.marks import Figure, Mark, axis, bars, figure, rounded
from orchestrator.results.facts import IN_ROUND, RUNNING, WAITING
from orchestrator.results.history import History
from orchestrator.results.presence import THERE, moves, nodes_by_host, stays

_STATES = (
    "starting",
    "registered",
    IN_ROUND,
    WAITING,
    RUNNING,
    "paused",
    "crashed",
    "restarting",
    "left",
    "failed",
)
STATES = {name: f"var(--state-{name.replace(' ', '-')})" for name in _STATES}
HOST_STATES = {THERE: "var(--many)", "lost": "var(--crash)", "unusable": "var(--state-failed)"}
ROUND = ("var(--round-even)", "var(--round-odd)")
ABANDONED = "var(--state-crashed)"
MOVED = "var(--moved)"
ALL_NODES = 40  # in larger runs, the timeline leaves out nodes to which nothing happened
THICK, THIN = 0.78, 0.3  # of a row

Period = tuple[list[float], str, str]  # its box, hover and text


class Bars:
    """Periods in rows of the timeline, in groups with these colours: a mark for each group that has any."""

    def __init__(
        self,
        colours: Mapping[str, str],
        began: float,
        thick: float = THICK,
    ) -> None:
        self._colours = colours
        self._began = began
        self._half = thick / 2
        self._periods: dict[str, list[Period]] = {group: [] for group in colours}

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
        if row is None or group not in self._periods:
            return
        left = start - self._began
        right = end - self._began
        box = rounded((left, right, row - self._half, row + self._half))
        self._periods[group].append((box, hover, text))

    def marks(self, prefix: str = "") -> Iterator[Mark]:
        for group, periods in self._periods.items():
            if not periods:
                continue
            boxes = []
            notes = []
            texts = []
            for box, hover, label in periods:
                boxes.append(box)
                notes.append(hover)
                texts.append(label)
            if not any(notes):
                notes = []
            if not any(texts):
                texts = []
            colour = self._colours[group]
            yield bars(f"{prefix}{group}", boxes, colour, notes=notes, texts=texts)


def timeline(history: History) -> tuple[Figure, int]:
    """The timeline: rounds of the coordinators above the nodes' states and faults; and the number of omitted nodes. In
    a run on several hosts each host has a row, and its nodes by the plan are below it."""
    began = history.training_began or 0.0
    counting = {row.node for row in history.rounds()}
    coordinators = [name for name in history.nodes if name in counting]
    rounds = {name: row for row, name in enumerate(coordinators)}
    shown = _shown(history)
    labels = [f"{name} rounds" for name in coordinators]
    rows: dict[str, int] = {}
    hosts: dict[str, int] = {}
    groups = nodes_by_host(history) or {"": shown}
    for host, nodes in groups.items():
        if host:
            hosts[host] = len(labels)
            labels.append(f"host {host}")
        for name in shown:
            if name in nodes:
                rows[name] = len(labels)
                labels.append(name)
    marks = [
        *_round_bars(history, rounds, began),
        *_host_bars(history, hosts, began),
        *_move_bars(history, hosts, rows, began),
        *_state_bars(history, rows, began),
        *_fault_bars(history, rows, began),
    ]
    first_rows = hosts.values() or [len(coordinators)]
    rules = [row - 0.5 for row in first_rows if 0 < row < len(labels)]
    if history.training_began is None:
        whole = None
    else:
        end = round(history.seconds - began, 3)
        whole = (0.0, max(end, 1e-3))
    x = axis(time_axis(history), range=whole)
    y = axis(labels=labels)
    pitch = 19 if len(labels) <= 45 else 13
    height = pitch * len(labels)
    drawn = figure("Rounds, nodes and faults over time", x, y, marks, height, rules=rules)
    return drawn, len(history.nodes) - len(shown)


def _shown(history: History) -> list[str]:
    """The nodes that get a row: all, or in a large run the leaders and the nodes to which something happened."""
    if len(history.nodes) <= ALL_NODES:
        return list(history.nodes)
    shown = set(history.leaders)
    for span in history.faults():
        if span.start is not None:
            shown |= set(span.nodes)
    usual = {"planned", "starting", "registered", "running", "done"}
    for state in history.states():
        if state.state not in usual:
            shown.add(state.node)
    return [name for name in history.nodes if name in shown]


def _round_bars(history: History, rows: dict[str, int], began: float) -> list[Mark]:
    colours = {"round": ROUND[0], "next round": ROUND[1], "abandoned round": ABANDONED}
    rounds = Bars(colours, began)
    for row, end in history.rounds_with_ends():
        if row.end is None:
            lasted = "did not end"
        else:
            lasted = text.duration(end - row.start)
        hover = f"{row.node}: round {row}, {lasted}"
        number = row.edge_round or row.round
        if row.abandoned:
            group = "abandoned round"
            hover += ", abandoned"
        elif number % 2:
            group = "next round"
        else:
            group = "round"
        rounds.add(group, rows[row.node], row.start, end, hover, str(number))
    marks = []
    for mark in rounds.marks():
        if mark["name"] != "abandoned round":
            mark["group"] = "rounds, every other darker"
        marks.append(mark)
    return marks


def _host_bars(history: History, rows: Mapping[str, int], began: float) -> Iterator[Mark]:
    states = Bars(HOST_STATES, began)
    for stay in stays(history):
        reason = f" ({stay.reason})" if stay.reason else ""
        lasted = text.duration(stay.end - stay.start)
        hover = f"host {stay.host}: {stay.state}{reason}, {lasted}"
        row = rows.get(stay.host)
        states.add(stay.state, row, stay.start, stay.end, hover)
    return states.marks("host ")


def _move_bars(
    history: History,
    hosts: Mapping[str, int],
    rows: Mapping[str, int],
    began: float,
) -> Iterator[Mark]:
    """The moments at which nodes moved to another host: in the rows of both hosts, and of the node."""
    moments = Bars({"node moves": MOVED}, began)
    width = LEAST * history.seconds
    for move in moves(history):
        source = hosts.get(move.source)
        target = hosts.get(move.target)
        for row in (source, target, rows.get(move.node)):
            moments.add("node moves", row, move.t, move.t + width, move.words)
    return moments.marks()


def _state_bars(history: History, rows: dict[str, int], began: float) -> Iterator[Mark]:
    states = Bars(STATES, began)
    for node, stretches in activities(history).items():
        row = rows.get(node)
        for stretch in stretches:
            if stretch.end <= stretch.start:
                continue
            hover = ""
            if stretch.detail:
                lasted = text.duration(stretch.end - stretch.start)
                hover = f"{node}: {stretch.what} ({stretch.detail}), {lasted}"
            states.add(stretch.what, row, stretch.start, stretch.end, hover)
    return states.marks()


def _fault_bars(history: History, rows: dict[str, int], began: float) -> Iterator[Mark]:
    faults = Bars(FAULTS, began, THIN)
    last = history.seconds
    for span in history.faults():
        if span.start is None:
            continue
        end = last if span.end is None else span.end
        end = max(end, span.start + LEAST * last)
        for node in span.nodes:
            faults.add(span.action, rows.get(node), span.start, end, str(span))
    return faults.marks()
