"""The figures of a sweep's page, as `orchestrator.report.marks` describes them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator import text
from orchestrator.report.figures import GLOBAL, SERIES, link_colour, stacked
from orchestrator.report.marks import Figure, Mark, area, axis, boxes, figure, line, ranges, rounded, texts
from orchestrator.sweep.curves import CurveBand, RunCurve, band
from orchestrator.sweep.quantities import REACHED, Figures, Spread, restrict, spreads
from orchestrator.sweep.tables import Write, spread_in_words

_COLOURS = (GLOBAL, *SERIES)
_DASHES = ("", "8 4", "2 3", "8 3 2 3")  # as in SVG's stroke-dasharray; a solid line first
_LABEL = 30  # characters of a line of a bar's label
_LINE = 15  # pixels of a line of a bar's label
_THICK = 0.65  # of a row, for a bar
_ROOM = 1.6  # of the longest bar: the width of the axis, with room for the figure next to the bar

Spreads = Mapping[str, Spread]  # by the names of figures
Part = tuple[float, str]  # the length of a part of a bar, and its note


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


def curves(
    cases: Sequence[Look],
    bands: Sequence[CurveBand | None],
    label: str,
    metric: str = "accuracy",
) -> Figure:
    """The mean of a metric for each case, over a band from its lowest to its highest run."""
    areas = []
    means = []
    is_accuracy = metric == "accuracy"
    write = text.percent if is_accuracy else text.number
    for look, drawn in zip(cases, bands, strict=True):
        if drawn is None:
            continue
        if drawn.low != drawn.high:
            areas.append(_range(look, drawn))
        means.append(_mean(look, drawn, write))
    over = "round" if label == "round" else "time"
    title = f"{metric.capitalize()} by {over}"
    x = axis(label, zero=True)
    if is_accuracy:
        y = axis(metric, format="percent")
    else:
        y = axis(metric, zero=True)
    marks = [*areas, *means]
    return figure(title, x, y, marks, 300, hover="x")


def _range(look: Look, band: CurveBand) -> Mark:
    x = rounded(band.x)
    low = rounded(band.low, 5)
    high = rounded(band.high, 5)
    mark = area(x, low, high, look.colour)
    return mark | {"group": look.case}


def both_curves(
    cases: Sequence[Look],
    read: Callable[[str], Sequence[RunCurve]],
    metric: str = "accuracy",
) -> dict[str, Figure]:
    """The curves over rounds and over seconds, by their ids on a page. ``read`` gives the curves of a case, of which
    only the bands are kept."""
    by_round = []
    by_seconds = []
    for look in cases:
        runs = read(look.case)
        over_rounds = [run.by_round for run in runs]
        over_seconds = [run.by_seconds for run in runs]
        by_round.append(band(over_rounds))
        by_seconds.append(band(over_seconds))
    return {
        f"{metric}-rounds": curves(cases, by_round, "round", metric),
        f"{metric}-time": curves(cases, by_seconds, "seconds of training", metric),
    }


def _mean(look: Look, band: CurveBand, write: Write) -> Mark:
    notes = []
    for mean, low, high in zip(band.mean, band.low, band.high, strict=True):
        note = write(mean)
        if low != high:
            note += f" ({write(low)} to {write(high)})"
        notes.append(note)
    return line(
        look.case,
        rounded(band.x),
        rounded(band.mean, 5),
        look.colour,
        width=2,
        dash=look.dash or None,
        notes=notes,
    )


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
        values = []
        for run in restrict(of_case):
            if name in run:
                values.append(run[name])
        mean = sum(values) / len(values) if values else 0.0
        spread = spreads(of_case).get(name)
        words = "–"
        if spread is not None:
            words = spread_in_words(spread, write, len(of_case))
        bar = boxes(
            "",
            [0.0],
            [mean],
            [row - _THICK / 2],
            [row + _THICK / 2],
            look.colour,
            notes=[f"{look.case}: {words}"],
        )
        marks.append(bar)
        highs.append(max(values, default=0.0))
        lows.append(min(values, default=0.0))
        labels.append(words)
    rows = _rows(cases)
    marks.append(ranges(rows, lows, highs, "var(--quiet)"))
    marks.append(texts(highs, rows, labels))
    longest = max(highs, default=0.0)
    return _horizontal(cases, marks, longest, label)


def _rows(cases: Sequence[Look]) -> list[float]:
    """The places of the cases on the axis of a bar chart."""
    return list(map(float, range(len(cases))))


def stacked_bytes(
    cases: Sequence[Look],
    runs: Mapping[str, Sequence[Figures]],
    prefix: str,
    label: str,
) -> Figure:
    """The mean bytes of each case, stacked by class of links."""
    by_case = {}
    for look in cases:
        by_case[look.case] = spreads(runs[look.case])
    names = _with_bytes(by_case.values(), prefix)
    parts: dict[str, dict[str, Part]] = {}
    for name in names:
        link_class = name.removeprefix(prefix)
        parts[link_class] = {}
        for case, figures in by_case.items():
            if name in figures:
                mean = figures[name].mean
                note = f"{link_class}: {text.size(mean)}"
                parts[link_class][case] = (mean, note)
    totals = []
    labels = []
    for case, figures in by_case.items():
        means = [figures[name].mean for name in names if name in figures]
        total = sum(means)
        words = text.size(total)
        if not all(run.get(REACHED, 1) for run in runs[case]):
            words = f"≥ {words}"
        totals.append(total)
        labels.append(words)
    colours = {link_class: link_colour(link_class) for link_class in parts}
    marks = stacked(list(by_case), parts, colours, _THICK)
    if marks:
        marks = [*marks, texts(totals, _rows(cases), labels)]
    longest = max(totals, default=0.0)
    drawn = _horizontal(cases, marks, longest, label)
    drawn["x"]["format"] = "bytes"
    return drawn


def _with_bytes(cases: Iterable[Spreads], prefix: str) -> list[str]:
    """The names of figures with this prefix that are not 0 in some case."""
    names = set()
    for figures in cases:
        for name, spread in figures.items():
            if name.startswith(prefix) and spread.mean:
                names.add(name)
    return sorted(names)


def _horizontal(
    cases: Sequence[Look],
    marks: list[Mark],
    longest: float,
    label: str,
) -> Figure:
    labels = []
    most_lines = 1
    for look in cases:
        lines = textwrap.wrap(look.case, _LABEL, break_on_hyphens=False) or [""]
        most_lines = max(most_lines, len(lines))
        labels.append("\n".join(lines))
    pitch = max(26, 10 + _LINE * most_lines)
    width = longest * _ROOM or 1.0
    x = axis(label, range=(0.0, width))
    y = axis(labels=labels)
    height = pitch * len(cases)
    return figure(label.capitalize(), x, y, marks, height)
