"""The report's figures, as plain data for plotly.js (plotly.com/javascript/reference).

Times on the axes are seconds since the training began, as in the scenario's faults. The page sets the colours of text
and grid, so that they follow its light or dark scheme.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator import text
from orchestrator.results.history import History
from orchestrator.results.rows import Metric, State
from orchestrator.results.summary import finite

Figure = dict[str, Any]
PlotTrace = dict[str, Any]

GLOBAL = "#2f6db3"
SERIES = ("#d98032", "#4f9d69", "#a0679c", "#c05a5a", "#5b9aa8", "#9a7b4f", "#7a86c2", "#8a9a3c")
MANY_SERIES = "#9aa4b1"
LINKS = {"device-edge": "#3f9486", "edge-cloud": "#7568b8", "edge-edge": "#d98032", "device-cloud": "#2f6db3"}
STATES = {
    "starting": "#cdd2da",
    "registered": "#b9c8da",
    "running": "#a5cbaa",
    "paused": "#e8c565",
    "crashed": "#dd8578",
    "restarting": "#ecb9a6",
    "left": "#c4c7cc",
    "failed": "#a8463c",
}
FAULTS = {
    "crash": "#b5382c",
    "pause": "#b98900",
    "disconnect": "#8650ad",
    "partition": "#5a4fc0",
    "degrade": "#2a7f9e",
    "slow": "#8c6d46",
    "join": "#2f8f4e",
    "leave": "#6b6f76",
}
ROUND = ("#6f9fd0", "#a9c6e4")
ABANDONED = "#dd8578"
ALL_NODES = 40  # in larger runs, the timeline leaves out nodes to which nothing happened
BANDS = 8  # with more faults, none are drawn over the curves


def curves(history: History, name: str, *, against: str) -> Figure:
    """A metric of the global model and of each edge, against "time" or "rounds"."""
    series = history.edge_series(name)
    began = history.training_began or 0.0
    traces = [_curve(label, rows, began, against, colour) for (label, rows), colour in _coloured(series)]
    overall = history.global_series(name)
    if overall:
        traces.append(_curve("global", overall, began, against, GLOBAL, width=3))
    _thin_legend(traces, len(series))
    layout = {
        "xaxis": {"title": {"text": _time(history) if against == "time" else "round"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": name}} | ({"tickformat": ".0%"} if name == "accuracy" else {"rangemode": "tozero"}),
        "hovermode": "x unified" if len(traces) <= 12 else "closest",
        "showlegend": len(traces) > 1,
        "shapes": _bands(history, began) if against == "time" else [],
    }
    return {"data": traces, "layout": layout, "height": 300}


def _time(history: History) -> str:
    return "seconds of the run" if history.training_began is None else "seconds of training"


def _coloured(series: dict[str, list[Metric]]) -> Iterable[tuple[tuple[str, list[Metric]], str]]:
    colours = SERIES if len(series) <= len(SERIES) else (MANY_SERIES,) * len(series)
    return zip(series.items(), colours, strict=False)


def _curve(
    label: str, rows: Sequence[Metric], began: float, against: str, colour: str, width: float = 1.5
) -> PlotTrace:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(rows) <= 60 else "lines",
        "name": html.escape(label),
        "x": [round(row.t - began, 3) if against == "time" else row.round for row in rows],
        "y": [finite(row.value) for row in rows],
        "line": {"color": colour, "width": width},
        "marker": {"size": 4 if width < 2 else 6},
    }


def _thin_legend(traces: list[PlotTrace], edges: int) -> None:
    """Give edges one common legend entry if there are many."""
    if edges <= len(SERIES):
        return
    for index, trace in enumerate(traces[:edges]):
        trace |= {"legendgroup": "edges", "showlegend": index == 0, "hoverinfo": "x+y+text", "hovertext": trace["name"]}
        trace |= {"name": f"{edges} edges", "opacity": 0.6, "mode": "lines"}


def _bands(history: History, began: float) -> list[dict[str, Any]]:
    """A shade over the curves for each fault with a planned time."""
    spans = [span for span in history.faults() if span.start is not None and span.planned.get("at") is not None]
    if len(spans) > BANDS:
        return []
    last = history.seconds
    heights = ("top left", "middle left", "bottom left")  # so that labels of overlapping faults do not overlap
    return [
        {
            "type": "rect",
            "yref": "paper",
            **{"x0": (span.start or 0.0) - began, "x1": (span.end or last) - began, "y0": 0, "y1": 1},
            **{"fillcolor": FAULTS.get(span.action, MANY_SERIES), "opacity": 0.1, "line": {"width": 0}},
            "label": {"text": span.action, "textposition": heights[index % 3], "font": {"size": 10}},
        }
        for index, span in enumerate(spans)
    ]


@dataclass(frozen=True)
class Bar:
    """A period in one row of the timeline."""

    row: int
    start: float
    end: float
    hover: str
    text: str = ""


def timeline(history: History) -> tuple[Figure, int]:
    """The timeline: rounds of the coordinators above the nodes' states and faults; and the number of omitted nodes."""
    began = history.training_began or 0.0
    counting = {each.node for each in history.rounds()}
    coordinators = [name for name in history.nodes if name in counting]
    shown = _shown(history)
    labels = [f"{name} rounds" for name in coordinators] + shown
    rows = {name: len(coordinators) + index for index, name in enumerate(shown)}
    pitch = 19 if len(labels) <= 45 else 13
    traces = [
        *_round_bars(history, {name: index for index, name in enumerate(coordinators)}, began, numbered=pitch > 13),
        *_state_bars(history, rows, began),
        *_fault_bars(history, rows, began),
    ]
    divider = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1, "color": MANY_SERIES}}
    at = len(coordinators) - 0.5
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": {"title": {"text": _time(history)}, "zeroline": True},
        "yaxis": {
            **{"tickvals": list(range(len(labels))), "ticktext": [html.escape(label) for label in labels]},
            **{"range": [len(labels) - 0.4, -0.6], "tickfont": {"size": 11 if pitch > 15 else 9}},
            **{"showgrid": False, "zeroline": False},
        },
        "hovermode": "closest",
        "showlegend": True,
        "shapes": [{**divider, "y0": at, "y1": at}] if coordinators and shown else [],
    }
    return {"data": traces, "layout": layout, "height": 130 + pitch * len(labels)}, len(history.nodes) - len(shown)


def _shown(history: History) -> list[str]:
    """The nodes that get a row: all, or in a large run the leaders and the nodes to which something happened."""
    if len(history.nodes) <= ALL_NODES:
        return list(history.nodes)
    touched = {node for span in history.faults() if span.start is not None for node in span.nodes}
    usual = {"planned", "starting", "registered", "running", "done"}
    touched |= {state.node for state in history.states() if state.state not in usual}
    return [name for name in history.nodes if name in touched or name in history.leaders]


def _round_bars(history: History, rows: dict[str, int], began: float, *, numbered: bool) -> list[PlotTrace]:
    groups: dict[str, list[Bar]] = {"round": [], "next round": [], "abandoned round": []}
    rounds = history.rounds()
    begun_next = dict.fromkeys(rows, history.seconds)  # the start of each node's next round, or the end of the run
    ends: list[float] = []
    for each in reversed(rounds):
        ends.append(begun_next[each.node] if each.end is None else each.end)
        begun_next[each.node] = each.start
    for each, end in zip(rounds, reversed(ends), strict=True):
        lasted = "did not end" if each.end is None else text.duration(end - each.start)
        hover = f"{html.escape(each.node)}: round {each}, {lasted}{', abandoned' if each.abandoned else ''}"
        group = "abandoned round" if each.abandoned else ("round", "next round")[(each.edge_round or each.round) % 2]
        number = str(each.edge_round or each.round) if numbered else ""
        groups[group].append(Bar(rows[each.node], each.start - began, end - began, hover, number))
    colours = (*ROUND, ABANDONED)
    traces = [_bars(name, bars, colour, 0.78) for (name, bars), colour in zip(groups.items(), colours, strict=True)]
    traces[1]["showlegend"] = False
    return [trace for trace in traces if trace["x"]]


def _state_bars(history: History, rows: dict[str, int], began: float) -> list[PlotTrace]:
    by_node: defaultdict[str, list[State]] = defaultdict(list)
    for state in history.states():
        by_node[state.node].append(state)
    groups: dict[str, list[Bar]] = {state: [] for state in STATES}
    last = history.seconds
    for node, states in by_node.items():
        ends = [state.t for state in states[1:]] + [last]
        for state, end in zip(states, ends, strict=True):
            if node in rows and state.state in groups and end > state.t:
                detail = f" ({html.escape(state.detail)})" if state.detail else ""
                hover = f"{html.escape(node)}: {state.state}{detail}, {text.duration(end - state.t)}"
                groups[state.state].append(Bar(rows[node], state.t - began, end - began, hover))
    return [_bars(name, bars, STATES[name], 0.78) for name, bars in groups.items() if bars]


def _fault_bars(history: History, rows: dict[str, int], began: float) -> list[PlotTrace]:
    groups: dict[str, list[Bar]] = {action: [] for action in FAULTS}
    last = history.seconds
    for span in history.faults():
        if span.start is None or span.action not in groups:
            continue
        end = last if span.end is None else span.end
        least = span.start + 0.004 * last  # a minimum width, so that instants are visible
        length = f", {text.duration(end - span.start)}" if span.end is not None else ""
        hover = f"{span.action} {html.escape(span.target)}{length}"
        for node in span.nodes:
            if node in rows:
                bar = Bar(rows[node], span.start - began, max(end, least) - began, hover)
                groups[span.action].append(bar)
    return [_bars(name, bars, FAULTS[name], 0.3) for name, bars in groups.items() if bars]


def _bars(name: str, bars: Sequence[Bar], colour: str, width: float) -> PlotTrace:
    trace = {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [bar.row for bar in bars],
        "base": [round(bar.start, 3) for bar in bars],
        "x": [round(bar.end - bar.start, 3) for bar in bars],
        "width": width,
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertext": [bar.hover for bar in bars],
        "hoverinfo": "text",
    }
    if any(bar.text for bar in bars):
        trace |= {"text": [bar.text for bar in bars], "textposition": "inside", "insidetextanchor": "middle"}
        trace |= {"textangle": 0, "textfont": {"color": "#1d2b3a", "size": 10}}
    return trace


def traffic(history: History) -> Figure:
    """The bytes of sent messages, by link class and kind."""
    sent: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for row in history.traffic():
        if row.direction == "sent":
            link_class = history.link_classes.get((row.node, row.peer), "no link")
            sent[row.kind][link_class][0] += row.bytes
            sent[row.kind][link_class][1] += row.messages
    classes = sorted({name for by_class in sent.values() for name in by_class})
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": html.escape(kind),
            "y": classes,
            "x": [by_class[name][0] if name in by_class else 0 for name in classes],
            "hovertext": [
                f"{html.escape(kind)}: {text.size(by_class[name][0])}, {text.count(by_class[name][1], 'message')}"
                if name in by_class
                else ""
                for name in classes
            ],
            "hoverinfo": "text",
            "marker": {"color": colour},
        }
        for (kind, by_class), colour in zip(sorted(sent.items()), _cycle(len(sent)), strict=True)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "bytes in messages sent"}, "tickformat": ".2~s", "ticksuffix": "B"},
        "yaxis": {"autorange": "reversed", "showgrid": False, "type": "category"},
        "showlegend": True,
        "legend": {"traceorder": "normal"},
    }
    return {"data": traces, "layout": layout, "height": 130 + 42 * max(1, len(classes))}


def _cycle(number: int) -> list[str]:
    colours = (GLOBAL, *SERIES)
    return [colours[index % len(colours)] for index in range(number)]


def link_colour(link_class: str) -> str:
    """The colour of a link class: its own, or one derived from its name."""
    return LINKS.get(link_class) or SERIES[sum(link_class.encode()) % len(SERIES)]
