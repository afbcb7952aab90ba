"""Accuracy over the rounds, by kind of test set, and the cost of reaching a given accuracy.

Comparisons and sweeps both use this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.record.rows import Metric
from orchestrator.results.history import History
from orchestrator.results.means import mean_series
from orchestrator.results.traffic import volumes

Judged = Literal["global", "clients", "edges"]
"""The scored models and test sets: on the global test set; or clients, or edges, each on its own test set."""


def judged_on(judged: Judged | Sequence[str]) -> str:
    """The test sets on which accuracy is judged, in words."""
    if judged == "global":
        return "on the global test set"
    nodes = judged if isinstance(judged, str) else ", ".join(judged)
    return f"of {nodes} on their own test sets"


@dataclass(frozen=True)
class Reached:
    """When an accuracy was first reached: the round, the seconds of training, and the bytes that the links of each
    class had delivered, headers included, interpolated between the readings of each second."""

    round: int | None
    seconds: float
    bytes: dict[str, int]


def accuracy_series(history: History, judged: Judged | Sequence[str]) -> list[Metric]:
    """The accuracy by round: on the global test set, or the mean over nodes on their own test sets."""
    if judged == "global":
        return history.global_series("accuracy")
    if isinstance(judged, str):
        if judged == "clients":
            judged = clients(history)
        else:
            judged = tier(history, "edge")
    return own_series(history, "accuracy", judged)


def own_series(history: History, name: str, nodes: Sequence[str]) -> list[Metric]:
    """A metric on own test sets, by round: the mean over these nodes, as in `mean_series`."""
    counted = set(filter(history.counts, nodes))
    reports = []
    for report in history.metrics(name, "own"):
        if report.node in counted:
            reports.append(report)
    return mean_series(reports)


def clients(history: History) -> list[str]:
    """The nodes that hold data: the devices, or the edges if there are none."""
    return tier(history, "device") or tier(history, "edge")


def tier(history: History, name: str) -> list[str]:
    """The nodes of a tier."""
    nodes = []
    for node, facts in history.nodes.items():
        if facts.get("tier") == name:
            nodes.append(node)
    return nodes


def first_at(series: Sequence[Metric], accuracy: float) -> Metric | None:
    """The first report of a series that reached an accuracy (a fraction)."""
    for metric in series:
        if metric.value >= accuracy:
            return metric
    return None


def reached(history: History, series: Sequence[Metric], accuracy: float) -> Reached | None:
    """The cost until a series of the run first reached an accuracy (a fraction); None if it never did."""
    metric = first_at(series, accuracy)
    if metric is None:
        return None
    began = history.training_began or 0.0
    delivered = bytes_between(history, began, metric.t)
    return Reached(metric.round, metric.t - began, delivered)


def bytes_between(history: History, start: float, end: float) -> dict[str, int]:
    """The bytes that the links of each class delivered between two times of the run, headers included."""
    delivered = {}
    courses = volumes.delivered_bytes(history)
    for link_class, (times, totals) in courses.items():
        before, after = np.interp([start, end], times, totals)
        delivered[link_class] = round(after - before)
    return delivered
