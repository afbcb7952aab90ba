"""What a page shows of a run when it is asked for: of a node, of a link, of what was measured. Plain JSON values."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from orchestrator.errors import RecordError
from orchestrator.host import tail
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.overload import SHORTEST
from orchestrator.record.rows import Resources
from orchestrator.report.fidelity import look_rows, probe_figures, probe_rows
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from orchestrator.verbs.results.logs import follow_lines

LOG_TAIL = 64 * 1024  # bytes of a log that are shown: the last ones
LINES = 400  # of what the record has of a node: the last ones
READINGS = 600  # of a link's counters or a node's resources, at most, evenly over the run
ROWS = 30  # links of a figure of probes; a longer one is only in the table
Json = dict[str, Any]
Used = list[float | None]  # t, cores, bytes of memory
SHOWN = ("quantity", "asked", "expected", "measured", "verdict")  # of a probe


def node_detail(directory: RunDirectory, node: str) -> Json:
    """The record of a node as lines, the end of its log, and [t, cores, bytes of memory or None]. RunError without
    it."""
    with History.open(directory.path) as history:
        recorded = "".join(follow_lines(history, node, lambda: False))
        lines = recorded.splitlines()
        used = _used(history.resources(node))
    path = directory.logs / f"{node}.log"
    log = tail.end_of(path, LOG_TAIL)
    if tail.size(path) > LOG_TAIL:
        log = log.partition("\n")[2]  # from the start of a line on
    return {
        "lines": lines[-LINES:],
        "left_out": max(0, len(lines) - LINES),
        "log": log,
        "resources": used,
    }


def fidelity_detail(directory: RunDirectory) -> Json:
    """Configured and measured: rows of the probes and the losses in words, and a figure for each probed quantity."""
    with History.open(directory.path) as history:
        drawn = {}
        for name, figure in probe_figures(history.probes()).items():
            if len(figure["y"]["labels"]) <= ROWS:
                drawn[name] = figure
        probes = probe_rows(history)
        looks = look_rows(history)
    return {"probes": probes, "looks": looks, "figures": drawn}


def _used(readings: list[Resources]) -> list[Used]:
    """The cores that a node used between two readings, and its memory at the second. A count that fell restarted."""
    with_memory = []
    for row, memory in zip(readings, _memory(readings), strict=True):
        with_memory.append(row._replace(pss=memory))
    step = max(1, len(readings) // READINGS)
    kept: list[Resources] = []
    for row in with_memory[::step]:
        if not kept or row.t - kept[-1].t >= SHORTEST:
            kept.append(row)
    used: list[Used] = []
    for before, now in pairwise(kept):
        grown = max(0.0, now.cpu_seconds - before.cpu_seconds)
        cores = round(grown / (now.t - before.t), 3)
        used.append([now.t, cores, now.pss])
    return used


def _memory(readings: list[Resources]) -> list[int | None]:
    """The memory at each reading in bytes: the latest proportional set size until then. Without any in the run, the
    resident set sizes."""
    if all(row.pss is None for row in readings):
        return [row.rss for row in readings]
    memory: list[int | None] = []
    latest = None
    for row in readings:
        if row.pss is not None:
            latest = row.pss
        memory.append(latest)
    return memory


def link_detail(directory: RunDirectory, source: str, target: str) -> Json:
    """The probes of a link, and [t, bytes, packets delivered, packets not delivered]. RecordError without it."""
    figures = []
    with History.open(directory.path) as history:
        if (source, target) not in history.link_classes:
            raise RecordError(f"run {directory.run} has no link from '{source}' to '{target}'")
        readings = volumes.readings(history, source, target)
        for probe in history.probes():
            if probe.source == source and probe.target == target:
                figures.append({name: getattr(probe, name) for name in SHOWN})
    step = max(1, len(readings) // READINGS)
    kept = readings[::step]
    if readings and kept[-1] != readings[-1]:
        kept.append(readings[-1])
    return {"probes": figures, "readings": [list(reading) for reading in kept]}
