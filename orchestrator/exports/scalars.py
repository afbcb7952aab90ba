"""The scalars of a run: named series of numbers over the rounds, from its record alone.

A scalar never changes once it is known, and each series only grows. So a tracker, which reads the record again and
again, writes what an export of the finished run writes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from orchestrator.record.events.nodes import Overrun
from orchestrator.record.rows import Round
from orchestrator.results.history import History
from orchestrator.results.steps import StepCounter
from orchestrator.results.traffic import volumes


class Scalar(NamedTuple):
    """One value of a series. ``step`` is the round (`orchestrator.results.steps`), ``t`` the time in seconds since the
    run started."""

    tag: str
    step: int
    t: float
    value: float


def scalars(history: History) -> list[Scalar]:
    """All scalars of a run so far.

    ``<metric>/<scope>/<node>``: each metric as the node reported it. Without rounds, reports are counted from 1.
    ``round_seconds/<node>``: the duration of each round of a leading node.
    ``delivered_bytes/<link class>``: the bytes that the links delivered from the start of the training to the end
    of the round, headers included. The counters are read once a second and interpolated between readings.
    ``run/…``: when the run has ended: rounds, seconds, wall_seconds, overruns, bytes/<link class>.
    """
    return [
        *_metrics(history),
        *_rounds(history),
        *_delivered(history),
        *_totals(history),
    ]


class Unwritten:
    """Finds the scalars that are new since the last time."""

    def __init__(self) -> None:
        self._written: Counter[str] = Counter()

    def among(self, found: list[Scalar]) -> list[Scalar]:
        """The scalars that were not among those of earlier calls."""
        seen: Counter[str] = Counter()
        new = []
        for scalar in found:
            seen[scalar.tag] += 1
            if seen[scalar.tag] > self._written[scalar.tag]:
                new.append(scalar)
        self._written = seen
        return new


def epoch(history: History) -> float:
    """The time at which the run started, in seconds since 1970."""
    try:
        text = str(history.meta["started"])
        started = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
        return started.timestamp()
    except (KeyError, ValueError):
        return time.time() - history.seconds


def settings(
    tree: Any,
    above: str = "",
) -> Iterator[tuple[str, Any]]:
    """The settings of a scenario by dotted path. A list is one value."""
    is_setting = not isinstance(tree, dict) or (above and not tree)
    if is_setting:
        yield above, tree
        return
    for key, value in tree.items():
        path = f"{above}.{key}" if above else str(key)
        yield from settings(value, path)


def _metrics(history: History) -> Iterator[Scalar]:
    counters: defaultdict[str, StepCounter] = defaultdict(StepCounter)
    for metric in history.metrics(None):
        tag = f"{metric.name}/{metric.scope}/{metric.node}"
        step = counters[tag].step(metric.round)
        yield Scalar(tag, step, metric.t, metric.value)


def _rounds(history: History) -> Iterator[Scalar]:
    for row, end in _finished(history):
        seconds = end - row.start
        yield Scalar(f"round_seconds/{row.node}", row.round, end, seconds)


def _finished(history: History) -> list[tuple[Round, float]]:
    """The finished rounds of the leading nodes, in the order of their ends."""
    finished = []
    for row in history.rounds():
        if row.node in history.leaders and row.end is not None:
            finished.append((row, row.end))
    return sorted(finished, key=lambda row_and_end: row_and_end[1])


def _delivered(history: History) -> Iterator[Scalar]:
    """Rounds that all leading nodes have finished. A round counts when the counters have been read after its end."""
    ends: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row, end in _finished(history):
        ends[row.round].setdefault(row.node, end)
    of_all = []
    for round, of_nodes in ends.items():
        if len(of_nodes) == len(history.leaders):
            last = max(of_nodes.values())
            of_all.append((last, round))
    of_all.sort()
    start = history.training_began or 0.0
    over = history.outcome is not None
    of_classes = volumes.delivered_bytes(history)
    for link_class, (times, totals) in sorted(of_classes.items()):
        covered = []
        for end, round in of_all:
            if over or times[-1] >= end:
                covered.append((end, round))
        moments = [start, *(end for end, _ in covered)]
        delivered = np.interp(moments, times, totals)
        at_ends = delivered[1:]
        for (end, round), total in zip(covered, at_ends, strict=True):
            since_start = float(total - delivered[0])
            yield Scalar(f"delivered_bytes/{link_class}", round, end, since_start)


def _totals(history: History) -> Iterator[Scalar]:
    outcome = history.outcome
    if outcome is None:
        return
    rounds = history.rounds_done()
    seconds = history.seconds
    values: dict[str, float] = {
        "rounds": rounds,
        "seconds": seconds,
        "overruns": len(history.events(Overrun.NAME)),
    }
    if outcome.wall is not None:
        values["wall_seconds"] = outcome.wall
    of_classes = volumes.bytes_by_class(history)
    for link_class, count in sorted(of_classes.items()):
        values[f"bytes/{link_class}"] = count
    for name, value in values.items():
        yield Scalar(f"run/{name}", rounds, seconds, value)
