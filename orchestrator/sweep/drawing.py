"""The figures of a sweep's page, as plain data for plotly.js. See `orchestrator.report.figures`."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator import text
from orchestrator.report.figures import GLOBAL, SERIES, Figure, PlotTrace, link_colour
from orchestrator.sweep.curves import Band
from orchestrator.sweep.figures import Figures, Spread, spreads
from orchestrator.sweep.tables import Write, spread_in_words

_COLOURS = (GLOBAL, *SERIES)
_DASHES = ("solid", "dash", "dot", "dashdot")
_LABEL = 30  # characters of a line of a bar's label
_LINE = 15  # pixels of a line of a bar's label
_ROOM = 1.6  # of the longest bar: the width of the axis, with room for the figure beside the bar


@dataclass(frozen=True)
class Look:
    """How a case is drawn."""

    case: str
    colour: str
    dash: str


def looks(cases: Sequence[str]) -> list[Look]:
    """A colour for each case; if there are more cases than colours, other dashes tell them apart."""
    return [
        Look(case, _COLOURS[place % len(_COLOURS)], _DASHES[place // len(_COLOURS) % len(_DASHES)])
        for place, case in enumerate(cases)
    ]


def curves(cases: Sequence[Look], bands: Sequence[Band | None], axis: str) -> Figure:
    """The mean accuracy of each case, over a band from its lowest to its highest run."""
    drawn = [(look, band) for look, band in zip(cases, bands, strict=True) if band is not None]
    traces = [_range(look, band) for look, band in drawn if band.low != band.high]
    traces += [_mean(look, band) for look, band in drawn]
    layout = {
        "xaxis": {"title": {"text": axis}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "accuracy"}, "tickformat": ".0%"},
        "hovermode": "closest",
        "showlegend": False,
    }
    return {"data": traces, "layout": layout, "height": 380}


def _range(look: Look, band: Band) -> PlotTrace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*band.x, *reversed(band.x)],
        "y": _rounded([*band.high, *reversed(band.low)]),
        "fill": "toself",
        "fillcolor": look.colour,
        "opacity": 0.18,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _mean(look: Look, band: Band) -> PlotTrace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(look.case),
        "x": [round(x, 3) for x in band.x],
        "y": _rounded(band.mean),
        "line": {"color": look.colour, "width": 2, "dash": look.dash},
        "hovertext": [
            f"{html.escape(look.case)}: {text.percent(mean)} ({text.percent(low)} to {text.percent(high)})"
            for mean, low, high in zip(band.mean, band.low, band.high, strict=True)
        ],
        "hoverinfo": "x+text",
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in values]


def bars(cases: Sequence[Look], runs: Mapping[str, Sequence[Figures]], figure: str, axis: str, write: Write) -> Figure:
    """The mean of a figure for each case, with an error bar from the lowest to the highest run."""
    values = [[each[figure] for each in runs[look.case] if figure in each] for look in cases]
    means = [sum(of) / len(of) if of else 0.0 for of in values]
    highs = [max(of, default=0.0) for of in values]
    lows = [min(of, default=0.0) for of in values]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(cases))),
        "x": means,
        "marker": {"color": [look.colour for look in cases]},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [high - mean for high, mean in zip(highs, means, strict=True)],
            "arrayminus": [mean - low for low, mean in zip(lows, means, strict=True)],
            "thickness": 1.2,
            "width": 4,
            "color": "#8d99a7",
        },
        "hoverinfo": "skip",
    }
    said = [_said(spreads(runs[look.case]).get(figure), len(runs[look.case]), write) for look in cases]
    return _horizontal(cases, [bar, _beside(highs, said)], max(highs, default=0.0), axis)


def stacked(cases: Sequence[Look], runs: Mapping[str, Sequence[Figures]], prefix: str, axis: str) -> Figure:
    """The mean bytes of each case, stacked by class of links."""
    found = {look.case: spreads(runs[look.case]) for look in cases}
    names = sorted({name for each in found.values() for name in each if name.startswith(prefix) and each[name].mean})
    traces: list[PlotTrace] = []
    for name in names:
        means = [of[name].mean if name in of else 0.0 for of in found.values()]
        link_class = html.escape(name.removeprefix(prefix))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": link_class,
                "y": list(range(len(cases))),
                "x": means,
                "marker": {"color": link_colour(name.removeprefix(prefix))},
                "hovertext": [f"{link_class}: {text.size(mean)}" for mean in means],
                "hoverinfo": "text",
            }
        )
    totals = [sum(of[name].mean for name in names if name in of) for of in found.values()]
    said = [text.size(total) if total else "not reached" for total in totals]
    figure = _horizontal(cases, [*traces, _beside(totals, said)] if traces else [], max(totals, default=0.0), axis)
    figure["layout"] |= {"barmode": "stack", "showlegend": True, "legend": {"traceorder": "normal"}}
    figure["layout"]["xaxis"] |= {"tickformat": ".2~s", "ticksuffix": "B"}
    return figure


def _said(spread: Spread | None, runs: int, write: Write) -> str:
    if spread is None:
        return "not reached"
    return spread_in_words(spread, write, runs)


def _beside(places: Sequence[float], said: Sequence[str]) -> PlotTrace:
    """A text at the right of each bar."""
    return {
        "type": "scatter",
        "mode": "text",
        "y": list(range(len(places))),
        "x": list(places),
        "text": [f" {each}" for each in said],
        "textposition": "middle right",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _horizontal(cases: Sequence[Look], traces: list[PlotTrace], longest: float, axis: str) -> Figure:
    labels = [textwrap.wrap(look.case, _LABEL, break_on_hyphens=False) or [""] for look in cases]
    layout = {
        "xaxis": {"title": {"text": axis}, "range": [0, longest * _ROOM or 1]},
        "yaxis": {
            "tickvals": list(range(len(cases))),
            "ticktext": ["<br>".join(map(html.escape, lines)) for lines in labels],
            "range": [len(cases) - 0.4, -0.6],
            "showgrid": False,
            "zeroline": False,
            "tickfont": {"size": 11},
        },
        "bargap": 0.35,
        "hovermode": "closest",
        "showlegend": False,
    }
    pitch = max(26, 10 + _LINE * max((len(lines) for lines in labels), default=1))
    return {"data": traces, "layout": layout, "height": 110 + pitch * len(cases)}
