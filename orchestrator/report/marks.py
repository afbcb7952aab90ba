"""The vocabulary of the figures: plain data, which ``figures/*.js`` draws as SVG in the report and in a live page.

A figure is a dictionary:

    title       what it shows: its caption, and its name for a screen reader
    x, y        its axes (`axis`)
    marks       what is drawn, from back to front: the functions below
    height      of the plot, in pixels, without caption and legend
    lanes       marks of `boxes` without y: each is a row of its own above the plot, at the same x
    shades      [{"x0", "x1", "colour"}]: backgrounds over the whole height of the plot
    rules       [y]: lines across the plot
    hover       "x": one readout for all lines at the pointer; otherwise, each mark has its own

Names and texts are shown as they are, never as HTML. Colours are CSS colours or variables of style.css. Columns of a
mark (``x``, ``y``, ``notes`` ...) have equal lengths; None in ``y`` is a gap in a line. A mark with a ``name`` has an
entry in the legend, which switches it on and off. Marks with the same ``group`` share one entry, named by the group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from orchestrator.results.summary import finite

Figure = dict[str, Any]
Mark = dict[str, Any]
Format = Literal["number", "percent", "bytes", "rate"]  # a rate in bit/s


def figure(
    title: str,
    x: dict[str, Any],
    y: dict[str, Any],
    marks: Iterable[Mark],
    height: int,
    **more: Any,
) -> Figure:
    """A figure of these marks; ``more``: ``lanes``, ``shades``, ``rules``, ``hover``."""
    return {
        "title": title,
        "x": x,
        "y": y,
        "marks": list(marks),
        "height": height,
        **_given(more),
    }


def axis(
    title: str = "",
    *,
    format: Format = "number",
    range: tuple[float, float] | None = None,
    zero: bool = False,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """An axis. ``zero``: it includes 0. ``labels``: the names of 0, 1, 2 ...; the y axis then goes downwards."""
    fields: dict[str, Any] = {"title": title}
    if zero:
        fields["zero"] = True
    if range is not None:
        fields["range"] = list(range)
    if format != "number":
        fields["format"] = format
    if labels:
        fields["labels"] = list(labels)
    return fields


def line(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    colour: str,
    *,
    width: float = 1.5,
    dash: str | None = None,
    steps: bool = False,
    points: bool = False,
    group: str | None = None,
    notes: Sequence[str] | None = None,
) -> Mark:
    """A line through points. ``steps``: each value holds until the next one. ``dash``: as in SVG's stroke-dasharray."""
    heights = []
    for value in y:
        if value is not None:
            value = finite(value)
        heights.append(value)
    options = {
        "dash": dash,
        "steps": steps or None,
        "points": points or None,
        "group": group,
        "notes": notes,
    }
    return {
        "mark": "line",
        "name": name,
        "x": list(x),
        "y": heights,
        "colour": colour,
        "width": width,
        **_given(options),
    }


def area(
    x: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    colour: str,
    name: str = "",
) -> Mark:
    """A band between two lines."""
    return {
        "mark": "area",
        "name": name,
        "x": list(x),
        "low": list(low),
        "high": list(high),
        "colour": colour,
    }


def points(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    colour: str,
    *,
    size: float = 8,
    stroke: bool = False,
    notes: Sequence[str] = (),
) -> Mark:
    """Dots, or upright strokes, ``size`` pixels high."""
    options = {"stroke": stroke or None, "notes": list(notes)}
    return {
        "mark": "points",
        "name": name,
        "x": list(x),
        "y": list(y),
        "colour": colour,
        "size": size,
        **_given(options),
    }


def boxes(
    name: str,
    x0: Sequence[float],
    x1: Sequence[float],
    y0: Sequence[float] = (),
    y1: Sequence[float] = (),
    colour: str = "",
    *,
    notes: Sequence[str] = (),
    texts: Sequence[str] = (),
    opacity: Sequence[float] | float | None = None,
) -> Mark:
    """Rectangles: bars, periods, pieces of bars, fields of a table. A text stands inside where it fits."""
    options = {
        "y0": list(y0),
        "y1": list(y1),
        "notes": list(notes),
        "texts": list(texts),
        "opacity": opacity,
    }
    return {
        "mark": "boxes",
        "name": name,
        "x0": list(x0),
        "x1": list(x1),
        "colour": colour,
        **_given(options),
    }


def bars(
    name: str,
    bounds: Sequence[Sequence[float]],
    colour: str,
    **more: Any,
) -> Mark:
    """The same from (x0, x1, y0, y1) of each box."""
    x0 = []
    x1 = []
    y0 = []
    y1 = []
    for left, right, top, bottom in bounds:
        x0.append(left)
        x1.append(right)
        y0.append(top)
        y1.append(bottom)
    return boxes(name, x0, x1, y0, y1, colour, **more)


def ranges(
    y: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    colour: str,
) -> Mark:
    """Level strokes from ``low`` to ``high``, with an end at each side: error bars."""
    return {
        "mark": "ranges",
        "y": list(y),
        "low": list(low),
        "high": list(high),
        "colour": colour,
    }


def texts(
    x: Sequence[float],
    y: Sequence[float],
    said: Sequence[str],
) -> Mark:
    """A text at the right of each point."""
    return {
        "mark": "texts",
        "x": list(x),
        "y": list(y),
        "texts": list(said),
    }


def thinned(drawn: Figure, most: int) -> Figure:
    """The figure with at most about so many points in each line and area: of each part the lowest and the highest."""
    marks = [_thinned(mark, most) for mark in drawn["marks"]]
    return {**drawn, "marks": marks}


def _thinned(mark: Mark, most: int) -> Mark:
    if mark["mark"] not in ("line", "area"):
        return mark
    points = len(mark["x"])
    if points <= most:
        return mark
    is_line = mark["mark"] == "line"
    low = mark["y"] if is_line else mark["low"]
    high = mark["y"] if is_line else mark["high"]
    part = math.ceil(2 * points / (most - 2))
    kept = {0, points - 1}
    for start in range(0, points, part):
        end = min(start + part, points)
        places = [place for place in range(start, end) if low[place] is not None]
        if places:
            kept.add(min(places, key=low.__getitem__))
            kept.add(max(places, key=high.__getitem__))
    columns: Mark = {}
    for key in ("x", "y", "low", "high", "notes"):
        if key in mark:
            columns[key] = [mark[key][place] for place in sorted(kept)]
    return {**mark, **columns}


def rounded(values: Iterable[float], digits: int = 3) -> list[float]:
    """Values with few digits, so that the page stays small."""
    return [round(value, digits) for value in values]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Without the options that are None or an empty list."""
    return {name: value for name, value in options.items() if value is not None and value != []}
