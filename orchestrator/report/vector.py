"""Figures of `orchestrator.report.marks` as PDF for papers, drawn by matplotlib, which the extra `figures` installs.

A figure has no title there, since a paper has captions. The matplotlib settings of this host are neither used nor
changed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from typing import Any

import matplotlib.figure
import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from orchestrator import text
from orchestrator.report.colours import light
from orchestrator.report.marks import Figure, Mark

WIDTH = 3.3  # inches: a column of a two-column paper
INCH = 72.0  # points
SIZE = 7.0  # of texts, in points
LETTER = 0.6 * SIZE  # about the mean width of a letter, in points
LINE = 1.45 * SIZE  # from one line of text to the next
SCALE = 0.6  # points for a pixel of the page
LANE = 9.0
SAMPLE = 28.0  # a sample in the legend, with the space around it
LONGEST_NAME = 48  # letters in a line of the legend
LONGEST_LABEL = 30  # letters in a line at the y axis
GREY = "#555555"
GRID = "#d9d9d9"

_LOOK: dict[str, Any] = {
    "pdf.fonttype": 42,  # fonts are embedded as TrueType: some publishers refuse the default, Type 3
    "font.size": SIZE,
    "text.parse_math": False,  # $ in a name is only a letter
    "lines.scale_dashes": False,
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.xmargin": 0.015,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def pdf(figure: Figure) -> bytes:
    """The PDF file of a figure: one page, with its fonts. Equal figures give equal bytes."""
    file = BytesIO()
    with _settings():
        drawn(figure).savefig(file, format="pdf", metadata={"CreationDate": None})
    return file.getvalue()


def drawn(figure: Figure) -> matplotlib.figure.Figure:
    """A figure of `orchestrator.report.marks` as one of matplotlib, `WIDTH` inches wide. Its last axes have the marks;
    with lanes, those are in axes of their own above."""
    lanes = figure.get("lanes", [])
    lanes_height = LANE * len(lanes)
    marks_height = figure["height"] * SCALE
    with _settings():
        page = matplotlib.figure.Figure(figsize=(WIDTH, 1.0), layout="constrained")
        legend_height = _add_legend(page, figure["marks"])
        height = legend_height + lanes_height + marks_height + LINE * (2.5 if figure["x"].get("title") else 1.5)
        page.set_figheight(height / INCH)
        ratios = [lanes_height, marks_height] if lanes else [marks_height]
        grid = page.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
        axes = grid[-1, 0]
        _draw_marks(axes, figure, marks_height)
        if lanes:
            _draw_lanes(grid[0, 0], lanes)
    return page


def _settings() -> AbstractContextManager[None]:
    return matplotlib.style.context(["default", _LOOK])


def _draw_marks(axes: Axes, figure: Figure, height: float) -> None:
    for mark in figure["marks"]:
        _DRAWERS[mark["mark"]](axes, mark)
    axes.autoscale_view()
    width = WIDTH * INCH - LETTER * max(5, _letters(figure["y"].get("labels", [])))
    _set_axis(axes, "x", figure["x"], width)
    _set_axis(axes, "y", figure["y"], height)
    axes.set_xlim(right=_end_of_texts(figure["marks"], *axes.get_xlim(), width))
    for shade in figure.get("shades", ()):
        axes.axvspan(shade["x0"], shade["x1"], color=light(shade["colour"]), alpha=0.12, linewidth=0.5, zorder=0)
    for rule in figure.get("rules", ()):
        axes.axhline(rule, color=GREY, linewidth=0.5, zorder=0)


def _set_axis(axes: Axes, name: str, settings: Mapping[str, Any], length: float) -> None:
    """Title, range, grid and ticks of the axis ``name``, which is ``length`` points long."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    axes.set(**{f"{name}label": settings.get("title", "")})
    axes.set(**{f"{name}lim": _limits(axes, name, settings)})
    labels = settings.get("labels")
    if labels:
        if name == "y":
            room = LINE
        else:
            room = (_letters(labels) + 2) * LETTER
        places = range(0, len(labels), math.ceil(len(labels) * room / length))
        axis.set_ticks(places, [_shortened(labels[place]) for place in places])
        return
    axes.grid(axis="x" if name == "x" else "y")
    whole = settings.get("title") in ("round", "version")
    room = 20.0 if name == "y" else 36.0
    axis.set_major_locator(MaxNLocator(max(2, math.ceil(length / room)), steps=[1, 2, 5, 10], integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _in_words(settings.get("format", "number"), value)))


def _limits(axes: Axes, name: str, settings: Mapping[str, Any]) -> tuple[float, float]:
    labels = settings.get("labels")
    if labels:
        if name == "x":
            return (-0.5, len(labels) - 0.5)
        return (len(labels) - 0.5, -0.5)
    given = settings.get("range")
    if given:
        return given[0], given[1]
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    if not settings.get("zero"):
        return low, high
    if name == "x":
        smallest = axes.dataLim.x0
    else:
        smallest = axes.dataLim.y0
    return 0.0 if smallest >= 0 else low, max(0.0, high)


def _end_of_texts(marks: Sequence[Mark], low: float, high: float, width: float) -> float:
    """The end of an x axis of this width in points at which the texts of marks end inside the axes."""
    end = high
    for mark in marks:
        if mark["mark"] == "texts":
            for x, said in zip(mark["x"], mark["texts"], strict=True):
                room = max(width / 4, width - LETTER * len(said) - SIZE)
                end = max(end, low + (x - low) * width / room)
    return end


def _letters(texts: Sequence[str]) -> int:
    """The letters of the longest line that is drawn at an axis."""
    return max((len(line) for each in texts for line in _shortened(each).split("\n")), default=0)


def _shortened(label: str) -> str:
    """A label with more of the end of long lines than of their start: labels often start alike."""
    end = LONGEST_LABEL * 2 // 3
    start = LONGEST_LABEL - end - 1
    lines = label.split("\n")
    return "\n".join(line if len(line) <= LONGEST_LABEL else f"{line[:start]}…{line[-end:]}" for line in lines)


def _in_words(form: str, value: float) -> str:
    match form:
        case "percent":
            return f"{round(100 * value, 1):g}%"
        case "bytes":
            return text.size(value)
        case "rate":
            return text.size(value).replace("B", "bit/s")
    return f"{value:,.10g}".replace("-", "−")


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _dashes(mark: Mark) -> Any:
    lengths = [float(length) * SCALE for length in mark.get("dash", "").split()]
    return (0, lengths) if lengths else "solid"


def _line(axes: Axes, mark: Mark) -> None:
    x = _numbers(mark["x"])
    y = _numbers(mark["y"])
    known = [False, *(math.isfinite(a + b) for a, b in zip(x, y, strict=True)), False]
    alone = [place for place in range(len(x)) if known[place : place + 3] == [False, True, False]]
    (drawn,) = axes.plot(x, y, color=light(mark["colour"]), linewidth=mark["width"] * SCALE, linestyle=_dashes(mark))
    if mark.get("steps"):
        drawn.set_drawstyle("steps-post")
    if mark.get("points") or alone:
        drawn.set(marker="o", markersize=1.6 + mark["width"] * SCALE, markeredgewidth=0)
        drawn.set_markevery(None if mark.get("points") else alone)


def _area(axes: Axes, mark: Mark) -> None:
    axes.fill_between(mark["x"], mark["low"], mark["high"], color=light(mark["colour"]), alpha=0.18, linewidth=0)


def _points(axes: Axes, mark: Mark) -> None:
    (drawn,) = axes.plot(_numbers(mark["x"]), _numbers(mark["y"]), "|" if mark.get("stroke") else "o")
    drawn.set(color=light(mark["colour"]), markersize=mark["size"] * SCALE)
    drawn.set_markeredgewidth(1.2 if mark.get("stroke") else 0)


def _boxes(axes: Axes, mark: Mark) -> None:
    opacity = mark.get("opacity", 1.0)
    if isinstance(opacity, list):
        opacities = opacity
    else:
        opacities = [opacity] * len(mark["x0"])
    bounds = zip(mark["x0"], mark["x1"], mark["y0"], mark["y1"], strict=True)
    corners = [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for x0, x1, y0, y1 in bounds]
    colours = [to_rgba(light(mark["colour"]), each) for each in opacities]
    edge = 0.0 if "opacity" in mark else 0.3  # a short box stays visible
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=edge))


def _ranges(axes: Axes, mark: Mark) -> None:
    lengths = np.subtract(mark["high"], mark["low"])
    errors = [0 * lengths, lengths]
    colour = light(mark["colour"])
    axes.errorbar(mark["low"], mark["y"], xerr=errors, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2)


def _texts(axes: Axes, mark: Mark) -> None:
    for x, y, said in zip(mark["x"], mark["y"], mark["texts"], strict=True):
        axes.annotate(said, (x, y), (3, 0), textcoords="offset points", va="center", annotation_clip=False)


_DRAWERS: dict[str, Callable[[Axes, Mark], None]] = {
    "line": _line,
    "area": _area,
    "points": _points,
    "boxes": _boxes,
    "ranges": _ranges,
    "texts": _texts,
}


def _draw_lanes(axes: Axes, lanes: Sequence[Mark]) -> None:
    """Lanes as rows, at the x of the axes below, whose limits are set."""
    for row, lane in enumerate(lanes):
        rows = {"y0": [row - 0.35] * len(lane["x0"]), "y1": [row + 0.35] * len(lane["x0"])}
        _boxes(axes, {"opacity": 0.6, **lane, **rows})
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [_shortened(lane["name"]) for lane in lanes])
    axes.tick_params(labelbottom=False)
    axes.spines[:].set_visible(False)


def _add_legend(page: matplotlib.figure.Figure, marks: Sequence[Mark]) -> float:
    """Add the legend above the axes. Returns its height in points. One entry alone needs none."""
    entries: dict[str, Mark] = {}
    for mark in marks:
        name = mark.get("group") or mark.get("name")
        if name and (name not in entries or entries[name]["mark"] == "area"):
            entries[name] = mark
    if len(entries) < 2:
        return 0.0
    names = ["\n".join(textwrap.wrap(name, LONGEST_NAME)) for name in entries]
    columns = _columns([SAMPLE + LETTER * max(map(len, name.split("\n"))) for name in names])
    samples = [_sample(mark) for mark in entries.values()]
    page.legend(samples, names, loc="outside upper left", ncols=columns, handlelength=1.8, columnspacing=0.9)
    lines = max(name.count("\n") + 1 for name in names)
    return math.ceil(len(names) / columns) * lines * LINE + LINE


def _columns(widths: Sequence[float]) -> int:
    """The most columns in which entries of these widths, in points, fit on the page. A column is filled downwards."""
    for columns in range(len(widths), 1, -1):
        if sum(max(part) for part in np.array_split(widths, columns)) <= WIDTH * INCH:
            return columns
    return 1


def _sample(mark: Mark) -> Artist:
    colour = light(mark["colour"])
    if mark["mark"] == "line":
        return Line2D([], [], color=colour, linewidth=mark["width"] * SCALE, linestyle=_dashes(mark))
    return Patch(color=colour, linewidth=0)
