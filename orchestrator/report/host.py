"""Hosts in the report: temperature, frequency and power over the time of training, and the energy of each round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.rows import SensorReading
from orchestrator.record.words import HARDWARE_LABEL
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


class Curve(NamedTuple):
    """A curve of steps of a host; a value of None is a gap."""

    host: str
    name: str
    times: list[float]
    values: list[float | None]

    @property
    def highest(self) -> float | None:
        return max((value for value in self.values if value is not None), default=None)


def host_figures(history: History, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """The figures by their ids on the page; without those that would be empty. ``summaries``: the hosts of the
    summary."""
    began = history.training_began or 0.0
    end = history.training_ended
    sensors = [
        (key[0], host, _name(host, key, found), rows)
        for host, found in by_host(history).items()
        for key, rows in found.items()
    ]
    figures = {}
    for id, label, quantities, factor in FIGURES:
        curves = [
            Curve(host, name, *steps(rows, end)) for quantity, host, name, rows in sensors if quantity in quantities
        ]
        lines = []
        for curve, colour in zip(highest(curves), cycle((GLOBAL, *SERIES)), strict=False):
            times = [round(t - began, 2) for t in curve.times]
            values = [None if value is None else round(value * factor, 3) for value in curve.values]
            lines.append(line(curve.name, times, values, colour, steps=True))
        if lines:
            x = axis("seconds of training")
            y = axis(label, zero=id != "host-temperature")
            figures[id] = figure(f"{label.capitalize()}, by host", x, y, lines, 180, hover="x")
    by_round = _energy_of_rounds(summaries)
    if by_round is not None:
        figures["host-energy"] = by_round
    return figures


def _name(host: str, key: Key, sensors: Iterable[Key]) -> str:
    """The scope of a sensor; with its source if another sensor of this host has the same quantity and scope."""
    quantity, source, scope = key
    alone = all(other == key for other in sensors if (other[0], other[2]) == (quantity, scope))
    return f"{host}: " * bool(host) + scope + ("" if alone else f" ({source})")


def host_rows(summaries: Iterable[Mapping[str, Any]], planned: Collection[str] = ()) -> list[dict[str, Any]]:
    """The hosts in words: energy, temperature, whether they were throttled, and what could not be read. ``planned``:
    the hosts of a run on several, which are all listed; of others, only those that reported anything."""
    known = {host["host"]: host for host in summaries}
    silent: dict[str, Any] = {"energy": None, "temperature": None, "throttled": None, "not_readable": []}
    reporting = [
        name for name, host in known.items() if host["throttled"] is not None or any(host[key] for key in silent)
    ]
    return [
        {
            "name": name or "this host",
            "energy": energy_in_words(host["energy"]) if host["energy"] else "unknown",
            "temperature": "unknown"
            if (found := host["temperature"]) is None
            else f"{found['highest']:.1f} °C, {found['scope']}, at {text.duration(found['at'])}",
            "throttled": "unknown" if host["throttled"] is None else "yes" if host["throttled"] else "no",
            "notes": sentences(host),
            "not_readable": [{**each, "quantity": each["quantity"].replace("_", " ")} for each in host["not_readable"]],
        }
        for name in dict.fromkeys((*planned, *reporting))
        for host in [{**silent, **known.get(name, {}), "host": name}]
    ]


def placement_rows(history: History) -> list[dict[str, Any]]:
    """The hosts of a run on several hosts in words: what each is, its nodes, when it was away, in seconds of training,
    and where its nodes moved to. Empty for a run on one host."""
    began = history.training_began or 0.0
    facts = {host["name"]: host for host in history.plan.get("hosts", ())}
    away: defaultdict[str, list[str]] = defaultdict(list)
    for stay in stays(history):
        if stay.state != THERE:
            away[stay.host].append(
                f"{stay.state} from {stay.start - began:.0f} s to {stay.end - began:.0f} s".replace("-", "−")
            )
    moved: defaultdict[str, list[str]] = defaultdict(list)
    for move in moves(history):
        moved[move.source].append(f"{move.node} to {move.target} at {move.t - began:.0f} s")
    return [
        {
            "name": host,
            "nodes": text.some(nodes, NAMED),
            "number": len(nodes),
            "away": "; ".join(away[host]),
            "moved": text.some(moved[host], NAMED),
            **_facts(facts.get(host, {})),
        }
        for host, nodes in nodes_by_host(history).items()
    ]


def _facts(host: Mapping[str, Any]) -> dict[str, str]:
    labels = host.get("labels", {})
    return {
        "board": str(labels.get(HARDWARE_LABEL, "")),
        "architecture": str(host.get("architecture", "")),
        "cores": f"{host['cores']:g}" if "cores" in host else "",
        "memory": text.size(host["memory"]) if "memory" in host else "",
    }


def steps(rows: Sequence[SensorReading], end: float) -> tuple[list[float], list[float | None]]:
    """The times and values of a curve of steps until ``end``. A counter of energy gives the power between its rows, in
    W. A gap (None) is a time in which the sensor could not be read."""
    if rows[0].quantity == "energy":
        known = [(row.t, row.value) for row in rows if row.value is not None]
        pieces: list[tuple[float, float | None]] = []
        for (since, before), (t, now), unknown in zip(known, known[1:], restarts(rows), strict=False):
            if unknown:
                pieces.append((since, None))
            elif t > since and now >= before:  # a count that fell has restarted
                pieces.append((since, (now - before) / (t - since)))
        last = [(known[-1][0], watts) for _, watts in pieces[-1:]]
        return [since for since, _ in (*pieces, *last)], [watts for _, watts in (*pieces, *last)]
    return [*(row.t for row in rows), max(end, rows[-1].t)], [*(row.value for row in rows), rows[-1].value]


def highest(curves: Iterable[Curve]) -> list[Curve]:
    """The curves to show: the highest of each host, then each second one, up to the limit; by host."""
    by_host: defaultdict[str, list[Curve]] = defaultdict(list)
    for curve in sorted(curves, key=lambda curve: -(curve.highest or 0.0)):
        if curve.highest is not None:
            by_host[curve.host].append(curve)
    ranked = sorted((rank, host) for host, of in by_host.items() for rank in range(len(of)))
    shown = {place for place in ranked[: max(MOST, len(by_host))]}
    return [curve for host, of in by_host.items() for rank, curve in enumerate(of) if (rank, host) in shown]


def _energy_of_rounds(summaries: Iterable[Mapping[str, Any]]) -> Figure | None:
    known = [(host["host"], host["energy"]) for host in summaries if host["energy"] and host["energy"]["rounds"]]
    width = 0.8 / max(1, len(known))
    marks = []
    for place, ((host, energy), colour) in enumerate(zip(known, cycle((GLOBAL, *SERIES)), strict=False)):
        name = f"{host}: {energy['scope']}" if host else energy["scope"]
        left = {int(number) - 0.4 + place * width: joules for number, joules in energy["rounds"].items()}
        notes = [f"{name}, round {number}: {text.energy(joules)}" for number, joules in energy["rounds"].items()]
        bounds = [(*rounded((start, start + width)), 0.0, joules) for start, joules in left.items()]
        marks.append(bars(name, bounds, colour, notes=notes))
    x = axis("round")
    y = axis("energy of a round, J", zero=True)
    if marks:
        return figure("Energy of each round", x, y, marks, 180)
    return None
