"""The reports of hosts while a run trained, for the summary: energy, temperature, throttling; and who used this host's
processors.

All of it is about the hosts that carried out the run. It is not about the hardware that nodes emulate. The energy of
several hosts is not added: their meters measure different parts.
"""

from __future__ import annotations

import re
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
Readings = Sequence[SensorReading]  # of one sensor, in the order of recording
Sensors = Mapping[Key, Readings]  # of one host
Course = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
Entry = dict[str, Any]  # of the summary
Joules = dict[str, float]  # by node


class MeterKind(NamedTuple):
    """Sensors that measure a host's energy. ``added``: its energy is their sum, not that of the first one."""

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
"""The first of these that can be read gives the energy of a host, so that nothing is counted twice."""


class Meter(NamedTuple):
    """The energy of a host up to each time, and the seconds until then in which it was not known."""

    source: str
    scope: str
    times: NDArray[np.float64]
    joules: NDArray[np.float64]
    unknown: NDArray[np.float64]

    def between(self, start: float, end: float) -> float | None:
        """J from one time to another; None if a part of it is not known."""
        unknown = np.interp([start, end], self.times, self.unknown)
        if np.ptp(unknown) > 0:
            return None
        joules = np.interp([start, end], self.times, self.joules)
        return float(np.ptp(joules))


class Throttling(NamedTuple):
    """A period in which a host was throttled, in seconds since the run started, and the reasons."""

    start: float
    end: float
    why: tuple[str, ...]


def hosts(history: History) -> list[dict[str, Any]] | None:
    """The hosts of a run, '' for this host, for the summary; None if no host reported anything. Keys of each:

    host; energy {joules, source, scope, rounds {round: J}}, over the training; node_energy_estimate {node: J}: the
    host's energy, shared out by the processor seconds of its nodes; temperature {highest, source, scope, at};
    throttled [{from, until, why}], None if nothing reports; not_readable [{quantity, source, scope, reason}]. None for
    what is not known. Times are in seconds of training, temperatures in °C.
    """
    entries = []
    for host, sensors in by_host(history).items():
        entries.append(_host(history, host, sensors))
    return entries or None


def by_host(history: History) -> dict[str, dict[Key, list[SensorReading]]]:
    """The readings by host and sensor, in the order of recording."""
    hosts: dict[str, dict[Key, list[SensorReading]]] = {}
    for reading in history.sensors():
        sensors = hosts.setdefault(reading.host, {})
        key = (reading.quantity, reading.source, reading.scope)
        sensors.setdefault(key, []).append(reading)
    return hosts


def sentences(host: Mapping[str, Any]) -> list[str]:
    """What a reader of the results must know of a host, from its part of the summary."""
    name = f"Host {host['host']}" if host["host"] else "This host"
    warnings = []
    for period in host["throttled"] or ():
        reasons = text.some(period["why"])
        warnings.append(
            f"{name} was throttled from {period['from']:.0f} s to {period['until']:.0f} s of training ({reasons}):"
            " it was slower than it can be, so look before you trust the times of this run."
        )
    return warnings


def energy_in_words(energy: Mapping[str, Any]) -> str:
    return f"{text.energy(energy['joules'])} of {energy['scope']} ({energy['source']})"


def meter(sensors: Sensors, until: float) -> Meter | None:
    """The energy of a host from its sensors; None if no sensor that can be read shows it."""
    for kind in METERS:
        chosen = _sensors_of(kind, sensors)
        if not kind.added:
            chosen = chosen[:1]
        if not chosen:
            continue
        courses = [_course(kind.quantity, sensors[key], until) for key in chosen]
        all_times = np.concatenate([times for times, _, _ in courses])
        times = np.unique(all_times)
        joules = sum(np.interp(times, own, joules) for own, joules, _ in courses)
        unknown = sum(np.interp(times, own, unknown) for own, _, unknown in courses)
        _, source, _ = chosen[0]
        scopes = [scope for _, _, scope in chosen]
        return Meter(
            source=source,
            scope=" + ".join(scopes),
            times=times,
            joules=np.asarray(joules),
            unknown=np.asarray(unknown),
        )
    return None


def _sensors_of(kind: MeterKind, sensors: Sensors) -> list[Key]:
    """The sensors of a kind of meter that could be read."""
    matching = []
    for key, rows in sensors.items():
        quantity, _, scope = key
        is_of_kind = quantity == kind.quantity and kind.scope.fullmatch(scope)
        if is_of_kind and _was_read(rows):
            matching.append(key)
    return matching


def _was_read(rows: Readings) -> bool:
    return any(row.value is not None for row in rows)


def _course(quantity: str, rows: Readings, until: float) -> Course:
    """Times, the energy up to each, and the seconds until then in which it was not known."""
    if quantity == "energy":
        return _course_of_counter(rows, until)
    last = rows[-1].t
    read_at = [row.t for row in rows]
    times = np.array([*read_at, max(until, last)])
    lengths = np.diff(times)
    watts = np.array([row.value or 0.0 for row in rows])
    unread = np.array([row.value is None for row in rows])
    joules = np.cumsum([0.0, *watts * lengths])
    unknown = np.cumsum([0.0, *unread * lengths])
    return times, joules, unknown


def _course_of_counter(rows: Readings, until: float) -> Course:
    """As `_course`. A counter continues while it cannot be read. One that fell has restarted."""
    known = _known(rows)
    counts = np.array([value for _, value in known])
    grown = np.diff(counts, prepend=counts[0])
    grown[grown < 0] = counts[grown < 0]
    began = rows[0].t
    first, _ = known[0]
    last, _ = known[-1]
    read_at = [t for t, _ in known]
    times = np.array([began, *read_at, max(until, last)])
    missing_at_end = 0.0
    if until - last > LATEST:
        missing_at_end = until - last
    missing = [first - began, *restarts(rows), missing_at_end]
    joules = np.cumsum([0.0, *grown, 0.0])
    return times, joules, np.cumsum([0.0, *missing])


def _known(rows: Readings) -> list[tuple[float, float]]:
    """The times and the values of the readings that succeeded."""
    return [(row.t, row.value) for row in rows if row.value is not None]


def restarts(rows: Readings) -> list[float]:
    """For each reading of a counter of energy after the first: the seconds before it that are unknown, because it
    restarted after it could not be read, as on a lost host; 0 s after `resume`."""
    unknown = []
    known = rows[0]
    unread = False
    for row in rows[1:]:
        if row.value is None:
            unread = True
            continue
        if known.value is not None:
            restarted_unread = unread and row.value <= known.value
            seconds = row.t - known.t
            unknown.append(seconds if restarted_unread else 0.0)
        known = row
        unread = False
    return unknown


def throttled(sensors: Sensors, start: float, end: float) -> list[Throttling] | None:
    """The periods from ``start`` to ``end`` in which a host was throttled; None if no sensor that was read shows it."""
    periods = []
    was_read = False
    for (quantity, source, scope), rows in sensors.items():
        if quantity not in ("throttled", "throttle_events"):
            continue
        was_read |= _was_read(rows)
        if quantity == "throttled":
            spans = _flagged(rows, end)
        else:
            spans = _counted(rows)
        reasons = (f"{scope}, by {source}",)
        for since, until in spans:
            if until > start and since < end:
                periods.append(Throttling(max(since, start), min(until, end), reasons))
    if not was_read:
        return None
    return _merged(periods)


def _merged(periods: Iterable[Throttling]) -> list[Throttling]:
    """The periods in the order of time. Those that overlap, or nearly meet, are one, with the reasons of both."""
    merged: list[Throttling] = []
    for period in sorted(periods):
        if not merged or period.start > merged[-1].end + EVERY:
            merged.append(period)
            continue
        last = merged[-1]
        reasons = dict.fromkeys((*last.why, *period.why))
        end = max(last.end, period.end)
        merged[-1] = Throttling(last.start, end, tuple(reasons))
    return merged


def _flagged(rows: Readings, end: float) -> Iterable[tuple[float, float]]:
    """The periods in which a flag was 1."""
    ends = [row.t for row in rows[1:]]
    ends.append(max(end, rows[-1].t))
    periods = []
    for row, until in zip(rows, ends, strict=True):
        if row.value:
            periods.append((row.t, until))
    return periods


def _counted(rows: Readings) -> Iterable[tuple[float, float]]:
    """The time before each reading with a count that had grown."""
    periods = []
    for (_, before), (t, now) in pairwise(_known(rows)):
        if now > before:
            periods.append((t - EVERY, t))
    return periods


def rounds(history: History) -> dict[int, tuple[float, float]]:
    """When each finished round of the leading nodes started and ended; all of them together, if there are several."""
    spans: dict[int, tuple[float, float]] = {}
    for led in history.rounds():
        if led.node not in history.leaders or led.end is None:
            continue
        start, end = spans.get(led.round, (led.start, led.end))
        spans[led.round] = min(start, led.start), max(end, led.end)
    return spans


def _host(history: History, host: str, sensors: Sensors) -> Entry:
    began = history.training_began or 0.0
    ended = history.training_ended
    energy = _energy(history, meter(sensors, ended), began, ended)
    shares = None
    if energy is not None:
        shares = _shares(history, host, energy["joules"], began)
    return {
        "host": host,
        "energy": energy,
        "node_energy_estimate": shares,
        "temperature": _highest(sensors, began, ended),
        "throttled": _throttled_in_training(sensors, began, ended),
        "not_readable": _not_readable(sensors),
    }


def _throttled_in_training(sensors: Sensors, began: float, ended: float) -> list[Entry] | None:
    periods = throttled(sensors, began, ended)
    if periods is None:
        return None
    rows = []
    for period in periods:
        start = round(period.start - began, 1)
        end = round(period.end - began, 1)
        rows.append({"from": start, "until": end, "why": list(period.why)})
    return rows


def _not_readable(sensors: Sensors) -> list[dict[str, str]]:
    """The sensors that could not be read at some time, each with the first reason."""
    failures = []
    for (quantity, source, scope), rows in sensors.items():
        failed = [row for row in rows if row.value is None]
        if failed:
            reason = failed[0].detail
            failures.append({"quantity": quantity, "source": source, "scope": scope, "reason": reason})
    return failures


def _energy(history: History, meter: Meter | None, began: float, ended: float) -> Entry | None:
    if meter is None:
        return None
    joules = meter.between(began, ended)
    if joules is None:
        return None
    by_round = {}
    for number, span in rounds(history).items():
        in_round = meter.between(*span)
        if in_round is not None:
            by_round[str(number)] = round(in_round, 3)
    total = round(joules, 3)
    return {"joules": total, "source": meter.source, "scope": meter.scope, "rounds": by_round}


def _shares(history: History, host: str, joules: float, began: float) -> Joules | None:
    """The energy of a host by node; None if its nodes used no processor time that is known."""
    host_at = host_of(history)
    used_here = (row for row in history.resources() if host_at(row.node, row.t) == host)
    seconds = processor_seconds(used_here, began)
    total = sum(seconds.values())
    if total <= 0:
        return None
    shares = {}
    for node, own in seconds.items():
        shares[node] = round(joules * own / total, 3)
    return shares


def _highest(sensors: Sensors, began: float, ended: float) -> Entry | None:
    """The highest temperature until the end of training, the earliest of equal ones."""
    highest: SensorReading | None = None
    for (quantity, _, _), rows in sensors.items():
        if quantity != "temperature":
            continue
        for row in rows:
            if row.value is None or row.t > ended:
                continue
            if highest is None or row.value > (highest.value or 0.0):
                highest = row
    if highest is None:
        return None
    at = round(highest.t - began, 1)
    return {"highest": highest.value, "source": highest.source, "scope": highest.scope, "at": at}


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
