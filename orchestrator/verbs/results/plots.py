"""The figures of reports as figures of plotly, for notebooks. The extra `plots` installs plotly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import RunError
from orchestrator.exports.destinations import imported
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
    reported = dict.fromkeys(["accuracy", "loss"])
    for _, name in history.metric_names():
        reported[name] = None
    if metric not in reported:
        raise RunError(f"no node has reported {metric!r}; there are {', '.join(reported)}")
    against = "time" if x == "seconds" else "rounds"
    figure = figures.curves(history, metric, against=against)
    return plotted(figure)


def plotted(figure: Figure) -> Plot:
    """A figure of lines and areas as one of plotly. RunError if plotly is not installed."""
    graph = imported("plotly.graph_objects", "plots")
    layout = {"title": figure["title"], "hovermode": "x unified", "template": "plotly_white"}
    plot = graph.Figure(layout=layout)
    in_legend = set()
    for mark in figure["marks"]:
        for trace in _traces(mark):
            group = trace["legendgroup"]
            is_line = "hoverinfo" not in trace
            plot.add_scatter(**trace, showlegend=is_line and group not in in_legend)
            if "name" in trace:
                in_legend.add(group)
    for shade in figure.get("shades", ()):
        plot.add_vrect(
            shade["x0"],
            shade["x1"],
            fillcolor=light(shade["colour"]),
            opacity=0.12,
            line_width=0,
        )
    for lane in figure.get("lanes", ()):  # for the names of the shades in the legend
        colour = light(lane["colour"])
        patch = {"symbol": "square", "color": colour, "opacity": 0.4}
        plot.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker=patch,
            name=lane["name"],
        )
    x_axis = figure["x"]
    y_axis = figure["y"]
    plot.update_xaxes(title=x_axis.get("title"), rangemode="tozero")
    tick_format = ".0%" if "format" in y_axis else None
    plot.update_yaxes(title=y_axis.get("title"), tickformat=tick_format)
    return plot


def _traces(mark: Mark) -> Iterator[dict[str, Any]]:
    """The lines that plotly draws for a mark. An area is its lower edge, and its upper edge filled down to that."""
    group = mark.get("group") or mark["name"]
    colour = light(mark["colour"])
    common = {"legendgroup": group, "line_color": colour, "x": mark["x"]}
    if mark["mark"] == "area":
        edge = {
            **common,
            "mode": "lines",
            "line_width": 0,
            "hoverinfo": "skip",
        }
        yield {**edge, "y": mark["low"]}
        digits = colour.removeprefix("#")
        red, green, blue = bytes.fromhex(digits)
        fill = f"rgba({red},{green},{blue},0.2)"
        yield {
            **edge,
            "y": mark["high"],
            "fill": "tonexty",
            "fillcolor": fill,
        }
    else:
        lengths = mark.get("dash", "").split()
        dash = ",".join(f"{length}px" for length in lengths)
        yield {
            **common,
            "mode": "lines+markers" if mark.get("points") else "lines",
            "line_width": mark["width"],
            "line_dash": dash or "solid",
            "name": group,
            "hovertext": mark["name"],
            "y": mark["y"],
        }
