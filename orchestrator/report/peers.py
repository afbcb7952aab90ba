"""The figures of learning between edges: the edges whose models each edge merged into its own, from its events
``peers``, and the resulting accuracy on its own test set.

Each edge has a row along the time of training. A block from each meeting to the next shows the composition of the
edge's model after the meeting: a piece for each other edge, as high as its share. The rest is the edge's own share.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator import text
from orchestrator.report.figures import GLOBAL, SERIES, Figure, PlotTrace
from orchestrator.results.history import History
from orchestrator.results.rows import Event, Metric
from orchestrator.results.summary import finite

EVENT = "peers"
ROWS = 16  # with more edges, the figure is a table of all against all, without time
HEIGHT = 0.82  # of a row, for a share of 100 %
COLOURS = (*SERIES, GLOBAL, "#5d6673")  # the first ones are the edges' colours in the other figures


def meetings(history: History) -> dict[str, list[Event]]:
    """The meetings of each edge that had any, in order; only the last one of a round that a restart repeated."""
    rounds: defaultdict[str, dict[int | None, Event]] = defaultdict(dict)
    for event in history.events(EVENT):
        if event.node is not None:
            rounds[event.node][event.round] = event
    return {node: list(rounds[node].values()) for node in history.nodes if node in rounds}


def peers(history: History) -> Figure:
    """The figure of shares; without data if no edge reported a meeting."""
    of_edge = meetings(history)
    if len(of_edge) > ROWS:
        return _table(of_edge)
    began, end = history.training_began or 0.0, history.training_ended
    all_edges = [name for name, node in history.nodes.items() if node.get("tier") == "edge"]
    pieces = [piece for row, events in enumerate(of_edge.values()) for piece in _row(row, events, began, end)]
    layout = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": "seconds of training"}, "rangemode": "tozero"},
        "yaxis": {
            **{"tickvals": list(range(len(of_edge))), "ticktext": [html.escape(edge) for edge in of_edge]},
            **{"range": [len(of_edge) - 0.4, -0.6], "showgrid": False, "zeroline": False},
        },
        "hovermode": "closest",
        "showlegend": True,
    }
    return {"data": _merged(pieces, all_edges), "layout": layout, "height": 130 + 44 * len(of_edge)}


def own_accuracy(history: History) -> Figure:
    """The figure of accuracy, by round, of each edge that met others, on its own test set; without data if none did."""
    of_edge = meetings(history)
    rows: dict[str, list[Metric]] = {edge: [] for edge in of_edge}
    for metric in history.metrics("accuracy", "own"):
        if metric.node in rows:
            rows[metric.node].append(metric)
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": html.escape(edge),
            "x": [metric.round for metric in of],
            "y": [finite(round(metric.value, 4)) for metric in of],
            "line": {"width": 1.5, "color": COLOURS[place % len(COLOURS)]},
        }
        for place, (edge, of) in enumerate(rows.items())
        if of
    ]
    layout = {
        "xaxis": {"title": {"text": "round"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "accuracy on own test set"}, "tickformat": ".0%"},
        "hovermode": "closest",
        "showlegend": len(traces) <= len(COLOURS),
    }
    return {"data": traces, "layout": layout, "height": 300}


def _row(row: int, events: Sequence[Event], began: float, end: float) -> Iterable[dict[str, Any]]:
    """A bar for each piece of each block. x is its middle and base its upper end, since rows count downwards."""
    times = [event.t for event in events] + [max(end, events[-1].t)]
    for event, until in zip(events, times[1:], strict=True):
        top = row - HEIGHT / 2
        for peer, share in sorted(event.data.get("shares", {}).items()):
            yield {
                "peer": peer,
                "x": round((event.t + until) / 2 - began, 3),
                "width": round(max(until - event.t, 0.004 * end), 3),
                "base": round(top, 4),
                "y": round(HEIGHT * share, 4),
                "hover": _hover(event, peer, share),
            }
            top += HEIGHT * share


def _hover(event: Event, peer: str, share: float) -> str:
    said = f"{event.node}, round {event.round}: {text.percent(share)} from {peer}"
    if peer in (queue := event.data.get("queue", {})):
        version, age, divergence, weight = queue[peer]
        said += f" (version {version}, age {age}, KL {divergence:.4f}, weight {weight:.3f})"
    return html.escape(said)


def _merged(pieces: Iterable[dict[str, Any]], edges: Sequence[str]) -> list[PlotTrace]:
    """One trace, and so one legend entry, per edge that others learned from. Colours repeat if there are too few."""
    by_peer: dict[str, list[dict[str, Any]]] = {edge: [] for edge in edges}
    for piece in pieces:
        by_peer.setdefault(piece["peer"], []).append(piece)
    return [
        {
            "type": "bar",
            "name": html.escape(peer),
            **{key: [piece[key] for piece in of] for key in ("x", "width", "base", "y")},
            "hovertext": [piece["hover"] for piece in of],
            "hoverinfo": "text",
            "marker": {"color": COLOURS[place % len(COLOURS)], "line": {"width": 0}},
        }
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
    trace = {
        "type": "heatmap",
        "x": [html.escape(edge) for edge in edges],
        "y": [html.escape(edge) for edge in edges],
        "z": [[round(share, 4) for share in row] for row in rows],
        "colorscale": [[0, "rgba(47,109,179,0)"], [1, GLOBAL]],
        "hovertemplate": "%{y} took %{z:.1%} from %{x} on average<extra></extra>",
    }
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "learned from"}, "type": "category", "showgrid": False},
        "yaxis": {"title": {"text": "who learned"}, "type": "category", "autorange": "reversed", "showgrid": False},
        "showlegend": False,
    }
    return {"data": [trace], "layout": layout, "height": 130 + min(14 * len(edges), 900)}
