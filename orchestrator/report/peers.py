"""The figures of learning between edges: the edges whose models each edge merged into its own, from its events
``peers``, and the resulting accuracy on its own test set.

Each edge has a row along the time of training. A block from each meeting to the next shows the composition of the
edge's model after the meeting: a piece for each other edge, as high as its share. The rest is the edge's own share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from orchestrator import text
from orchestrator.record.events.nodes import PeerShares
from orchestrator.record.rows import Event, Metric
from orchestrator.report.figures import GLOBAL, LEAST, MANY_SERIES, SERIES
from orchestrator.report.marks import Figure, Mark, axis, bars, figure, line, rounded
from orchestrator.results.history import History

ROWS = 16  # with more edges, the figure is a table of all against all, without time
HEIGHT = 0.82  # of a row, for a share of 100 %
COLOURS = (*SERIES, GLOBAL, MANY_SERIES)  # the first ones are the edges' colours in the other figures

Piece = tuple[str, Sequence[float], str]  # an edge, the box of its share, and a note


def meetings(history: History) -> dict[str, list[Event]]:
    """The meetings of each edge that had any, in order; only the last one of a round that a restart repeated."""
    rounds: defaultdict[str, dict[int | None, Event]] = defaultdict(dict)
    for event in history.events(PeerShares.NAME):
        if event.node is not None:
            rounds[event.node][event.round] = event
    by_edge = {}
    for node in history.nodes:
        if node in rounds:
            by_edge[node] = list(rounds[node].values())
    return by_edge


def peers(history: History) -> Figure:
    """The figure of shares; without data if no edge reported a meeting."""
    by_edge = meetings(history)
    if len(by_edge) > ROWS:
        return _table(by_edge)
    began = history.training_began or 0.0
    end = history.training_ended
    all_edges = []
    for name, node in history.nodes.items():
        if node.get("tier") == "edge":
            all_edges.append(name)
    pieces: list[Piece] = []
    for row, events in enumerate(by_edge.values()):
        pieces += _row(row, events, began, end)
    marks = _merged(pieces, all_edges)
    x = axis("seconds of training", zero=True)
    y = axis(labels=list(by_edge))
    title = "Shares of the other edges' models in each edge's own"
    return figure(title, x, y, marks, 44 * len(by_edge))


def own_accuracy(history: History) -> Figure:
    """The figure of accuracy, by round, of each edge that met others, on its own test set; without data if none did."""
    by_edge: dict[str, list[Metric]] = {edge: [] for edge in meetings(history)}
    for metric in history.metrics("accuracy", "own"):
        if metric.node in by_edge:
            by_edge[metric.node].append(metric)
    curves = []
    for place, (edge, metrics) in enumerate(by_edge.items()):
        if metrics:
            rounds = []
            values = []
            for metric in metrics:
                rounds.append(metric.round)
                values.append(round(metric.value, 4))
            curves.append(line(edge, rounds, values, _colour(place)))
    if len(curves) > len(COLOURS):
        group = f"{len(curves)} edges"
        curves = [curve | {"group": group} for curve in curves]
    x = axis("round", zero=True)
    y = axis("accuracy on own test set", format="percent")
    return figure("Accuracy of each edge on its own test set", x, y, curves, 230, hover="x")


def _colour(place: int) -> str:
    """The colour of an edge by its place. Colours repeat if there are too few."""
    return COLOURS[place % len(COLOURS)]


def _row(
    row: int,
    events: Sequence[Event],
    began: float,
    end: float,
) -> Iterator[Piece]:
    """The pieces of each block, from the top of the row downwards."""
    ends = [event.t for event in events[1:]]
    ends.append(max(end, events[-1].t))
    for event, next_meeting in zip(events, ends, strict=True):
        until = max(next_meeting, event.t + LEAST * end)
        times = rounded((event.t - began, until - began))
        top = row - HEIGHT / 2
        shares = event.data.get("shares", {})
        for peer, share in sorted(shares.items()):
            heights = rounded((top, top + HEIGHT * share), 4)
            yield peer, (*times, *heights), _hover(event, peer, share)
            top += HEIGHT * share


def _hover(event: Event, peer: str, share: float) -> str:
    words = f"{event.node}, round {event.round}: {text.percent(share)} from {peer}"
    queue = event.data.get("queue", {})
    if peer not in queue:
        return words
    version, age, divergence, weight = queue[peer]
    return f"{words} (version {version}, age {age}, KL {divergence:.4f}, weight {weight:.3f})"


def _merged(pieces: Iterable[Piece], edges: Sequence[str]) -> list[Mark]:
    """One mark, and so one legend entry, per edge that others learned from."""
    by_peer: dict[str, list[Piece]] = {edge: [] for edge in edges}
    for piece in pieces:
        by_peer.setdefault(piece[0], []).append(piece)
    marks = []
    for place, (peer, pieces_of_peer) in enumerate(by_peer.items()):
        if pieces_of_peer:
            boxes = []
            notes = []
            for _, box, note in pieces_of_peer:
                boxes.append(box)
                notes.append(note)
            marks.append(bars(peer, boxes, _colour(place), notes=notes))
    return marks


def _table(by_edge: dict[str, list[Event]]) -> Figure:
    """A table of every edge against every other: the mean share over an edge's meetings."""
    edges = list(by_edge)
    boxes = []
    notes = []
    opacity = []
    for row, (edge, events) in enumerate(by_edge.items()):
        for column, peer in enumerate(edges):
            share = _mean_share(events, peer)
            if share:
                boxes.append((column - 0.5, column + 0.5, row - 0.5, row + 0.5))
                notes.append(f"{edge} took {share:.1%} from {peer} on average")
                opacity.append(round(share, 4))
    table = bars("", boxes, GLOBAL, notes=notes, opacity=opacity)
    x = axis("learned from", labels=edges)
    y = axis("who learned", labels=edges)
    height = min(14 * len(edges), 900)
    return figure("Mean shares of the edges' models in one another", x, y, [table], height)


def _mean_share(events: Sequence[Event], peer: str) -> float:
    shares: list[float] = []
    for event in events:
        shares_of_meeting = event.data.get("shares", {})
        shares.append(shares_of_meeting.get(peer, 0.0))
    return sum(shares) / len(events)
