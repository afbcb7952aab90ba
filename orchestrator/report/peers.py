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
    return {node: list(rounds[node].values()) for node in history.nodes if node in rounds}


def peers(history: History) -> Figure:
    """The figure of shares; without data if no edge reported a meeting."""
    of_edge = meetings(history)
    if len(of_edge) > ROWS:
        return _table(of_edge)
    began = history.training_began or 0.0
    end = history.training_ended
    all_edges = [name for name, node in history.nodes.items() if node.get("tier") == "edge"]
    pieces = [piece for row, events in enumerate(of_edge.values()) for piece in _row(row, events, began, end)]
    x = axis("seconds of training", zero=True)
    y = axis(labels=list(of_edge))
    return figure(
        "Shares of the other edges' models in each edge's own", x, y, _merged(pieces, all_edges), 44 * len(of_edge)
    )


def own_accuracy(history: History) -> Figure:
    """The figure of accuracy, by round, of each edge that met others, on its own test set; without data if none did."""
    of_edge = meetings(history)
    rows: dict[str, list[Metric]] = {edge: [] for edge in of_edge}
    for metric in history.metrics("accuracy", "own"):
        if metric.node in rows:
            rows[metric.node].append(metric)
    curves = [
        line(
            edge,
            [metric.round for metric in of],
            [round(metric.value, 4) for metric in of],
            COLOURS[place % len(COLOURS)],
        )
        for place, (edge, of) in enumerate(rows.items())
        if of
    ]
    if len(curves) > len(COLOURS):
        curves = [curve | {"group": f"{len(curves)} edges"} for curve in curves]
    x = axis("round", zero=True)
    y = axis("accuracy on own test set", format="percent")
    return figure("Accuracy of each edge on its own test set", x, y, curves, 230, hover="x")


def _row(row: int, events: Sequence[Event], began: float, end: float) -> Iterator[Piece]:
    """The pieces of each block, from the top of the row downwards."""
    ends = [*(event.t for event in events[1:]), max(end, events[-1].t)]
    for event, until in zip(events, ends, strict=True):
        top = row - HEIGHT / 2
        for peer, share in sorted(event.data.get("shares", {}).items()):
            times = rounded((event.t - began, max(until, event.t + LEAST * end) - began))
            heights = rounded((top, top + HEIGHT * share), 4)
            yield peer, (*times, *heights), _hover(event, peer, share)
            top += HEIGHT * share


def _hover(event: Event, peer: str, share: float) -> str:
    said = f"{event.node}, round {event.round}: {text.percent(share)} from {peer}"
    if peer in (queue := event.data.get("queue", {})):
        version, age, divergence, weight = queue[peer]
        said += f" (version {version}, age {age}, KL {divergence:.4f}, weight {weight:.3f})"
    return said


def _merged(pieces: Iterable[Piece], edges: Sequence[str]) -> list[Mark]:
    """One mark, and so one legend entry, per edge that others learned from. Colours repeat if there are too few."""
    by_peer: dict[str, list[Piece]] = {edge: [] for edge in edges}
    for piece in pieces:
        by_peer.setdefault(piece[0], []).append(piece)
    return [
        bars(peer, [box for _, box, _ in of], COLOURS[place % len(COLOURS)], notes=[note for *_, note in of])
        for place, (peer, of) in enumerate(by_peer.items())
        if of
    ]


def _table(of_edge: dict[str, list[Event]]) -> Figure:
    """A table of every edge against every other: the mean share over an edge's meetings."""
    edges = list(of_edge)
    rows = [
        [sum(event.data.get("shares", {}).get(peer, 0.0) for event in events) / len(events) for peer in edges]
        for events in of_edge.values()
    ]
    fields = [(column, row, share) for row, shares in enumerate(rows) for column, share in enumerate(shares) if share]
    table = bars(
        "",
        [(column - 0.5, column + 0.5, row - 0.5, row + 0.5) for column, row, _ in fields],
        GLOBAL,
        notes=[f"{edges[row]} took {share:.1%} from {edges[column]} on average" for column, row, share in fields],
        opacity=[round(share, 4) for _, _, share in fields],
    )
    x = axis("learned from", labels=edges)
    y = axis("who learned", labels=edges)
    return figure("Mean shares of the edges' models in one another", x, y, [table], min(14 * len(edges), 900))
