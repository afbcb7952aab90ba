"""The scalars of a run: named series of numbers over the rounds, from its record alone.

A scalar that was once given never changes while the run goes on, and each series only grows. So a tracker, which asks
again and again, writes what an export of the finished run writes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from orchestrator.record.rows import Round
from orchestrator.results.history import History
from orchestrator.results.steps import StepCounter
from orchestrator.results.traffic import volumes


class Scalar(NamedTuple):
    """One value of a series. ``step`` is the round (`orchestrator.results.steps`), ``t`` the time in seconds since the
    run began."""

    tag: str
    step: int
    t: float
    value: float


def scalars(history: History) -> list[Scalar]:
    """All scalars of a run so far.

    ``<metric>/<scope>/<node>``: each metric as the node reported it. Without rounds, reports are counted from 1.
    ``round_seconds/<node>``: the duration of each round of a leading node.
    ``delivered_bytes/<link class>``: the bytes that the links delivered from the beginning of the training to the end
    of the round, headers included. The counters are read once a second and interpolated between readings.
    ``run/…``: when the run has ended: rounds, seconds, wall_seconds, overruns, bytes/<link class>.
    """
    return [*_metrics(history), *_rounds(history), *_delivered(history), *_totals(history)]


class Unwritten:
    """Tells which scalars are new since the last time."""

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
    """The time at which the run began, in seconds since 1970."""
    try:
        return datetime.strptime(str(history.meta["started"]), "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (KeyError, ValueError):
        return time.time() - history.seconds


def settings(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a scenario by dotted path. A list is one value."""
    if isinstance(tree, dict) and (tree or not above):
        for key, value in tree.items():
            yield from settings(value, f"{above}.{key}" if above else str(key))
    else:
        yield above, tree


def _metrics(history: History) -> Iterator[Scalar]:
    counters: defaultdict[str, StepCounter] = defaultdict(StepCounter)
    for metric in history.metrics(None):
        tag = f"{metric.name}/{metric.scope}/{metric.node}"
        yield Scalar(tag, counters[tag].step(metric.round), metric.t, metric.value)


def _rounds(history: History) -> Iterator[Scalar]:
    for each, end in _finished(history):
        yield Scalar(f"round_seconds/{each.node}", each.round, end, end - each.start)


def _finished(history: History) -> list[tuple[Round, float]]:
    """The finished rounds of the leading nodes, in the order of their ends."""
    found = [(each, each.end) for each in history.rounds() if each.node in history.leaders and each.end is not None]
    return sorted(found, key=lambda each: each[1])


def _delivered(history: History) -> Iterator[Scalar]:
    """Rounds that all leading nodes have finished. A round counts when the counters have been read after its end."""
    ends: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for each, end in _finished(history):
        ends[each.round].setdefault(each.node, end)
    whole = sorted((max(of.values()), round) for round, of in ends.items() if len(of) == len(history.leaders))
    began = history.training_began or 0.0
    over = history.outcome is not None
    for link_class, (times, totals) in sorted(volumes.delivered_bytes(history).items()):
        covered = [(end, round) for end, round in whole if over or times[-1] >= end]
        before, *after = np.interp([began, *(end for end, _ in covered)], times, totals)
        for (end, round), total in zip(covered, after, strict=True):
            yield Scalar(f"delivered_bytes/{link_class}", round, end, float(total - before))


def _totals(history: History) -> Iterator[Scalar]:
    outcome = history.outcome
    if outcome is None:
        return
    rounds = history.rounds_done()
    seconds = history.seconds
    found: dict[str, float] = {"rounds": rounds, "seconds": seconds, "overruns": len(history.events("overrun"))}
    if outcome.wall is not None:
        found["wall_seconds"] = outcome.wall
    found |= {f"bytes/{name}": count for name, count in sorted(volumes.bytes_by_class(history).items())}
    for name, value in found.items():
        yield Scalar(f"run/{name}", rounds, seconds, value)
