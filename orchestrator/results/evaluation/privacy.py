"""Privacy of a run's features: the guarantee, and how much the noised features reveal of the clean ones (FedFeat+'s
Tables IV and V)."""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from typing import Any

from node.learning.privacy import guarantee
from orchestrator.results.history import History
from orchestrator.results.means import mean_series

METRICS = ("mutual_information", "entropy_difference", "kl_divergence", "feature_correlation")


def statement(history: History) -> str | None:
    """The guarantee for the features that clients sent, as text; None if none were sent."""
    algorithm = history.plan.get("algorithm") or {}
    params = algorithm.get("params") or {}
    if algorithm.get("name") != "fedfeat" or not params.get("retrain_epochs"):
        return None
    rounds = max(1, history.rounds_done())
    given = guarantee(
        params["noise"],
        params["epsilon"],
        params["delta"],
        params["clip_norm"],
        rounds,
    )
    if given is None:
        why = "they are sent without noise; ask for some, and set clip_norm"
        if params["noise"] != "none":
            why = "no noise is enough for features without a bound; set clip_norm"
        return f"Guarantee for the features sent: none, {why}. Weights and labels travel as they are."
    once = _budget(given.epsilon, given.delta)
    altogether = _budget(given.total_epsilon, given.delta)
    return (
        f"Guarantee for the features sent: each vector is {once} differentially private "
        f"towards any other of its label when sent once, {altogether} over "
        f"{given.rounds} rounds. Weights and labels travel as they are, and nothing is guaranteed of those."
    )


def measured(history: History) -> dict[int, dict[str, float]]:
    """The mean of each metric over the clients, by round, as in `mean_series`."""
    means: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for name in METRICS:
        reports = []
        for report in history.metrics(name, "privacy"):
            if history.counts(report.node):
                reports.append(report)
        for mean in mean_series(reports):
            if mean.round is not None:
                means[mean.round][name] = mean.value
    return dict(sorted(means.items()))


def privacy(history: History) -> dict[str, Any] | None:
    """For the summary: the statement, and the metrics of the last round; None for a run that shares no features."""
    guaranteed = statement(history)
    if guaranteed is None:
        return None
    rounds = measured(history)
    metrics: dict[str, float | None] = {}
    if rounds:
        for name, value in rounds[max(rounds)].items():
            metrics[name] = value if isfinite(value) else None
    return {"guarantee": guaranteed, "metrics": metrics}


def _budget(epsilon: float, delta: float) -> str:
    if delta:
        return f"(ε {epsilon:.3g}, δ {delta:.3g})"
    return f"(ε {epsilon:.3g})"
