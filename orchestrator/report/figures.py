"""The figures of learning and of traffic, and the colours that figures share. `orchestrator.report.marks` says what a
figure is.

Times on the axes are seconds since the training began, as in the scenario's faults. Colours are variables of style.css,
so figures follow the light or dark scheme of the page.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, cycle, islice
from typing import Any

from node.catalogue.datasets import CLIENTS
from orchestrator import text
from orchestrator.record.rows import Metric
from orchestrator.report.marks import Figure, Mark, area, axis, bars, boxes, figure, line, rounded
from orchestrator.results.facts import DEVICE_SCOPES, Facts
from orchestrator.results.history import History
from orchestrator.results.steps import steps
from orchestrator.results.story import Story
from orchestrator.results.traffic import volumes

GLOBAL = "var(--global)"
SERIES = tuple(f"var(--series-{number})" for number in range(1, 9))
MANY_SERIES = "var(--many)"
LINKS = {"device-edge": SERIES[4], "edge-cloud": SERIES[6], "edge-edge": SERIES[0], "device-cloud": GLOBAL}
FAULTS = {
    action: f"var(--{action})"
    for action in (
        "crash",
        "power-off",
        "pause",
        "disconnect",
        "partition",
        "degrade",
        "handover",
        "slow",
        "join",
        "leave",
        "new-address",
        "move",
    )
}
TIERS = {"cloud": GLOBAL, "edge": SERIES[1], "device": SERIES[0]}
FEW = 3  # faults of an action that shade the curves; more would shade them all over
EACH = 100  # faults of an action that are drawn one by one above the curves; of more, the periods with any
MOST_METRICS = 24  # further metrics that are drawn
MOST_POINTS = 20_000  # of a curve; of more, the extremes of short pieces are drawn
LEAST = 0.004  # the width of a moment, as a share of the run's length

Place = Callable[[float], float]  # from a time of the record to a place on the x axis


def curves(history: Facts, name: str, *, against: str) -> Figure:
    """A metric of the global model, of each edge and of the devices, against "time" or "rounds", below the faults."""
    began = history.training_began or 0.0
    by_time = against == "time"
    place: Place = (lambda t: t - began) if by_time else rounds_at(history)
    series = history.edge_series(name)
    marks = _of_devices(history, name, began, by_time=by_time)
    for (label, rows), colour in _coloured(series):
        group = f"{len(series)} edges" if len(series) > len(SERIES) else None
        marks.append(_curve(label, rows, began, colour, by_time=by_time, group=group))
    overall = history.global_series(name)
    if overall:
        marks.append(_curve("global", overall, began, GLOBAL, by_time=by_time, width=3))
    title = f"{'MAE' if name == 'mae' else name.capitalize()} by {'time' if by_time else 'round'}"
    x = axis(time_axis(history) if by_time else "round", zero=True)
    if text.is_fraction(name):
        y = axis(name, format="percent")
    else:
        y = axis(name, zero=True)
    shades = _shades(history, place)
    return figure(title, x, y, marks, 230, lanes=_lanes(history, place), shades=shades, hover="x")


def learning(history: Facts) -> dict[str, Figure]:
    """The figures of accuracy and loss, and of all other metrics, by their ids on the page. Those of accuracy show the
    main metric of a task without accuracy."""
    both = {
        f"{place}-{against}": curves(history, name, against=against)
        for place, name in (("accuracy", history.main_metric), ("loss", "loss"))
        for against in ("time", "rounds")
    }
    return both | further(history)


def staleness(history: History) -> Figure:
    """The staleness of the updates that an asynchronous server used for each version: their mean, and the highest."""
    mean, highest = (history.metrics(name, "updates") for name in ("staleness", "staleness_highest"))
    named = (("mean", mean, GLOBAL, 3.0), ("highest", highest, SERIES[0], 1.5))
    marks = [
        _curve(label, rows, 0.0, colour, by_time=False, width=width) for label, rows, colour, width in named if rows
    ]
    y = axis("versions that an update is behind", zero=True)
    return figure("Staleness of updates", axis("version", zero=True), y, marks, 230, hover="x")


def further(history: Facts) -> dict[str, Figure]:
    """The metrics that other figures do not draw, by name, with a curve for each node and scope. Of an algorithm with
    many devices, those of other nodes."""
    drawn = (history.main_metric, "loss", "staleness", "staleness_highest", CLIENTS)
    names = dict.fromkeys(name for _, name in history.metric_names() if name not in drawn)
    recalls = [name for name in names if name.startswith(text.RECALL)]
    others = [name for name in names if name not in recalls]
    found = {f"metric-{place}": _by_node(history, name) for place, name in enumerate(others[:MOST_METRICS])}
    return found | ({"recalls": _recalls(history, recalls)} if recalls else {})


def _recalls(history: Facts, names: Sequence[str]) -> Figure:
    """The recall of each class of the global model, or of the mean over clients with models of their own."""
    series = {f"class {name.removeprefix(text.RECALL)}": history.global_series(name) for name in names}
    known = {label: rows for label, rows in series.items() if rows}
    return _drawn(history, "Recall of each class", known, "classes", axis("recall", format="percent"))


def _by_node(history: Facts, name: str) -> Figure:
    series = {
        node if scope == "global" else f"{node} ({scope})": rows
        for scope in sorted({scope for scope, each in history.metric_names() if each == name})
        for node, rows in history.series(name, scope).items()
        if history.plan.get("programs") or node not in history.many_devices
    }
    return _drawn(history, name, series, "nodes", axis(name))


def _drawn(
    history: Facts,
    title: str,
    series: dict[str, list[Metric]],
    what: str,
    y: dict[str, Any],
) -> Figure:
    began = history.training_began or 0.0
    group = f"{len(series)} {what}" if len(series) > len(SERIES) else None
    coloured = _coloured(series)
    marks = [_curve(label, rows, began, colour, by_time=True, group=group) for (label, rows), colour in coloured]
    return figure(title, axis(time_axis(history), zero=True), y, marks, 230, hover="x")


def time_axis(history: Facts) -> str:
    return "seconds of the run" if history.training_began is None else "seconds of training"


def rounds_at(history: Facts) -> Place:
    """How many rounds of the first leading node were over at a time, with the share of the current one: 2.5 is the
    middle of round 3. So a curve's value after round 3 is at 3."""
    leader = next(iter(history.leaders), None)
    spans = {each.round: each for each in history.rounds() if each.node == leader}
    edges = sorted((each.start, each.round - 1.0) for each in spans.values())
    edges += [(each.end, float(each.round)) for each in spans.values() if each.end is not None]
    edges.sort()
    times = [t for t, _ in edges]

    def place(t: float) -> float:
        after = bisect_right(times, t)
        if after in (0, len(edges)):
            return edges[-1][1] if edges and after else 0.0
        (t0, r0), (t1, r1) = edges[after - 1], edges[after]
        return r0 + (r1 - r0) * (t - t0) / (t1 - t0)

    return place


def _coloured(series: dict[str, list[Metric]]) -> Iterable[tuple[tuple[str, list[Metric]], str]]:
    if len(series) <= len(SERIES):
        colours = SERIES
    else:
        colours = (MANY_SERIES,) * len(series)
    return zip(series.items(), colours, strict=False)


def _curve(
    label: str,
    rows: Sequence[Metric],
    began: float,
    colour: str,
    *,
    by_time: bool,
    width: float = 1.5,
    group: str | None = None,
) -> Mark:
    whole: Sequence[float] = [round(row.t - began, 3) for row in rows] if by_time else steps(rows)
    kept = thinned([row.value for row in rows], MOST_POINTS)
    x = [whole[place] for place in kept]
    y = [rows[place].value for place in kept]
    return line(label, x, y, colour, width=width, points=len(rows) <= 60 and group is None, group=group)


def thinned(values: Sequence[float], most: int) -> Sequence[int]:
    """The places of at most ``most`` of these values: all, or the lowest and the highest of pieces of equal length."""
    if len(values) <= most:
        return range(len(values))
    pieces = most // 2
    kept: list[int] = []
    for piece in range(pieces):
        places = range(len(values) * piece // pieces, len(values) * (piece + 1) // pieces)
        known = [place for place in places if not math.isnan(values[place])] or places
        ends = {min(known, key=values.__getitem__), max(known, key=values.__getitem__)}
        kept += sorted(ends)
    return kept


def _of_devices(history: Facts, name: str, began: float, *, by_time: bool) -> list[Mark]:
    """A thin curve for each device; of many devices the mean over a band from the lowest to the highest, by round."""
    if not history.many_devices:
        series = history.tier_series(name, "device", *DEVICE_SCOPES)
        if history.clients:
            group = f"clients of the round, of {history.clients:,}"
        else:
            group = text.count(len(series), "device")
        return [
            _curve(label, rows, began, MANY_SERIES, by_time=by_time, width=0.8, group=group)
            for label, rows in series.items()
        ]
    bands = history.bands(name)
    if not bands:
        return []
    group = text.count(len(history.many_devices), "device")
    of = bands.values()
    if by_time:
        x = [round(each.t - began, 3) for each in of]
    else:
        x = list(map(float, bands))
    return [
        area(x, [each.low for each in of], [each.high for each in of], MANY_SERIES, name=f"{group}: range"),
        line(f"{group}: mean", x, [each.mean for each in of], MANY_SERIES),
    ]


def _lanes(history: Facts, place: Place) -> list[Mark]:
    """The faults that took effect, in a row for each action."""
    last = history.seconds
    least = LEAST * (place(last) - place(history.training_began or 0.0))
    found: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for span in history.faults():
        if span.start is not None:
            start = place(span.start)
            end = place(last if span.end is None else span.end)
            found[span.action].append((start, max(end, start + least), str(span)))
    ordered = [action for action in FAULTS if action in found] + [action for action in found if action not in FAULTS]
    lanes = []
    for action in ordered:
        if len(found[action]) <= EACH:
            spans = found[action]
        else:
            spans = _merged(action, sorted(found[action]))
        starts, ends, notes = zip(*spans, strict=True)
        lanes.append(boxes(action, rounded(starts), rounded(ends), colour=fault_colour(action), notes=notes))
    return lanes


def _merged(action: str, spans: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Periods of one or more of these (start, end, note), which are in order of their starts."""
    periods: list[tuple[float, float, int]] = []
    for start, end, _ in spans:
        if periods and start <= periods[-1][1]:
            begin, until, number = periods[-1]
            periods[-1] = begin, max(until, end), number + 1
        else:
            periods.append((start, end, 1))
    return [(start, end, f"{action}, {number} times") for start, end, number in periods]


def _shades(history: Facts, place: Place) -> list[dict[str, Any]]:
    """A shade behind the curves for each fault of an action that happened only a few times."""
    spans = [span for span in history.faults() if span.start is not None]
    times = Counter(span.action for span in spans)
    last = history.seconds
    return [
        {
            "x0": round(place(span.start or 0.0), 3),
            "x1": round(place(last if span.end is None else span.end), 3),
            "colour": fault_colour(span.action),
        }
        for span in spans
        if times[span.action] <= FEW
    ]


def bytes_over_time(story: Story) -> Figure:
    """The bytes that the links of each class have delivered."""
    began = story.training_began or 0.0
    marks = [
        line(name, rounded(t - began for t in of), list(of.values()), link_colour(name))
        for name in dict.fromkeys(story.link_classes.values())
        if (of := story.usage.delivered.get(name))
    ]
    x = axis(time_axis(story), zero=True)
    y = axis("bytes", format="bytes", zero=True)
    return figure("Bytes delivered by class of links", x, y, marks, 190, hover="x", **_faults_over_time(story))


def rounds_over_time(story: Story) -> Figure:
    began = story.training_began or 0.0
    starts = defaultdict[str, list[tuple[float, int]]](list)
    for each in story.rounds():
        starts[each.node].append((each.start - began, each.edge_round or each.round))
    colours = cycle(SERIES)
    marks = []
    for node in (name for name in story.nodes if name in starts):
        x, y = zip(*starts[node], (story.seconds - began, starts[node][-1][1]), strict=True)
        leads = node in story.leaders
        group = f"{len(starts)} coordinators" if len(starts) > 12 else None
        colour, width = (GLOBAL, 3.0) if leads else (next(colours), 1.5)
        marks.append(line(node, rounded(x), y, colour, width=width, steps=True, group=group))
    x_axis = axis(time_axis(story), zero=True)
    y_axis = axis("round", zero=True)
    return figure("Rounds of each coordinator", x_axis, y_axis, marks, 190, hover="x", **_faults_over_time(story))


def bars_of_nodes(
    story: Story,
    title: str,
    unit: str,
    values: Mapping[str, float],
    words: Callable[[float], str],
) -> Figure:
    """An upright bar for each node. ``words``: a value in words."""
    place = {name: number for number, name in enumerate(story.nodes)}
    marks = []
    for tier, colour in TIERS.items():
        heights = {name: values.get(name, 0.0) for name, node in story.nodes.items() if node["tier"] == tier}
        notes = [f"{name}: {words(height)}" for name, height in heights.items()]
        bounds = [(*rounded((place[name] - 0.38, place[name] + 0.38)), 0.0, of) for name, of in heights.items()]
        marks.append(bars(tier, bounds, colour, notes=notes))
    y = axis(unit, format="bytes" if unit == "bytes" else "number", zero=True)
    return figure(title, axis(labels=list(place)), y, [mark for mark in marks if mark["x0"]], 120)


def _faults_over_time(history: Facts) -> dict[str, Any]:
    began = history.training_began or 0.0
    return {"lanes": _lanes(history, lambda t: t - began), "shades": _shades(history, lambda t: t - began)}


def traffic(history: History) -> Figure:
    """The bytes of sent messages, by link class and kind."""
    sent: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for row in volumes.traffic(history):
        if row.direction == "sent":
            link_class = history.link_classes.get((row.node, row.peer), "no link")
            sent[row.kind][link_class][0] += row.bytes
            sent[row.kind][link_class][1] += row.messages
    classes = sorted({name for by_class in sent.values() for name in by_class})
    bars = {
        kind: {name: (float(by_class[name][0]), _sent(kind, *by_class[name])) for name in classes if name in by_class}
        for kind, by_class in sorted(sent.items())
    }
    marks = stacked(classes, bars, dict(zip(bars, cycled(len(bars)), strict=True)))
    x = axis("bytes in messages sent", format="bytes", zero=True)
    y = axis(labels=classes)
    return figure("Messages sent, by class of links and kind of message", x, y, marks, 42 * max(1, len(classes)))


def _sent(kind: str, count: int, messages: int) -> str:
    return f"{kind}: {text.size(count)}, {text.count(messages, 'message')}"


def stacked(
    rows: Sequence[str], parts: dict[str, dict[str, tuple[float, str]]], colours: dict[str, str], thick: float = 0.7
) -> list[Mark]:
    """Level bars of pieces. ``parts``: by the name of a piece, and by row, its length and note."""
    ends = {
        row: list(accumulate((of[row][0] if row in of else 0.0 for of in parts.values()), initial=0.0)) for row in rows
    }
    marks = []
    for place, (name, of) in enumerate(parts.items()):
        those = [(number, row) for number, row in enumerate(rows) if row in of]
        bounds = [(*ends[row][place : place + 2], number - thick / 2, number + thick / 2) for number, row in those]
        marks.append(bars(name, bounds, colours[name], notes=[of[row][1] for _, row in those]))
    return marks


def cycled(number: int) -> list[str]:
    """So many colours; they repeat if there are too few."""
    return list(islice(cycle((GLOBAL, *SERIES)), number))


def link_colour(link_class: str) -> str:
    """The colour of a link class: its own, or one derived from its name."""
    return LINKS.get(link_class) or SERIES[sum(link_class.encode()) % len(SERIES)]


def fault_colour(action: str) -> str:
    return FAULTS.get(action, MANY_SERIES)
