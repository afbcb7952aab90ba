"""Figures as shapes for paper: lines, areas and texts at places in points (1/72 inch), y upwards.

`orchestrator.report.pdf` and `orchestrator.report.pgf` write them to files. A figure has no title there: a paper has
captions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.report.colours import light
from orchestrator.report.marks import Figure, Mark
from orchestrator.report.ticks import in_words, ticks
from orchestrator.report.widths import width_of

WIDTH = 252.0  # a column of a two-column paper: 3.5 inch
SIZE = 8.0  # of texts
LINE = 9.5  # from one line of text to the next
SCALE = 0.6  # points for a pixel of the page
LANE = 8.0
GAP = 4.0
EDGE = 2.0  # of the page, which is free
SMALLEST = 5.0  # size of texts in a legend with long names
SAMPLE = 14.0  # the width of a sample in the legend
INK, GREY, GRID = "#000000", "#555555", "#d9d9d9"
Point = tuple[float, float]


@dataclass(frozen=True)
class Stroke:
    """A line through points. ``dash``: lengths on and off, in points."""

    points: Sequence[Point]
    colour: str
    width: float = 0.5
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fill:
    """A polygon."""

    points: Sequence[Point]
    colour: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Label:
    """A text whose baseline is at a point. ``anchor``: "start", "middle" or "end" of the text is there."""

    at: Point
    text: str
    anchor: str = "start"
    colour: str = INK
    size: float = SIZE
    upwards: bool = False


Plain = Stroke | Fill | Label


@dataclass(frozen=True)
class Clip:
    """The parts of shapes that are inside a rectangle."""

    corners: Sequence[Point]
    shapes: Sequence[Plain]


Shape = Plain | Clip


@dataclass
class Drawing:
    """Shapes from back to front on a page of this size."""

    width: float
    height: float = 0.0
    shapes: list[Shape] = field(default_factory=list)

    def plain(self) -> Iterator[Plain]:
        """All shapes, also those that are clipped."""
        for shape in self.shapes:
            if isinstance(shape, Clip):
                yield from shape.shapes
            else:
                yield shape


@dataclass(frozen=True)
class Plot:
    """The rectangle of the axes, and where values are in it."""

    left: float
    right: float
    bottom: float
    top: float
    x: Callable[[float], float]
    y: Callable[[float], float]


def drawn(figure: Figure, width: float = WIDTH) -> Drawing:
    """The shapes of a figure of `orchestrator.report.marks`, on a page of this width in points."""
    drawing = Drawing(width)
    x_axis, y_axis, marks, lanes = figure["x"], figure["y"], figure["marks"], figure.get("lanes", [])
    tall = figure["height"] * SCALE
    low_y, high_y = _range(y_axis, "y", marks, 0.05)
    rows = y_axis.get("labels")
    y_ticks = [float(row) for row in range(len(rows))] if rows else ticks(low_y, high_y, tall / 22)
    named = [rows[int(value)] if rows else in_words(y_axis, value) for value in y_ticks]
    lines = [line for each in named for line in each.split("\n")] + [lane["name"] for lane in lanes]
    title = 11.0 if y_axis.get("title") else 0.0
    left = max((width_of(line, SIZE) for line in lines), default=0.0) + GAP + title + EDGE
    left, right = min(left, width / 2), width - 10.0
    low_x, high_x = _with_texts(marks, *_range(x_axis, "x", marks, 0.015), right - left)
    bottom = 26.0 if x_axis.get("title") else 14.0
    legend = _legend(figure, left, right)
    inside = _rectangle(left - EDGE, right + EDGE, bottom - EDGE, bottom + tall + EDGE)
    top = bottom + tall
    plot = Plot(
        *(left, right, bottom, top),
        x=lambda value: left + (value - low_x) / (high_x - low_x) * (right - left),
        y=(lambda value: top - (value + 0.5) / len(rows) * tall)
        if rows
        else (lambda value: bottom + (value - low_y) / (high_y - low_y) * tall),
    )
    add = drawing.shapes.extend
    add(_shades(figure, plot))
    add(_y_axis(y_axis, plot, zip(y_ticks, named, strict=True)))
    add(_x_axis(x_axis, plot, low_x, high_x))
    for mark in marks:
        shapes = list(_DRAWERS[mark["mark"]](mark, plot))
        add(shapes if mark["mark"] == "texts" else [Clip(inside, shapes)])
    place = top + GAP
    for lane in reversed(lanes):
        add(_lane(lane, plot, place))
        place += LANE
    drawing.height = place + len(legend.rows) * LINE + EDGE
    add(_placed(legend, place + EDGE))
    return drawing


def _range(axis: dict[str, Any], name: str, marks: Sequence[Mark], room: float) -> tuple[float, float]:
    """The lowest and the highest value along an axis, as script/chart.js has them."""
    if labels := axis.get("labels"):
        return -0.5, len(labels) - 0.5
    if given := axis.get("range"):
        return float(given[0]), float(given[1])
    values = [value for mark in marks for value in _values(mark, name) if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if axis.get("zero"):
        low, high = min(0.0, low), max(0.0, high)
    if low == high:
        low, high = low - (0.0 if axis.get("zero") else 0.5), high + 0.5
    pad = (high - low) * room
    return low if axis.get("zero") and low >= 0 else low - pad, high + pad


def _values(mark: Mark, name: str) -> list[float | None]:
    columns: dict[str, dict[str, list[str]]] = {
        "line": {"x": ["x"], "y": ["y"]},
        "area": {"x": ["x"], "y": ["low", "high"]},
        "points": {"x": ["x"], "y": ["y"]},
        "boxes": {"x": ["x0", "x1"], "y": ["y0", "y1"]},
        "ranges": {"x": ["low", "high"], "y": ["y"]},
        "texts": {"x": [], "y": []},
    }
    return [value for column in columns[mark["mark"]][name] for value in mark.get(column, ())]


def _with_texts(marks: Sequence[Mark], low: float, high: float, width: float) -> tuple[float, float]:
    """A range of x with which the texts beside their places end inside the plot."""
    end = high
    for mark in marks:
        if mark["mark"] == "texts":
            for x, said in zip(mark["x"], mark["texts"], strict=True):
                room = max(width / 4, width - width_of(said, SIZE) - 2 * GAP)
                end = max(end, low + (x - low) * width / room)
    return low, end


def _shades(figure: Figure, plot: Plot) -> Iterable[Shape]:
    for shade in figure.get("shades", ()):
        x0, x1 = (min(plot.right, max(plot.left, plot.x(shade[end]))) for end in ("x0", "x1"))
        yield Fill(_rectangle(x0, max(x1, x0 + 0.5), plot.bottom, plot.top), light(shade["colour"]), 0.12)


def _y_axis(axis: dict[str, Any], plot: Plot, named: Iterable[tuple[float, str]]) -> Iterable[Shape]:
    for value, said in named:
        at = plot.y(value)
        if not axis.get("labels"):
            yield Stroke([(plot.left, at), (plot.right, at)], GRID)
        lines = said.split("\n")
        for row, line in enumerate(lines):
            baseline = at - SIZE * 0.35 + LINE * ((len(lines) - 1) / 2 - row)
            yield Label((plot.left - GAP, baseline), line, "end")
    if axis.get("title"):
        yield Label((SIZE, (plot.bottom + plot.top) / 2), axis["title"], "middle", GREY, upwards=True)


def _x_axis(axis: dict[str, Any], plot: Plot, low: float, high: float) -> Iterable[Shape]:
    labels = axis.get("labels")
    if labels:
        room = max(width_of(each, SIZE) for each in labels) + GAP
        step = math.ceil(len(labels) * room / (plot.right - plot.left))
        named = [(float(place), labels[place]) for place in range(0, len(labels), step)]
    else:
        values = ticks(low, high, (plot.right - plot.left) / 42)
        named = [(value, in_words(axis, value)) for value in values]
    for value, said in named:
        at = plot.x(value)
        if not labels:
            yield Stroke([(at, plot.bottom), (at, plot.top)], GRID)
        inside = min(at, plot.right + 10.0 - width_of(said, SIZE) / 2)
        yield Label((inside, plot.bottom - SIZE - 2), said, "middle")
    yield Stroke([(plot.left, plot.top), (plot.left, plot.bottom), (plot.right, plot.bottom)], GREY, 0.6)
    if axis.get("title"):
        yield Label(((plot.left + plot.right) / 2, 3.0), axis["title"], "middle", GREY)


def _line(mark: Mark, plot: Plot) -> Iterable[Plain]:
    colour, width = light(mark["colour"]), mark["width"] * SCALE
    dash = tuple(float(length) * SCALE for length in mark.get("dash", "").split())
    pieces: list[list[Point]] = [[]]
    for x, y in zip(mark["x"], mark["y"], strict=True):
        if x is None or y is None:
            pieces.append([])
            continue
        here = plot.x(x), plot.y(y)
        if mark.get("steps") and pieces[-1]:
            pieces[-1].append((here[0], pieces[-1][-1][1]))
        pieces[-1].append(here)
    for piece in pieces:
        if len(piece) > 1:
            yield Stroke(piece, colour, width, dash)
        if mark.get("points") or len(piece) == 1:
            yield from (Fill(_circle(at, 0.8 + width / 2), colour) for at in piece)


def _area(mark: Mark, plot: Plot) -> Iterable[Plain]:
    there = [(plot.x(x), plot.y(high)) for x, high in zip(mark["x"], mark["high"], strict=True)]
    back = [(plot.x(x), plot.y(low)) for x, low in zip(mark["x"], mark["low"], strict=True)]
    yield Fill([*there, *reversed(back)], light(mark["colour"]), 0.18)


def _points(mark: Mark, plot: Plot) -> Iterable[Plain]:
    radius = mark["size"] * SCALE / 2
    for x, y in zip(mark["x"], mark["y"], strict=True):
        if x is not None and y is not None:
            at = plot.x(x), plot.y(y)
            upright = [(at[0], at[1] - radius), (at[0], at[1] + radius)]
            colour = light(mark["colour"])
            yield Stroke(upright, colour, 1.2) if mark.get("stroke") else Fill(_circle(at, radius / 1.6), colour)


def _boxes(mark: Mark, plot: Plot) -> Iterable[Plain]:
    opacity = mark.get("opacity", 1.0)
    shares = opacity if isinstance(opacity, list) else [opacity] * len(mark["x0"])
    rows = zip(mark["x0"], mark["x1"], mark.get("y0", ()), mark.get("y1", ()), shares, strict=True)
    for x0, x1, y0, y1, share in rows:
        yield Fill(_rectangle(plot.x(x0), plot.x(x1), plot.y(y0), plot.y(y1)), light(mark["colour"]), share)


def _ranges(mark: Mark, plot: Plot) -> Iterable[Plain]:
    for y, low, high in zip(mark["y"], mark["low"], mark["high"], strict=True):
        at, ends = plot.y(y), (plot.x(low), plot.x(high))
        yield Stroke([(ends[0], at), (ends[1], at)], light(mark["colour"]), 0.8)
        yield from (Stroke([(end, at - 2), (end, at + 2)], light(mark["colour"]), 0.8) for end in ends)


def _texts(mark: Mark, plot: Plot) -> Iterable[Plain]:
    for x, y, said in zip(mark["x"], mark["y"], mark["texts"], strict=True):
        yield Label((plot.x(x) + GAP, plot.y(y) - SIZE * 0.35), said)


def _lane(lane: Mark, plot: Plot, at: float) -> Iterable[Shape]:
    yield Label((plot.left - GAP, at + 1), lane["name"], "end", size=SIZE - 1)
    for x0, x1 in zip(lane["x0"], lane["x1"], strict=True):
        left, right = (min(plot.right, max(plot.left, plot.x(value))) for value in (x0, x1))
        yield Fill(_rectangle(left, max(right, left + 0.5), at, at + LANE - 2), light(lane["colour"]), 0.6)


_DRAWERS: dict[str, Callable[[Mark, Plot], Iterable[Plain]]] = {
    "line": _line,
    "area": _area,
    "points": _points,
    "boxes": _boxes,
    "ranges": _ranges,
    "texts": _texts,
}


@dataclass(frozen=True)
class Legend:
    """Rows of entries, each with its place, name and mark, and the size of the texts."""

    rows: Sequence[Sequence[tuple[float, str, Mark]]]
    size: float


def _legend(figure: Figure, left: float, right: float) -> Legend:
    """The legend of a figure; one entry alone needs none. Long names start at the edge, and are smaller if need be."""
    entries: dict[str, Mark] = {}
    for mark in figure["marks"]:
        name = mark.get("group") or mark.get("name")
        if name and (name not in entries or entries[name]["mark"] == "area"):
            entries[name] = mark
    if len(entries) < 2:
        return Legend([], SIZE)
    longest = max(width_of(name, SIZE) for name in entries)
    if longest > right - left - SAMPLE - GAP:
        left = EDGE
    size = max(SMALLEST, min(SIZE, SIZE * (right - left - SAMPLE - GAP) / longest))
    rows: list[list[tuple[float, str, Mark]]] = [[]]
    place = left
    for name, mark in entries.items():
        wide = SAMPLE + GAP + width_of(name, size) + 2 * GAP
        if rows[-1] and place + wide > right + 2 * GAP:
            rows.append([])
            place = left
        rows[-1].append((place, name, mark))
        place += wide
    return Legend(rows, size)


def _placed(legend: Legend, bottom: float) -> Iterable[Shape]:
    for number, row in enumerate(reversed(legend.rows)):
        at = bottom + number * LINE + 2
        for place, name, mark in row:
            colour, middle = light(mark["colour"]), at + SIZE * 0.35
            if mark["mark"] == "line":
                dash = tuple(float(length) * SCALE for length in mark.get("dash", "").split())
                yield Stroke([(place, middle), (place + SAMPLE, middle)], colour, mark["width"] * SCALE, dash)
            else:
                yield Fill(_rectangle(place + 4, place + SAMPLE - 4, middle - 3, middle + 3), colour)
            yield Label((place + SAMPLE + GAP, at), name, size=legend.size)


def _rectangle(x0: float, x1: float, y0: float, y1: float) -> list[Point]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def _circle(at: Point, radius: float) -> list[Point]:
    angles = [math.tau * part / 16 for part in range(16)]
    return [(at[0] + radius * math.cos(angle), at[1] + radius * math.sin(angle)) for angle in angles]
