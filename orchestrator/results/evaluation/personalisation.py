"""The edges' accuracy over the rounds: AccN and DropM (PHE-FL, section IV-A4).

Both use the mean accuracy over the edges, each scored on its own test set. They are computed for runs that set a part
of these test sets apart for personalisation (`data.personalisation`), so that a baseline has the same test samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from netem.units import parse_fraction
from orchestrator.results.evaluation.targets import accuracy_series, tier
from orchestrator.results.history import History

Series = Mapping[int, float]  # accuracy by round
WINDOW = 10  # rounds
WITHIN = (10, 20, 50, 100, 150, 200)  # N of AccN, in addition to all rounds
REACHED = (0.0, 0.2, 0.3, 0.5, 0.7, 0.75, 0.8, 0.9)  # M of DropM


class EdgeRow(NamedTuple):
    """The last report of an edge: its accuracy, α, and the accuracies that α came from; None if not reported."""

    edge: str
    accuracy: float | None
    alpha: float | None
    edge_accuracy: float | None
    cloud_accuracy: float | None


def personalises(history: History) -> bool:
    """Whether the run sets test samples of its edges apart for personalisation."""
    data = history.effective.get("data", {})
    return parse_fraction(data.get("personalisation") or "0%") > 0


def mean_accuracy(history: History) -> dict[int, float]:
    """The mean accuracy of the edges on their own test sets, by round."""
    by_round = {}
    for mean in accuracy_series(history, "edges"):
        if mean.round is not None:
            by_round[mean.round] = mean.value
    return by_round


def best_within(series: Series, rounds: int) -> float | None:
    """AccN: the highest accuracy of the first ``rounds`` rounds; None if they have none."""
    values = []
    for round, value in series.items():
        if round <= rounds:
            values.append(value)
    return max(values, default=None)


def largest_drop(series: Series, reached: float) -> float | None:
    """DropM: the largest difference within `WINDOW` rounds, up or down as the paper defines it, from the first round
    with an accuracy of ``reached`` on; None if there is no such round."""
    rounds_reached = [round for round in series if series[round] >= reached]
    if not rounds_reached:
        return None
    first = min(rounds_reached)
    after = sorted(round for round in series if round >= first)
    drops = []
    for start in after:
        end = start + WINDOW
        window = []
        for round in after:
            if start <= round < end:
                window.append(series[round])
        drops.append(max(window) - min(window))
    return max(drops)


def personalisation(history: History) -> dict[str, Any] | None:
    """AccN and DropM for the summary: within {N: accuracy}, drop {M: accuracy}; None without personalisation."""
    if not personalises(history):
        return None
    series = mean_accuracy(history)
    if not series:
        return None
    last = max(series)
    numbers = [n for n in WITHIN if n < last]
    numbers.append(last)
    within = {str(n): best_within(series, n) for n in numbers}
    drops = {}
    for reached in REACHED:
        drop = largest_drop(series, reached)
        if drop is not None:
            drops[f"{reached:.0%}"] = drop
    return {"within": within, "drop": drops}


def edge_rows(history: History) -> list[EdgeRow]:
    """The last report of each edge."""
    accuracy = _latest(history, "accuracy", "own")
    alpha = _latest(history, "alpha", "personal")
    edge_accuracy = _latest(history, "edge_accuracy", "personal")
    cloud_accuracy = _latest(history, "cloud_accuracy", "personal")
    rows = []
    for name in tier(history, "edge"):
        row = EdgeRow(
            edge=name,
            accuracy=accuracy.get(name),
            alpha=alpha.get(name),
            edge_accuracy=edge_accuracy.get(name),
            cloud_accuracy=cloud_accuracy.get(name),
        )
        rows.append(row)
    return rows


def _latest(history: History, name: str, scope: str) -> dict[str, float]:
    """The last report of a metric of each node."""
    reports = history.metrics(name, scope)
    return {report.node: report.value for report in reports}
