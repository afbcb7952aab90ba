"""The figures of a sweep's page, as `orchestrator.report.marks` describes them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator import text
from orchestrator.report.figures import GLOBAL, SERIES, link_colour, stacked
from orchestrator.report.marks import Figure, Mark, area, axis, boxes, figure, line, ranges, rounded, texts
from orchestrator.sweep.curves import CurveBand, RunCurve, band
from orchestrator.sweep.figures import REACHED, Figures, Spread, restrict, spreads
from orchestrator.sweep.tables import Write, spread_in_words

_COLOURS = (GLOBAL, *SERIES)
_DASHES = ("", "8 4", "2 3", "8 3 2 3")  # as in SVG's stroke-dasharray; a solid line first
_LABEL = 30  # characters of a line of a bar's label
_LINE = 15  # pixels of a line of a bar's label
_THICK = 0.65  # of a row, for a bar
_ROOM = 1.6  # of the longest bar: the width of the axis, with room for the figure next to the bar


@dataclass(frozen=True)
class Look:
    """How a case is drawn."""

    case: str
    colour: str
    dash: str


def looks(cases: Sequence[str]) -> list[Look]:
    """A colour for each case; if there are more cases than colours, also other dashes distinguish them."""
    styles = []
    for place, case in enumerate(cases):
        repetition, colour = divmod(place, len(_COLOURS))
        dash = repetition % len(_DASHES)
        styles.append(Look(case, _COLOURS[colour], _DASHES[dash]))
    return styles


def curves(cases: Sequence[Look], bands: Sequence[CurveBand | None], label: str, metric: str = "accuracy") -> Figure:
    """The mean of a metric for each case, over a band from its lowest to its highest run."""
    areas = []
    means = []
    write = text.percent if metric == "accuracy" else text.number
    for look, drawn in zip(cases, bands, strict=True):
        if drawn is None:
            continue
        if drawn.low != drawn.high:
            x = rounded(drawn.x)
            low = rounded(drawn.low, 5)
            high = rounded(drawn.high, 5)
            areas.append(area(x, low, high, look.colour) | {"group": look.case})
        means.append(_mean(look, drawn, write))
    over = "round" if label == "round" else "time"
    title = f"{metric.capitalize()} by {over}"
    if metric == "accuracy":
        y = axis(metric, format="percent")
    else:
        y = axis(metric, zero=True)
    return figure(title, axis(label, zero=True), y, [*areas, *means], 300, hover="x")


def both_curves(
    cases: Sequence[Look], read: Callable[[str], Sequence[RunCurve]], metric: str = "accuracy"
) -> dict[str, Figure]:
    """The curves over rounds and over seconds, by their ids on a page. ``read`` gives the curves of a case, of which
    only the bands are kept."""
    by_round = []
    by_seconds = []
    for look in cases:
        runs = read(look.case)
        by_round.append(band([run.by_round for run in runs]))
        by_seconds.append(band([run.by_seconds for run in runs]))
    return {
        f"{metric}-rounds": curves(cases, by_round, "round", metric),
        f"{metric}-time": curves(cases, by_seconds, "seconds of training", metric),
    }


def _mean(look: Look, band: CurveBand, write: Callable[[float], str]) -> Mark:
    notes = []
    for mean, low, high in zip(band.mean, band.low, band.high, strict=True):
        note = write(mean)
        if low != high:
            note += f" ({write(low)} to {write(high)})"
        notes.append(note)
    x = rounded(band.x)
    y = rounded(band.mean, 5)
    return line(look.case, x, y, look.colour, width=2, dash=look.dash or None, notes=notes)


def bars(
    cases: Sequence[Look],
    runs: Mapping[str, Sequence[Figures]],
    name: str,
    label: str,
    write: Write,
) -> Figure:
    """The mean of a figure for each case, with an error bar from the lowest to the highest run."""
    marks = []
    highs = []
    lows = []
    labels = []
    for row, look in enumerate(cases):
        of_case = runs[look.case]
        values = [figures[name] for figures in restrict(of_case) if name in figures]
        mean = sum(values) / len(values) if values else 0.0
        spread = spreads(of_case).get(name)
        words = "–"
        if spread is not None:
            words = spread_in_words(spread, write, len(of_case))
        bottom = row - _THICK / 2
        top = row + _THICK / 2
        bar = boxes("", [0.0], [mean], [bottom], [top], look.colour, notes=[f"{look.case}: {words}"])
        marks.append(bar)
        highs.append(max(values, default=0.0))
        lows.append(min(values, default=0.0))
        labels.append(words)
    rows = [float(row) for row in range(len(cases))]
    strokes = ranges(rows, lows, highs, "var(--quiet)")
    longest = max(highs, default=0.0)
    return _horizontal(cases, [*marks, strokes, texts(highs, rows, labels)], longest, label)


def stacked_bytes(cases: Sequence[Look], runs: Mapping[str, Sequence[Figures]], prefix: str, label: str) -> Figure:
    """The mean bytes of each case, stacked by class of links."""
    by_case = {look.case: spreads(runs[look.case]) for look in cases}
    names = _with_bytes(by_case.values(), prefix)
    parts: dict[str, dict[str, tuple[float, str]]] = {}
    for name in names:
        link_class = name.removeprefix(prefix)
        parts[link_class] = {}
        for case, figures in by_case.items():
            if name in figures:
                mean = figures[name].mean
                parts[link_class][case] = (mean, f"{link_class}: {text.size(mean)}")
    totals = []
    labels = []
    for case, figures in by_case.items():
        total = sum(figures[name].mean for name in names if name in figures)
        some_never_reached = any(not run.get(REACHED, 1) for run in runs[case])
        totals.append(total)
        labels.append(f"≥ {text.size(total)}" if some_never_reached else text.size(total))
    rows = [float(row) for row in range(len(cases))]
    colours = {link_class: link_colour(link_class) for link_class in parts}
    marks = stacked(list(by_case), parts, colours, _THICK)
    if marks:
        marks = [*marks, texts(totals, rows, labels)]
    longest = max(totals, default=0.0)
    drawn = _horizontal(cases, marks, longest, label)
    drawn["x"]["format"] = "bytes"
    return drawn


def _with_bytes(cases: Iterable[Mapping[str, Spread]], prefix: str) -> list[str]:
    """The names of figures with this prefix that are not 0 in some case."""
    names = set()
    for figures in cases:
        for name, spread in figures.items():
            if name.startswith(prefix) and spread.mean:
                names.add(name)
    return sorted(names)


def _horizontal(cases: Sequence[Look], marks: list[Mark], longest: float, label: str) -> Figure:
    wrapped = [textwrap.wrap(look.case, _LABEL, break_on_hyphens=False) or [""] for look in cases]
    most_lines = max((len(lines) for lines in wrapped), default=1)
    pitch = max(26, 10 + _LINE * most_lines)
    labels = ["\n".join(lines) for lines in wrapped]
    y = axis(labels=labels)
    width = longest * _ROOM or 1.0
    x = axis(label, range=(0.0, width))
    return figure(label.capitalize(), x, y, marks, pitch * len(cases))
