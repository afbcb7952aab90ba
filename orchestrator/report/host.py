"""Hosts in the report: temperature, frequency and power over the time of training, and the energy of each round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.rows import HARDWARE_LABEL, SensorReading
from orchestrator.report.figures import GLOBAL, SERIES
from orchestrator.report.marks import Figure, axis, bars, figure, line, rounded
from orchestrator.results.history import History
from orchestrator.results.hosts import Key, by_host, energy_in_words, restarts, sentences
from orchestrator.results.presence import THERE, moves, nodes_by_host, stays

MOST = 9  # curves in a figure, at least one of each host: those with its highest values
NAMED = 24  # nodes of a host that are named
# Figure, its axis, the quantities that it shows, and how many of its units are one unit of the record.
FIGURES = (
    ("host-temperature", "temperature, °C", ("temperature",), 1.0),
    ("host-frequency", "frequency, GHz", ("frequency",), 1e-9),
    ("host-power", "power, W", ("power", "energy"), 1.0),
)


Steps = tuple[list[float], list[float | None]]  # times and values
Host = Mapping[str, Any]
"""A host in the summary."""


class Curve(NamedTuple):
    """A curve of steps of a host; a value of None is a gap."""

    host: str
    name: str
    times: list[float]
    values: list[float | None]

    @property
    def highest(self) -> float | None:
        known = [value for value in self.values if value is not None]
        return max(known, default=None)


def host_figures(history: History, summaries: Sequence[Host]) -> dict[str, Figure]:
    """The figures by their ids on the page; without those that would be empty. ``summaries``: the hosts of the
    summary."""
    began = history.training_began or 0.0
    sensors = by_host(history)
    figures = {}
    for id, label, quantities, factor in FIGURES:
        curves = _curves(sensors, quantities, history.training_ended)
        colours = cycle((GLOBAL, *SERIES))
        lines = []
        for curve in highest(curves):
            colour = next(colours)
            times = [round(t - began, 2) for t in curve.times]
            values = _scaled(curve.values, factor)
            lines.append(line(curve.name, times, values, colour, steps=True))
        if lines:
            title = f"{label.capitalize()}, by host"
            x = axis("seconds of training")
            y = axis(label, zero=id != "host-temperature")
            figures[id] = figure(title, x, y, lines, 180, hover="x")
    by_round = _energy_of_rounds(summaries)
    if by_round is not None:
        figures["host-energy"] = by_round
    return figures


def _curves(
    sensors: Mapping[str, Mapping[Key, Sequence[SensorReading]]],
    quantities: Collection[str],
    end: float,
) -> list[Curve]:
    curves = []
    for host, sensors_of_host in sensors.items():
        for key, rows in sensors_of_host.items():
            if key[0] in quantities:
                name = _name(host, key, sensors_of_host)
                times, values = steps(rows, end)
                curves.append(Curve(host, name, times, values))
    return curves


def _scaled(values: Iterable[float | None], factor: float) -> list[float | None]:
    scaled: list[float | None] = []
    for value in values:
        if value is None:
            scaled.append(None)
        else:
            scaled.append(round(value * factor, 3))
    return scaled


def _name(host: str, key: Key, sensors: Iterable[Key]) -> str:
    """The scope of a sensor; with its source if another sensor of this host has the same quantity and scope."""
    quantity, source, scope = key
    name = f"{host}: {scope}" if host else scope
    for other in sensors:
        same_scope = (other[0], other[2]) == (quantity, scope)
        if same_scope and other != key:
            return f"{name} ({source})"
    return name


def host_rows(
    summaries: Iterable[Host],
    planned: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The hosts in words: energy, temperature, whether they were throttled, and what could not be read. ``planned``:
    the hosts of a run on several, which are all listed; of others, only those that reported anything."""
    by_name = {host["host"]: host for host in summaries}
    silent: dict[str, Any] = {
        "energy": None,
        "temperature": None,
        "throttled": None,
        "not_readable": [],
    }
    names = dict.fromkeys(planned)
    for name, host in by_name.items():
        if host["throttled"] is not None or any(host[key] for key in silent):
            names[name] = None
    rows = []
    for name in names:
        host = {**silent, **by_name.get(name, {}), "host": name}
        rows.append(_host_row(name, host))
    return rows


def _host_row(name: str, host: Host) -> dict[str, Any]:
    energy = "unknown"
    if host["energy"]:
        energy = energy_in_words(host["energy"])
    temperature = "unknown"
    highest = host["temperature"]
    if highest is not None:
        at = text.duration(highest["at"])
        temperature = f"{highest['highest']:.1f} °C, {highest['scope']}, at {at}"
    if host["throttled"] is None:
        throttled = "unknown"
    else:
        throttled = "yes" if host["throttled"] else "no"
    not_readable = []
    for sensor in host["not_readable"]:
        quantity = sensor["quantity"].replace("_", " ")
        not_readable.append({**sensor, "quantity": quantity})
    return {
        "name": name or "this host",
        "energy": energy,
        "temperature": temperature,
        "throttled": throttled,
        "notes": sentences(host),
        "not_readable": not_readable,
    }


def placement_rows(history: History) -> list[dict[str, Any]]:
    """The hosts of a run on several hosts in words: what each is, its nodes, when it was away, in seconds of training,
    and where its nodes moved to. Empty for a run on one host."""
    began = history.training_began or 0.0
    facts = {host["name"]: host for host in history.plan.get("hosts", ())}
    away: defaultdict[str, list[str]] = defaultdict(list)
    for stay in stays(history):
        if stay.state != THERE:
            start = f"{stay.start - began:.0f} s"
            end = f"{stay.end - began:.0f} s"
            words = f"{stay.state} from {start} to {end}".replace("-", "−")
            away[stay.host].append(words)
    moved: defaultdict[str, list[str]] = defaultdict(list)
    for move in moves(history):
        words = f"{move.node} to {move.target} at {move.t - began:.0f} s"
        moved[move.source].append(words)
    rows = []
    for host, nodes in nodes_by_host(history).items():
        row = {
            "name": host,
            "nodes": text.some(nodes, NAMED),
            "number": len(nodes),
            "away": "; ".join(away[host]),
            "moved": text.some(moved[host], NAMED),
            **_facts(facts.get(host, {})),
        }
        rows.append(row)
    return rows


def _facts(host: Mapping[str, Any]) -> dict[str, str]:
    labels = host.get("labels", {})
    board = labels.get(HARDWARE_LABEL, "")
    architecture = host.get("architecture", "")
    return {
        "board": str(board),
        "architecture": str(architecture),
        "cores": f"{host['cores']:g}" if "cores" in host else "",
        "memory": text.size(host["memory"]) if "memory" in host else "",
    }


def steps(rows: Sequence[SensorReading], end: float) -> Steps:
    """The times and values of a curve of steps until ``end``. A counter of energy gives the power between its rows, in
    W. A gap (None) is a time in which the sensor could not be read."""
    if rows[0].quantity == "energy":
        return _steps_of_power(rows)
    times: list[float] = []
    values: list[float | None] = []
    for row in rows:
        times.append(row.t)
        values.append(row.value)
    times.append(max(end, times[-1]))
    values.append(values[-1])
    return times, values


def _steps_of_power(rows: Sequence[SensorReading]) -> Steps:
    """The mean power between the readings of a counter of energy."""
    readings = [(row.t, row.value) for row in rows if row.value is not None]
    times: list[float] = []
    values: list[float | None] = []
    intervals = zip(readings, readings[1:], restarts(rows), strict=False)
    for (start, before), (t, now), unknown in intervals:
        if unknown:
            times.append(start)
            values.append(None)
        elif t > start and now >= before:  # a count that fell has restarted
            times.append(start)
            values.append((now - before) / (t - start))
    if values:
        times.append(readings[-1][0])
        values.append(values[-1])
    return times, values


def highest(curves: Iterable[Curve]) -> list[Curve]:
    """The curves to show: the highest of each host, then each second one, up to the limit; by host."""
    by_host: defaultdict[str, list[Curve]] = defaultdict(list)
    for curve in sorted(curves, key=lambda curve: -(curve.highest or 0.0)):
        if curve.highest is not None:
            by_host[curve.host].append(curve)
    ranked = []
    for host, curves_of_host in by_host.items():
        for rank in range(len(curves_of_host)):
            ranked.append((rank, host))
    ranked.sort()
    most = max(MOST, len(by_host))
    shown = set(ranked[:most])
    chosen = []
    for host, curves_of_host in by_host.items():
        for rank, curve in enumerate(curves_of_host):
            if (rank, host) in shown:
                chosen.append(curve)
    return chosen


def _energy_of_rounds(summaries: Iterable[Host]) -> Figure | None:
    measured = []
    for host in summaries:
        energy = host["energy"]
        if energy and energy["rounds"]:
            measured.append((host["host"], energy))
    if not measured:
        return None
    width = 0.8 / len(measured)
    colours = cycle((GLOBAL, *SERIES))
    marks = []
    for place, (host, energy) in enumerate(measured):
        name = f"{host}: {energy['scope']}" if host else energy["scope"]
        notes = []
        bounds = []
        for number, joules in energy["rounds"].items():
            notes.append(f"{name}, round {number}: {text.energy(joules)}")
            left = int(number) - 0.4 + place * width
            start, end = rounded((left, left + width))
            bounds.append((start, end, 0.0, joules))
        marks.append(bars(name, bounds, next(colours), notes=notes))
    x = axis("round")
    y = axis("energy of a round, J", zero=True)
    return figure("Energy of each round", x, y, marks, 180)
