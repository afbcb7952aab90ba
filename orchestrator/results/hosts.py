"""The reports of hosts while a run trained, for the summary: energy, temperature, throttling; and who used this host's
processors.

All of it is about the hosts that carried out the run. It is not about the hardware that nodes emulate. The energy of
several hosts is not added: their meters measure different parts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator import text
from orchestrator.record.events.run import ProcessorUse
from orchestrator.record.rows import SensorReading
from orchestrator.results.facts import Facts
from orchestrator.results.history import History, processor_seconds
from orchestrator.results.presence import host_of

EVERY = 1.0  # s between two readings: a count that has grown since the last reading has grown within them
LATEST = 5.0  # s: a counter of energy without a row for longer was not read any more
OTHERS = 0.2  # of the processors' time, from which on other processes explain that steps came late
Key = tuple[str, str, str]  # quantity, source, scope


class MeterKind(NamedTuple):
    """Sensors that tell the energy of a host. ``added``: the host's energy is their sum, not that of the first one."""

    quantity: str
    scope: re.Pattern[str]
    added: bool = False


METERS = (
    MeterKind("power", re.compile("rail VIN")),  # the input of a Jetson's carrier board, and so of its module
    MeterKind("power", re.compile("rail (VDD_IN|POM_5V_IN)")),  # the input of a Jetson module: all its other rails
    MeterKind("energy", re.compile("psys")),  # the platform, of which the packages are a part
    MeterKind("power", re.compile("PMIC rails")),
    MeterKind("energy", re.compile(r"package-\d+(-die-\d+)?( dram)?"), added=True),  # core and uncore are parts of it
)
"""The first of these that can be read tells the energy of a host, so that nothing is counted twice."""


class Meter(NamedTuple):
    """The energy of a host up to each time, and the seconds until then in which it was not known."""

    source: str
    scope: str
    times: NDArray[np.float64]
    joules: NDArray[np.float64]
    unknown: NDArray[np.float64]

    def between(self, start: float, end: float) -> float | None:
        """J from one time to another; None if a part of it is not known."""
        if np.ptp(np.interp([start, end], self.times, self.unknown)) > 0:
            return None
        return float(np.ptp(np.interp([start, end], self.times, self.joules)))


class Throttling(NamedTuple):
    """A period in which a host was throttled, in seconds since the run began, and the reasons."""

    start: float
    end: float
    why: tuple[str, ...]


def hosts(history: History) -> list[dict[str, Any]] | None:
    """The hosts of a run, '' for this host, for the summary; None if no host reported anything. Keys of each:

    host; energy {joules, source, scope, rounds {round: J}}, over the training; node_energy_estimate {node: J}: the
    host's energy, shared out by the processor seconds of its nodes; temperature {highest, source, scope, at};
    throttled [{from, until, why}], None if nothing tells; not_readable [{quantity, source, scope, reason}]. None for
    what is not known. Times are in seconds of training, temperatures in °C.
    """
    found = by_host(history)
    return [_host(history, host, sensors) for host, sensors in found.items()] or None


def by_host(history: History) -> dict[str, dict[Key, list[SensorReading]]]:
    """The readings by host and sensor, in the order of recording."""
    found: defaultdict[str, defaultdict[Key, list[SensorReading]]] = defaultdict(lambda: defaultdict(list))
    for row in history.sensors():
        found[row.host][row.quantity, row.source, row.scope].append(row)
    return {host: dict(sensors) for host, sensors in found.items()}


def sentences(host: Mapping[str, Any]) -> list[str]:
    """What a reader of the results must know of a host, from its part of the summary."""
    name = f"Host {host['host']}" if host["host"] else "This host"
    return [
        f"{name} was throttled from {each['from']:.0f} s to {each['until']:.0f} s of training"
        f" ({text.some(each['why'])}): it was slower than it can be, so look before you trust the times of this run."
        for each in host["throttled"] or ()
    ]


def energy_in_words(found: Mapping[str, Any]) -> str:
    return f"{text.energy(found['joules'])} of {found['scope']} ({found['source']})"


def meter(sensors: Mapping[Key, Sequence[SensorReading]], until: float) -> Meter | None:
    """The energy of a host from its sensors; None if none that can be read tells it."""
    for kind in METERS:
        matching = {
            key: rows
            for key, rows in sensors.items()
            if key[0] == kind.quantity and kind.scope.fullmatch(key[2]) and any(row.value is not None for row in rows)
        }
        if kind.added:
            chosen = list(matching)
        else:
            chosen = list(matching)[:1]
        if chosen:
            courses = [_course(kind.quantity, matching[key], until) for key in chosen]
            times = np.unique(np.concatenate([times for times, _, _ in courses]))
            joules = sum(np.interp(times, own, joules) for own, joules, _ in courses)
            unknown = sum(np.interp(times, own, unknown) for own, _, unknown in courses)
            return Meter(
                chosen[0][1], " + ".join(key[2] for key in chosen), times, np.asarray(joules), np.asarray(unknown)
            )
    return None


def _course(quantity: str, rows: Sequence[SensorReading], until: float) -> tuple[NDArray[np.float64], ...]:
    """Times, the energy up to each, and the seconds until then in which it was not known."""
    if quantity == "energy":  # a counter goes on while it cannot be read; one that fell has restarted
        known = [(row.t, row.value) for row in rows if row.value is not None]
        counts = np.array([value for _, value in known])
        grown = np.diff(counts, prepend=counts[0])
        grown[grown < 0] = counts[grown < 0]
        (first, _), (last, _) = known[0], known[-1]
        times = np.array([rows[0].t, *(t for t, _ in known), max(until, last)])
        missing_at_end = until - last if until - last > LATEST else 0.0
        missing = [first - rows[0].t, *restarts(rows), missing_at_end]
        return times, np.cumsum([0.0, *grown, 0.0]), np.cumsum([0.0, *missing])
    times = np.array([*(row.t for row in rows), max(until, rows[-1].t)])
    lengths = np.diff(times)
    watts = np.array([row.value or 0.0 for row in rows])
    unread = np.array([row.value is None for row in rows])
    return times, np.cumsum([0.0, *watts * lengths]), np.cumsum([0.0, *unread * lengths])


def restarts(rows: Sequence[SensorReading]) -> list[float]:
    """For each reading of a counter of energy after the first: the seconds before it that are unknown, because it
    restarted after it could not be read, as on a lost host; 0 s after `resume`."""
    found = []
    known = rows[0]
    unread = False
    for row in rows[1:]:
        if row.value is None:
            unread = True
            continue
        if known.value is not None:
            found.append(row.t - known.t if unread and row.value <= known.value else 0.0)
        known = row
        unread = False
    return found


def throttled(sensors: Mapping[Key, Sequence[SensorReading]], start: float, end: float) -> list[Throttling] | None:
    """The periods from ``start`` to ``end`` in which a host was throttled; None if nothing can be read that tells."""
    throttling = {key: rows for key, rows in sensors.items() if key[0] in ("throttled", "throttle_events")}
    if not any(row.value is not None for rows in throttling.values() for row in rows):
        return None
    periods = [
        Throttling(max(since, start), min(until, end), (f"{scope}, by {source}",))
        for (quantity, source, scope), rows in throttling.items()
        for since, until in (_flagged(rows, end) if quantity == "throttled" else _counted(rows))
        if until > start and since < end
    ]
    merged: list[Throttling] = []
    for each in sorted(periods):
        if merged and each.start <= merged[-1].end + EVERY:
            last = merged[-1]
            merged[-1] = Throttling(last.start, max(last.end, each.end), tuple(dict.fromkeys((*last.why, *each.why))))
        else:
            merged.append(each)
    return merged


def _flagged(rows: Sequence[SensorReading], end: float) -> Iterable[tuple[float, float]]:
    """The periods in which a flag was 1."""
    ends = [row.t for row in rows[1:]] + [max(end, rows[-1].t)]
    return [(row.t, until) for row, until in zip(rows, ends, strict=True) if row.value]


def _counted(rows: Sequence[SensorReading]) -> Iterable[tuple[float, float]]:
    """The time before each reading whose count had grown."""
    known = [(row.t, row.value) for row in rows if row.value is not None]
    return [(t - EVERY, t) for (_, before), (t, now) in pairwise(known) if now > before]


def rounds(history: History) -> dict[int, tuple[float, float]]:
    """When each finished round of the leading nodes began and ended; all of them together, if there are several."""
    found: dict[int, tuple[float, float]] = {}
    for each in history.rounds():
        if each.node in history.leaders and each.end is not None:
            start, end = found.get(each.round, (each.start, each.end))
            found[each.round] = min(start, each.start), max(end, each.end)
    return found


def _host(history: History, host: str, sensors: Mapping[Key, Sequence[SensorReading]]) -> dict[str, Any]:
    began = history.training_began or 0.0
    ended = history.training_ended
    energy = _energy(history, meter(sensors, ended), began, ended)
    spans = throttled(sensors, began, ended)
    return {
        "host": host,
        "energy": energy,
        "node_energy_estimate": None if energy is None else _shares(history, host, energy["joules"], began),
        "temperature": _highest(sensors, began, ended),
        "throttled": None
        if spans is None
        else [
            {"from": round(each.start - began, 1), "until": round(each.end - began, 1), "why": list(each.why)}
            for each in spans
        ],
        "not_readable": [
            {"quantity": quantity, "source": source, "scope": scope, "reason": failed[0].detail}
            for (quantity, source, scope), rows in sensors.items()
            if (failed := [row for row in rows if row.value is None])
        ],
    }


def _energy(history: History, meter: Meter | None, began: float, ended: float) -> dict[str, Any] | None:
    if meter is None or (joules := meter.between(began, ended)) is None:
        return None
    by_round = {str(number): meter.between(*span) for number, span in rounds(history).items()}
    return {
        "joules": round(joules, 3),
        "source": meter.source,
        "scope": meter.scope,
        "rounds": {number: round(value, 3) for number, value in by_round.items() if value is not None},
    }


def _shares(history: History, host: str, joules: float, began: float) -> dict[str, float] | None:
    """The energy of a host by node; None if its nodes used no processor time that is known."""
    home = host_of(history)
    used = processor_seconds((row for row in history.resources() if home(row.node, row.t) == host), began)
    total = sum(used.values())
    if total > 0:
        return {node: round(joules * of / total, 3) for node, of in used.items()}
    return None


def _highest(sensors: Mapping[Key, Sequence[SensorReading]], began: float, ended: float) -> dict[str, Any] | None:
    rows = [
        (row.value, row)
        for (quantity, _, _), rows in sensors.items()
        for row in rows
        if quantity == "temperature" and row.value is not None and row.t <= ended
    ]
    if not rows:
        return None
    value, row = max(rows, key=lambda each: each[0])
    return {"highest": value, "source": row.source, "scope": row.scope, "at": round(row.t - began, 1)}


def slow_because(history: Facts, too_much: str) -> str:
    """Why this host was slow: other processes used its processors, or it is too slow for ``too_much``."""
    own_fault = f"this host is too slow for {too_much}"
    if not isinstance(history, History):  # the load is recorded at the end
        return f"{own_fault}, or other processes used its processors"
    loads = [recorded.event for recorded in history.recorded(ProcessorUse)]
    seconds = sum(float(load.seconds) for load in loads)
    busy = sum(float(load.busy) for load in loads)
    idle = sum(float(load.idle) for load in loads)
    own = sum(float(load.own) for load in loads)
    if not loads or seconds <= 0 or busy + idle <= 0:
        return f"{own_fault}, or other processes used its processors"
    used = processor_seconds(history.resources(), history.training_began or 0.0)
    others = max(0.0, busy - own - sum(used.values()))
    if others < OTHERS * (busy + idle):
        return own_fault
    cores = (busy + idle) / seconds
    return f"other processes used {others / seconds:.1f} of this host's {cores:.0f} processors: stop them"
