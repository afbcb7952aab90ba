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
    lines_below = 2.5 if figure["x"].get("title") else 1.5
    if lanes:
        ratios = [lanes_height, marks_height]
    else:
        ratios = [marks_height]
    with _settings():
        page = matplotlib.figure.Figure(figsize=(WIDTH, 1.0), layout="constrained")
        legend_height = _add_legend(page, figure["marks"])
        height = legend_height + lanes_height + marks_height + LINE * lines_below
        page.set_figheight(height / INCH)
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
        draw = _DRAWERS[mark["mark"]]
        draw(axes, mark)
    axes.autoscale_view()
    letters = _letters(figure["y"].get("labels", []))
    width = WIDTH * INCH - LETTER * max(5, letters)
    _set_axis(axes, "x", figure["x"], width)
    _set_axis(axes, "y", figure["y"], height)
    low, high = axes.get_xlim()
    end = _end_of_texts(figure["marks"], low, high, width)
    axes.set_xlim(right=end)
    for shade in figure.get("shades", ()):
        start = shade["x0"]
        end = shade["x1"]
        colour = light(shade["colour"])
        axes.axvspan(start, end, color=colour, alpha=0.12, linewidth=0.5, zorder=0)
    for rule in figure.get("rules", ()):
        axes.axhline(rule, color=GREY, linewidth=0.5, zorder=0)


def _set_axis(
    axes: Axes,
    name: str,
    settings: Mapping[str, Any],
    length: float,
) -> None:
    """Title, range, grid and ticks of the axis ``name``, which is ``length`` points long."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    title = settings.get("title", "")
    axes.set(**{f"{name}label": title})
    limits = _limits(axes, name, settings)
    axes.set(**{f"{name}lim": limits})
    labels = settings.get("labels")
    if labels:
        if name == "y":
            room = LINE
        else:
            room = (_letters(labels) + 2) * LETTER
        step = math.ceil(len(labels) * room / length)
        places = range(0, len(labels), step)
        axis.set_ticks(places, [_shortened(labels[place]) for place in places])
        return
    axes.grid(axis="x" if name == "x" else "y")
    room = 20.0 if name == "y" else 36.0
    ticks = max(2, math.ceil(length / room))
    whole = title in ("round", "version")
    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10], integer=whole))
    form = settings.get("format", "number")
    axis.set_major_formatter(FuncFormatter(lambda value, _: _in_words(form, value)))


def _limits(
    axes: Axes,
    name: str,
    settings: Mapping[str, Any],
) -> tuple[float, float]:
    labels = settings.get("labels")
    if labels:
        if name == "x":
            return (-0.5, len(labels) - 0.5)
        return (len(labels) - 0.5, -0.5)
    limits = settings.get("range")
    if limits:
        return limits[0], limits[1]
    if name == "x":
        low, high = axes.get_xlim()
        smallest = axes.dataLim.x0
    else:
        low, high = axes.get_ylim()
        smallest = axes.dataLim.y0
    if not settings.get("zero"):
        return low, high
    if smallest >= 0:
        low = 0.0
    return low, max(0.0, high)


def _end_of_texts(marks: Sequence[Mark], low: float, high: float, width: float) -> float:
    """The end of an x axis of this width in points at which the texts of marks end inside the axes."""
    end = high
    for mark in marks:
        if mark["mark"] != "texts":
            continue
        for x, words in zip(mark["x"], mark["texts"], strict=True):
            room = width - LETTER * len(words) - SIZE
            room = max(width / 4, room)
            end = max(end, low + (x - low) * width / room)
    return end


def _letters(texts: Sequence[str]) -> int:
    """The letters of the longest line that is drawn at an axis."""
    most = 0
    for label in texts:
        for line in _shortened(label).split("\n"):
            most = max(most, len(line))
    return most


def _shortened(label: str) -> str:
    """A label with more of the end of long lines than of their start: labels often start alike."""
    end = LONGEST_LABEL * 2 // 3
    start = LONGEST_LABEL - end - 1
    lines = []
    for line in label.split("\n"):
        if len(line) > LONGEST_LABEL:
            line = f"{line[:start]}…{line[-end:]}"
        lines.append(line)
    return "\n".join(lines)


def _in_words(form: str, value: float) -> str:
    match form:
        case "percent":
            percent = round(100 * value, 1)
            return f"{percent:g}%"
        case "bytes":
            return text.size(value)
        case "rate":
            return text.size(value).replace("B", "bit/s")
    return f"{value:,.10g}".replace("-", "−")


def _numbers(values: Sequence[float | None]) -> list[float]:
    numbers = []
    for value in values:
        if value is None:
            value = math.nan
        numbers.append(value)
    return numbers


def _dashes(mark: Mark) -> Any:
    lengths = [float(length) * SCALE for length in mark.get("dash", "").split()]
    if lengths:
        return (0, lengths)
    return "solid"


def _line(axes: Axes, mark: Mark) -> None:
    x = _numbers(mark["x"])
    y = _numbers(mark["y"])
    width = mark["width"] * SCALE
    points = bool(mark.get("points"))
    alone = _points_between_gaps(x, y)
    colour = light(mark["colour"])
    dashes = _dashes(mark)
    (curve,) = axes.plot(x, y, color=colour, linewidth=width, linestyle=dashes)
    if mark.get("steps"):
        curve.set_drawstyle("steps-post")
    if points or alone:
        curve.set(marker="o", markersize=1.6 + width, markeredgewidth=0)
        curve.set_markevery(None if points else alone)


def _points_between_gaps(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """The places of points without a neighbour: a line alone would not show them."""
    known = [False]
    for point in zip(x, y, strict=True):
        known.append(math.isfinite(sum(point)))
    known.append(False)
    alone = []
    for place in range(len(x)):
        before, here, after = known[place : place + 3]
        if here and not before and not after:
            alone.append(place)
    return alone


def _area(axes: Axes, mark: Mark) -> None:
    colour = light(mark["colour"])
    low = mark["low"]
    high = mark["high"]
    axes.fill_between(mark["x"], low, high, color=colour, alpha=0.18, linewidth=0)


def _points(axes: Axes, mark: Mark) -> None:
    is_stroke = bool(mark.get("stroke"))
    x = _numbers(mark["x"])
    y = _numbers(mark["y"])
    (dots,) = axes.plot(x, y, "|" if is_stroke else "o")
    dots.set(color=light(mark["colour"]), markersize=mark["size"] * SCALE)
    dots.set_markeredgewidth(1.2 if is_stroke else 0)


def _boxes(axes: Axes, mark: Mark) -> None:
    opacity = mark.get("opacity", 1.0)
    if isinstance(opacity, list):
        opacities = opacity
    else:
        opacities = [opacity] * len(mark["x0"])
    corners = []
    columns = [mark[name] for name in ("x0", "x1", "y0", "y1")]
    bounds = zip(*columns, strict=True)
    for x0, x1, y0, y1 in bounds:
        lower = [(x0, y0), (x1, y0)]
        upper = [(x1, y1), (x0, y1)]
        corners.append(lower + upper)
    colour = light(mark["colour"])
    colours = [to_rgba(colour, alpha) for alpha in opacities]
    edge = 0.0 if "opacity" in mark else 0.3  # a short box stays visible
    boxes = PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=edge)
    axes.add_collection(boxes)


def _ranges(axes: Axes, mark: Mark) -> None:
    lengths = np.subtract(mark["high"], mark["low"])
    errors = [0 * lengths, lengths]
    colour = light(mark["colour"])
    axes.errorbar(
        mark["low"],
        mark["y"],
        xerr=errors,
        fmt="none",
        ecolor=colour,
        elinewidth=0.8,
        capsize=2,
    )


def _texts(axes: Axes, mark: Mark) -> None:
    places = zip(mark["x"], mark["y"], strict=True)
    for place, words in zip(places, mark["texts"], strict=True):
        axes.annotate(
            words,
            place,
            (3, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )


_DRAWERS: dict[str, Callable[[Axes, Mark], None]] = {
    "line": _line,
    "area": _area,
    "points": _points,
    "boxes": _boxes,
    "ranges": _ranges,
    "texts": _texts,
}


def _draw_lanes(axes: Axes, lanes: Sequence[Mark]) -> None:
    """Lanes as rows, at the x of the axes below. The limits of these are set."""
    for row, lane in enumerate(lanes):
        boxes = len(lane["x0"])
        heights = {"y0": [row - 0.35] * boxes, "y1": [row + 0.35] * boxes}
        _boxes(axes, {"opacity": 0.6, **lane, **heights})
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    labels = [_shortened(lane["name"]) for lane in lanes]
    axes.set_yticks(range(len(lanes)), labels)
    axes.tick_params(labelbottom=False)
    axes.spines[:].set_visible(False)


def _add_legend(page: matplotlib.figure.Figure, marks: Sequence[Mark]) -> float:
    """Add the legend above the axes. Returns its height in points. One entry alone needs none."""
    entries: dict[str, Mark] = {}
    for mark in marks:
        name = mark.get("group") or mark.get("name")
        if not name:
            continue
        if name not in entries or entries[name]["mark"] == "area":
            entries[name] = mark
    if len(entries) < 2:
        return 0.0
    names = ["\n".join(textwrap.wrap(name, LONGEST_NAME)) for name in entries]
    widths = []
    for name in names:
        letters = max(len(line) for line in name.split("\n"))
        widths.append(SAMPLE + LETTER * letters)
    columns = _columns(widths)
    samples = [_sample(mark) for mark in entries.values()]
    page.legend(
        samples,
        names,
        loc="outside upper left",
        ncols=columns,
        handlelength=1.8,
        columnspacing=0.9,
    )
    rows = math.ceil(len(names) / columns)
    lines = max(name.count("\n") + 1 for name in names)
    return rows * lines * LINE + LINE


def _columns(widths: Sequence[float]) -> int:
    """The most columns in which entries of these widths, in points, fit on the page. A column is filled downwards."""
    for columns in range(len(widths), 1, -1):
        parts = np.array_split(widths, columns)
        if sum(max(part) for part in parts) <= WIDTH * INCH:
            return columns
    return 1


def _sample(mark: Mark) -> Artist:
    colour = light(mark["colour"])
    if mark["mark"] == "line":
        width = mark["width"] * SCALE
        return Line2D([], [], color=colour, linewidth=width, linestyle=_dashes(mark))
    return Patch(color=colour, linewidth=0)
