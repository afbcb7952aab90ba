"""The figures of reports as figures of plotly, for notebooks. The extra `plots` installs plotly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import RunError
from orchestrator.exports.kinds import imported
from orchestrator.report import figures
from orchestrator.report.colours import light
from orchestrator.report.marks import Figure, Mark
from orchestrator.results.history import History

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Plot

X = Literal["round", "seconds"]


def curves(history: History, metric: str, x: X) -> Plot:
    """A metric over rounds or seconds, with the report's curves: the global model, each edge, the devices; faults as
    shades. RunError if no node has reported the metric."""
    reported = dict.fromkeys(["accuracy", "loss", *(name for _, name in history.metric_names())])
    if metric not in reported:
        raise RunError(f"no node has reported {metric!r}; there are {', '.join(reported)}")
    return plotted(figures.curves(history, metric, against="time" if x == "seconds" else "rounds"))


def plotted(figure: Figure) -> Plot:
    """A figure of lines and areas as one of plotly. RunError if plotly is not installed."""
    graph = imported("plotly.graph_objects", "plots")
    drawn = graph.Figure(layout={"title": figure["title"], "hovermode": "x unified", "template": "plotly_white"})
    groups = set()
    for mark in figure["marks"]:
        for trace in _traces(mark):
            drawn.add_scatter(**trace, showlegend="hoverinfo" not in trace and trace["legendgroup"] not in groups)
            groups |= {trace["legendgroup"]} if "name" in trace else set()
    for shade in figure.get("shades", ()):
        drawn.add_vrect(shade["x0"], shade["x1"], fillcolor=light(shade["colour"]), opacity=0.12, line_width=0)
    for lane in figure.get("lanes", ()):  # for the names of the shades in the legend
        patch = {"symbol": "square", "color": light(lane["colour"]), "opacity": 0.4}
        drawn.add_scatter(x=[None], y=[None], mode="markers", marker=patch, name=lane["name"])
    drawn.update_xaxes(title=figure["x"].get("title"), rangemode="tozero")
    drawn.update_yaxes(title=figure["y"].get("title"), tickformat=".0%" if "format" in figure["y"] else None)
    return drawn


def _traces(mark: Mark) -> Iterator[dict[str, Any]]:
    group = mark.get("group")
    common = {"legendgroup": group or mark["name"], "line_color": light(mark["colour"]), "x": mark["x"]}
    if mark["mark"] == "area":
        edge = {**common, "mode": "lines", "line_width": 0, "hoverinfo": "skip"}
        yield {**edge, "y": mark["low"]}
        red, green, blue = bytes.fromhex(common["line_color"].removeprefix("#"))
        yield {**edge, "y": mark["high"], "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"}
    else:
        width = mark["width"]
        dash = ",".join(f"{length}px" for length in mark.get("dash", "").split()) or "solid"
        look = {"mode": "lines+markers" if mark.get("points") else "lines", "line_width": width, "line_dash": dash}
        named = {"name": group or mark["name"], "hovertext": mark["name"]}
        yield {**common, **look, **named, "y": mark["y"]}
