"""The figures of a sweep's page, as `orchestrator.report.marks` describes them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator import text
from orchestrator.report.figures import GLOBAL, SERIES, link_colour, stacked
from orchestrator.report.marks import Figure, Mark, area, axis, boxes, figure, line, ranges, rounded, texts
from orchestrator.sweep.curves import CurveBand, RunCurve, band
from orchestrator.sweep.figures import REACHED, Figures, restrict, spreads
from orchestrator.sweep.tables import Write, spread_in_words

_COLOURS = (GLOBAL, *SERIES)
_DASHES = ("", "8 4", "2 3", "8 3 2 3")  # as in SVG's stroke-dasharray; a solid line first
_LABEL = 30  # characters of a line of a bar's label
_LINE = 15  # pixels of a line of a bar's label
_THICK = 0.65  # of a row, for a bar
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


def curves(cases: Sequence[Look], bands: Sequence[CurveBand | None], label: str, metric: str = "accuracy") -> Figure:
    """The mean of a metric for each case, over a band from its lowest to its highest run."""
    drawn = [(look, band) for look, band in zip(cases, bands, strict=True) if band is not None]
    marks = [
        area(rounded(band.x), rounded(band.low, 5), rounded(band.high, 5), look.colour) | {"group": look.case}
        for look, band in drawn
        if band.low != band.high
    ]
    marks += [_mean(look, band, text.percent if metric == "accuracy" else text.number) for look, band in drawn]
    title = f"{metric.capitalize()} by {'round' if label == 'round' else 'time'}"
    if metric == "accuracy":
        y = axis(metric, format="percent")
    else:
        y = axis(metric, zero=True)
    return figure(title, axis(label, zero=True), y, marks, 300, hover="x")


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
    notes = [
        write(mean) if low == high else f"{write(mean)} ({write(low)} to {write(high)})"
        for mean, low, high in zip(band.mean, band.low, band.high, strict=True)
    ]
    y = rounded(band.mean, 5)
    return line(look.case, rounded(band.x), y, look.colour, width=2, dash=look.dash or None, notes=notes)


def bars(
    cases: Sequence[Look],
    runs: Mapping[str, Sequence[Figures]],
    name: str,
    label: str,
    write: Write,
) -> Figure:
    """The mean of a figure for each case, with an error bar from the lowest to the highest run."""
    values = [[each[name] for each in restrict(runs[look.case]) if name in each] for look in cases]
    means = [sum(of) / len(of) if of else 0.0 for of in values]
    highs = [max(of, default=0.0) for of in values]
    lows = [min(of, default=0.0) for of in values]
    found = [spreads(runs[look.case]).get(name) for look in cases]
    said = [
        "–" if spread is None else spread_in_words(spread, write, len(runs[look.case]))
        for look, spread in zip(cases, found, strict=True)
    ]
    rows = [float(row) for row in range(len(cases))]
    drawn = [
        boxes(
            *("", [0.0], [mean], [row - _THICK / 2], [row + _THICK / 2], look.colour),
            notes=[f"{look.case}: {each}"],
        )
        for row, look, mean, each in zip(rows, cases, means, said, strict=True)
    ]
    strokes = ranges(rows, lows, highs, "var(--quiet)")
    return _horizontal(cases, [*drawn, strokes, texts(highs, rows, said)], max(highs, default=0.0), label)


def stacked_bytes(cases: Sequence[Look], runs: Mapping[str, Sequence[Figures]], prefix: str, label: str) -> Figure:
    """The mean bytes of each case, stacked by class of links."""
    found = {look.case: spreads(runs[look.case]) for look in cases}
    names = sorted({name for each in found.values() for name in each if name.startswith(prefix) and each[name].mean})
    parts = {
        name.removeprefix(prefix): {
            case: (of[name].mean, f"{name.removeprefix(prefix)}: {text.size(of[name].mean)}")
            for case, of in found.items()
            if name in of
        }
        for name in names
    }
    totals = [sum(of[name].mean for name in names if name in of) for of in found.values()]
    never = [any(not each.get(REACHED, 1) for each in runs[case]) for case in found]
    said = [f"{'≥ ' if censored else ''}{text.size(total)}" for total, censored in zip(totals, never, strict=True)]
    rows = [float(row) for row in range(len(cases))]
    pieces = stacked(list(found), parts, {link_class: link_colour(link_class) for link_class in parts}, _THICK)
    if pieces:
        marks = [*pieces, texts(totals, rows, said)]
    else:
        marks = []
    drawn = _horizontal(cases, marks, max(totals, default=0.0), label)
    drawn["x"]["format"] = "bytes"
    return drawn


def _horizontal(cases: Sequence[Look], marks: list[Mark], longest: float, label: str) -> Figure:
    wrapped = [textwrap.wrap(look.case, _LABEL, break_on_hyphens=False) or [""] for look in cases]
    pitch = max(26, 10 + _LINE * max((len(lines) for lines in wrapped), default=1))
    y = axis(labels=["\n".join(lines) for lines in wrapped])
    x = axis(label, range=(0.0, longest * _ROOM or 1.0))
    return figure(label.capitalize(), x, y, marks, pitch * len(cases))
