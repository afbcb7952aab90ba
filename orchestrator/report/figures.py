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
from itertools import cycle, islice
from typing import Any

from node.catalogue.tasks import CLIENTS
from orchestrator import text
from orchestrator.record.events.curves import Curves
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
LINKS = {
    "device-edge": SERIES[4],
    "edge-cloud": SERIES[6],
    "edge-edge": SERIES[0],
    "device-cloud": GLOBAL,
}
_ACTIONS = (
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
FAULTS = {action: f"var(--{action})" for action in _ACTIONS}
TIERS = {"cloud": GLOBAL, "edge": SERIES[1], "device": SERIES[0]}
FEW = 3  # faults of an action that shade the curves; more would shade them all over
EACH = 100  # faults of an action that are drawn one by one above the curves; of more, the periods with any
MOST_METRICS = 24  # further metrics that are drawn
MOST_POINTS = 20_000  # of a curve; of more, the extremes of short pieces are drawn
LEAST = 0.004  # the width of a moment, as a share of the run's length

Place = Callable[[float], float]  # from a time of the record to a place on the x axis
Series = dict[str, list[Metric]]  # the rows of each curve by its label
Period = tuple[float, float, str]  # start and end on the x axis, and a note


def curves(history: Facts, name: str, *, against: str) -> Figure:
    """A metric of the global model, of each edge and of the devices, against "time" or "rounds", below the faults."""
    began = history.training_began or 0.0
    by_time = against == "time"
    place: Place = (lambda t: t - began) if by_time else rounds_at(history)
    series = history.edge_series(name)
    group = _group(series, "edges")
    marks = _of_devices(history, name, began, by_time=by_time)
    for (label, rows), colour in _coloured(series):
        curve = _curve(label, rows, began, colour, by_time=by_time, group=group)
        marks.append(curve)
    overall = history.global_series(name)
    if overall:
        curve = _curve("global", overall, began, GLOBAL, by_time=by_time, width=3)
        marks.append(curve)
    label = "MAE" if name == "mae" else name.capitalize()
    if by_time:
        title = f"{label} by time"
        x = axis(time_axis(history), zero=True)
    else:
        title = f"{label} by round"
        x = axis("round", zero=True)
    if text.is_fraction(name):
        y = axis(name, format="percent")
    else:
        y = axis(name, zero=True)
    lanes = _lanes(history, place)
    shades = _shades(history, place)
    return figure(title, x, y, marks, 230, lanes=lanes, shades=shades, hover="x")


def _group(series: Mapping[str, Any], what: str) -> str | None:
    """The entry of the legend that these curves share; None if each has a colour of its own."""
    if len(series) > len(SERIES):
        return f"{len(series)} {what}"
    return None


def learning(history: Facts) -> dict[str, Figure]:
    """The figures of accuracy and loss, and of all other metrics, by their ids on the page. Those of accuracy show the
    main metric of a task without accuracy."""
    drawn: dict[str, Figure] = {}
    for id, name in (("accuracy", history.main_metric), ("loss", "loss")):
        for against in ("time", "rounds"):
            drawn[f"{id}-{against}"] = curves(history, name, against=against)
    return drawn | further(history)


def staleness(history: History) -> Figure:
    """The staleness of the updates that an asynchronous server used for each version: their mean, and the highest."""
    mean = history.metrics("staleness", "updates")
    highest = history.metrics("staleness_highest", "updates")
    marks = []
    if mean:
        curve = _curve("mean", mean, 0.0, GLOBAL, by_time=False, width=3.0)
        marks.append(curve)
    if highest:
        curve = _curve("highest", highest, 0.0, SERIES[0], by_time=False, width=1.5)
        marks.append(curve)
    x = axis("version", zero=True)
    y = axis("versions that an update is behind", zero=True)
    return figure("Staleness of updates", x, y, marks, 230, hover="x")


def further(history: Facts) -> dict[str, Figure]:
    """The metrics that other figures do not draw, by name, with a curve for each node and scope. Of an algorithm with
    many devices, those of other nodes."""
    drawn_elsewhere = (history.main_metric, "loss", "staleness", "staleness_highest", CLIENTS)
    names = dict.fromkeys(name for _, name in history.metric_names())
    recalls = []
    others = []
    for name in names:
        if name in drawn_elsewhere:
            continue
        if name.startswith(text.RECALL):
            recalls.append(name)
        else:
            others.append(name)
    drawn: dict[str, Figure] = {}
    for number, name in enumerate(others[:MOST_METRICS]):
        drawn[f"metric-{number}"] = _by_node(history, name)
    if recalls:
        drawn["recalls"] = _recalls(history, recalls)
    return drawn


def _recalls(history: Facts, names: Sequence[str]) -> Figure:
    """The recall of each class of the global model, or of the mean over clients with models of their own."""
    series = {}
    for name in names:
        rows = history.global_series(name)
        if rows:
            label = name.removeprefix(text.RECALL)
            series[f"class {label}"] = rows
    y = axis("recall", format="percent")
    return _drawn(history, "Recall of each class", series, "classes", y)


def _by_node(history: Facts, name: str) -> Figure:
    scopes = {scope for scope, metric in history.metric_names() if metric == name}
    runs_programs = bool(history.plan.get("programs"))
    series = {}
    for scope in sorted(scopes):
        for node, rows in history.series(name, scope).items():
            if not runs_programs and node in history.many_devices:
                continue
            label = node if scope == "global" else f"{node} ({scope})"
            series[label] = rows
    return _drawn(history, name, series, "nodes", axis(name))


def _drawn(
    history: Facts,
    title: str,
    series: Series,
    what: str,
    y: dict[str, Any],
) -> Figure:
    began = history.training_began or 0.0
    group = _group(series, what)
    marks = []
    for (label, rows), colour in _coloured(series):
        curve = _curve(label, rows, began, colour, by_time=True, group=group)
        marks.append(curve)
    x = axis(time_axis(history), zero=True)
    return figure(title, x, y, marks, 230, hover="x")


def of_plugins(history: Facts) -> dict[str, Figure]:
    """The figures that plug-ins drew when the run ended, by their ids on the page."""
    latest = {recorded.event.title: recorded.event for recorded in history.recorded(Curves)}
    drawn = {}
    for number, curves in enumerate(latest.values()):
        colours = cycle(SERIES)
        marks = []
        for (name, points), colour in zip(curves.lines.items(), colours, strict=False):
            x = [point[0] for point in points]
            y = [point[1] for point in points]
            marks.append(line(name, x, y, colour, points=len(points) < 2))
        x_axis = axis(curves.x)
        y_axis = axis(curves.y)
        drawn[f"plugin-{number}"] = figure(curves.title, x_axis, y_axis, marks, 230, hover="x")
    return drawn


def time_axis(history: Facts) -> str:
    if history.training_began is None:
        return "seconds of the run"
    return "seconds of training"


def rounds_at(history: Facts) -> Place:
    """How many rounds of the first leading node were over at a time, with the share of the current one: 2.5 is the
    middle of round 3. So a curve's value after round 3 is at 3."""
    leader = next(iter(history.leaders), None)
    rounds = {row.round: row for row in history.rounds() if row.node == leader}
    edges = []
    for row in rounds.values():
        edges.append((row.start, row.round - 1.0))
        if row.end is not None:
            edges.append((row.end, float(row.round)))
    edges.sort()
    times = [t for t, _ in edges]

    def place(t: float) -> float:
        after = bisect_right(times, t)
        if after == 0:
            return 0.0
        if after == len(edges):
            return edges[-1][1]
        t0, r0 = edges[after - 1]
        t1, r1 = edges[after]
        return r0 + (r1 - r0) * (t - t0) / (t1 - t0)

    return place


def _coloured(series: Series) -> Iterable[tuple[tuple[str, list[Metric]], str]]:
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
    all_x: Sequence[float]
    if by_time:
        all_x = [round(row.t - began, 3) for row in rows]
    else:
        all_x = steps(rows)
    values = [row.value for row in rows]
    kept = thinned(values, MOST_POINTS)
    x = []
    y = []
    for place in kept:
        x.append(all_x[place])
        y.append(values[place])
    points = len(rows) <= 60 and group is None
    return line(label, x, y, colour, width=width, points=points, group=group)


def thinned(values: Sequence[float], most: int) -> Sequence[int]:
    """The places of at most ``most`` of these values: all, or the lowest and the highest of pieces of equal length."""
    if len(values) <= most:
        return range(len(values))
    pieces = most // 2
    kept: list[int] = []
    for piece in range(pieces):
        first = len(values) * piece // pieces
        end = len(values) * (piece + 1) // pieces
        places: Sequence[int] = range(first, end)
        numbers = [place for place in places if not math.isnan(values[place])]
        if numbers:
            places = numbers
        lowest = min(places, key=values.__getitem__)
        highest = max(places, key=values.__getitem__)
        kept += sorted({lowest, highest})
    return kept


def _of_devices(
    history: Facts,
    name: str,
    began: float,
    *,
    by_time: bool,
) -> list[Mark]:
    """A thin curve for each device; of many devices the mean over a band from the lowest to the highest, by round."""
    if history.many_devices:
        return _band_of_devices(history, name, began, by_time=by_time)
    series = history.tier_series(name, "device", *DEVICE_SCOPES)
    if history.clients:
        group = f"clients of the round, of {history.clients:,}"
    else:
        group = text.count(len(series), "device")
    marks = []
    for label, rows in series.items():
        curve = _curve(label, rows, began, MANY_SERIES, by_time=by_time, width=0.8, group=group)
        marks.append(curve)
    return marks


def _band_of_devices(
    history: Facts,
    name: str,
    began: float,
    *,
    by_time: bool,
) -> list[Mark]:
    by_round = history.bands(name)
    if not by_round:
        return []
    bands = by_round.values()
    if by_time:
        x = [round(band.t - began, 3) for band in bands]
    else:
        x = [float(number) for number in by_round]
    low = []
    high = []
    mean = []
    for band in bands:
        low.append(band.low)
        high.append(band.high)
        mean.append(band.mean)
    group = text.count(len(history.many_devices), "device")
    return [
        area(x, low, high, MANY_SERIES, name=f"{group}: range"),
        line(f"{group}: mean", x, mean, MANY_SERIES),
    ]


def _lanes(history: Facts, place: Place) -> list[Mark]:
    """The faults that took effect, in a row for each action."""
    last = history.seconds
    least = LEAST * (place(last) - place(history.training_began or 0.0))
    by_action: defaultdict[str, list[Period]] = defaultdict(list)
    for span in history.faults():
        if span.start is None:
            continue
        start = place(span.start)
        end = place(last if span.end is None else span.end)
        period = (start, max(end, start + least), str(span))
        by_action[span.action].append(period)
    ordered = [action for action in FAULTS if action in by_action]
    ordered += [action for action in by_action if action not in FAULTS]
    return [_lane(action, by_action[action]) for action in ordered]


def _lane(action: str, periods: Sequence[Period]) -> Mark:
    if len(periods) > EACH:
        periods = _merged(action, sorted(periods))
    starts = []
    ends = []
    notes = []
    for start, end, note in periods:
        starts.append(round(start, 3))
        ends.append(round(end, 3))
        notes.append(note)
    return boxes(action, starts, ends, colour=fault_colour(action), notes=notes)


def _merged(action: str, spans: Sequence[Period]) -> list[Period]:
    """Periods of one or more of these, which are in order of their starts."""
    periods: list[tuple[float, float, int]] = []
    for start, end, _ in spans:
        if periods and start <= periods[-1][1]:
            first, until, number = periods[-1]
            periods[-1] = (first, max(until, end), number + 1)
        else:
            periods.append((start, end, 1))
    merged = []
    for start, end, number in periods:
        merged.append((start, end, f"{action}, {number} times"))
    return merged


def _shades(history: Facts, place: Place) -> list[dict[str, Any]]:
    """A shade behind the curves for each fault of an action that happened only a few times."""
    times: Counter[str] = Counter()
    for span in history.faults():
        if span.start is not None:
            times[span.action] += 1
    last = history.seconds
    shades = []
    for span in history.faults():
        if span.start is None or times[span.action] > FEW:
            continue
        start = round(place(span.start), 3)
        end = last if span.end is None else span.end
        end = round(place(end), 3)
        shades.append({"x0": start, "x1": end, "colour": fault_colour(span.action)})
    return shades


def bytes_over_time(story: Story) -> Figure:
    """The bytes that the links of each class have delivered."""
    began = story.training_began or 0.0
    marks = []
    for name in dict.fromkeys(story.link_classes.values()):
        delivered = story.usage.delivered.get(name)
        if delivered:
            times = rounded(t - began for t in delivered)
            curve = line(name, times, list(delivered.values()), link_colour(name))
            marks.append(curve)
    x = axis(time_axis(story), zero=True)
    y = axis("bytes", format="bytes", zero=True)
    faults = _faults_over_time(story)
    return figure("Bytes delivered by class of links", x, y, marks, 190, hover="x", **faults)


def rounds_over_time(story: Story) -> Figure:
    began = story.training_began or 0.0
    starts: defaultdict[str, list[float]] = defaultdict(list)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for row in story.rounds():
        starts[row.node].append(row.start - began)
        numbers[row.node].append(row.edge_round or row.round)
    group = f"{len(starts)} coordinators" if len(starts) > 12 else None
    colours = cycle(SERIES)
    marks = []
    for node in story.nodes:
        if node not in starts:
            continue
        end = story.seconds - began
        times = [*starts[node], end]
        rounds = [*numbers[node], numbers[node][-1]]
        if node in story.leaders:
            colour = GLOBAL
            width = 3.0
        else:
            colour = next(colours)
            width = 1.5
        x = rounded(times)
        curve = line(node, x, rounds, colour, width=width, steps=True, group=group)
        marks.append(curve)
    x_axis = axis(time_axis(story), zero=True)
    y_axis = axis("round", zero=True)
    faults = _faults_over_time(story)
    return figure("Rounds of each coordinator", x_axis, y_axis, marks, 190, hover="x", **faults)


def bars_of_nodes(
    story: Story,
    title: str,
    unit: str,
    values: Mapping[str, float],
    words: Callable[[float], str],
) -> Figure:
    """An upright bar for each node. ``words``: a value in words."""
    bounds_of_tier: defaultdict[str, list[Sequence[float]]] = defaultdict(list)
    notes_of_tier: defaultdict[str, list[str]] = defaultdict(list)
    for number, (name, node) in enumerate(story.nodes.items()):
        tier = node["tier"]
        if tier not in TIERS:
            continue
        height = values.get(name, 0.0)
        left, right = rounded((number - 0.38, number + 0.38))
        bounds_of_tier[tier].append((left, right, 0.0, height))
        notes_of_tier[tier].append(f"{name}: {words(height)}")
    marks = []
    for tier, colour in TIERS.items():
        if bounds_of_tier[tier]:
            tier_bars = bars(tier, bounds_of_tier[tier], colour, notes=notes_of_tier[tier])
            marks.append(tier_bars)
    x = axis(labels=list(story.nodes))
    y = axis(unit, format="bytes" if unit == "bytes" else "number", zero=True)
    return figure(title, x, y, marks, 120)


def _faults_over_time(history: Facts) -> dict[str, Any]:
    began = history.training_began or 0.0

    def place(t: float) -> float:
        return t - began

    return {"lanes": _lanes(history, place), "shades": _shades(history, place)}


def traffic(history: History) -> Figure:
    """The bytes of sent messages, by link class and kind."""
    sent_bytes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    sent_messages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    classes: set[str] = set()
    for row in volumes.traffic(history):
        if row.direction == "sent":
            link_class = history.link_classes.get((row.node, row.peer), "no link")
            sent_bytes[row.kind][link_class] += row.bytes
            sent_messages[row.kind][link_class] += row.messages
            classes.add(link_class)
    rows = sorted(classes)
    pieces: dict[str, dict[str, tuple[float, str]]] = {}
    for kind in sorted(sent_bytes):
        pieces[kind] = {}
        for link_class in rows:
            if link_class in sent_bytes[kind]:
                size = sent_bytes[kind][link_class]
                note = _sent(kind, size, sent_messages[kind][link_class])
                pieces[kind][link_class] = (float(size), note)
    colours = dict(zip(pieces, cycled(len(pieces)), strict=True))
    marks = stacked(rows, pieces, colours)
    x = axis("bytes in messages sent", format="bytes", zero=True)
    y = axis(labels=rows)
    height = 42 * max(1, len(rows))
    return figure("Messages sent, by class of links and kind of message", x, y, marks, height)


def _sent(kind: str, count: int, messages: int) -> str:
    return f"{kind}: {text.size(count)}, {text.count(messages, 'message')}"


def stacked(
    rows: Sequence[str],
    parts: dict[str, dict[str, tuple[float, str]]],
    colours: dict[str, str],
    thick: float = 0.7,
) -> list[Mark]:
    """Level bars of pieces. ``parts``: by the name of a piece, and by row, its length and note."""
    ends = dict.fromkeys(rows, 0.0)  # of the pieces so far
    marks = []
    for name, pieces in parts.items():
        bounds = []
        notes = []
        for number, row in enumerate(rows):
            if row not in pieces:
                continue
            length, note = pieces[row]
            start = ends[row]
            ends[row] = start + length
            bounds.append((start, ends[row], number - thick / 2, number + thick / 2))
            notes.append(note)
        marks.append(bars(name, bounds, colours[name], notes=notes))
    return marks


def cycled(number: int) -> list[str]:
    """So many colours; they repeat if there are too few."""
    colours = cycle((GLOBAL, *SERIES))
    return list(islice(colours, number))


def link_colour(link_class: str) -> str:
    """The colour of a link class: its own, or one derived from its name."""
    own = LINKS.get(link_class)
    if own:
        return own
    number = sum(link_class.encode()) % len(SERIES)
    return SERIES[number]


def fault_colour(action: str) -> str:
    return FAULTS.get(action, MANY_SERIES)
