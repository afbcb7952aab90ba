"""Runs of the baselines with clients of several models, and what they are held against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import edgebed
from edgebed.testing import Federation, federation, star

GIVEN = {"learning_rate": 0.05, "evaluate_samples": 40}


def run(
    folder: Path,
    name: str,
    rounds: int = 2,
    model: str = "small",
    model_params: Mapping[str, Any] | None = None,
    crash: Mapping[str, tuple[float, float]] | None = None,
    **params: Any,
) -> Federation:
    """Three clients; of the group `small` they have three models, with 8 features each."""
    chosen = ({"features": 8} if model == "small" else {}) if model_params is None else model_params
    return federation(
        folder,
        f"edgebed.baselines.{name}",
        name,
        star(3),
        params=GIVEN | params,
        rounds=rounds,
        crash=crash or {},
        model=model,
        model_params=chosen,
    ).run()


def learns_and_reports(done: Federation, rounds: int = 2) -> None:
    """Clients of three models kept them, and the cloud reported the means of their accuracies."""
    nodes = [f"device-{k}" for k in range(3)]
    assert len({tuple(sorted(done.state(node))) for node in nodes}) == 3
    each = [done.journals[node].series("global") for node in nodes]
    means = {t: sum(values[t] for values in each) / 3 for t in range(1, rounds + 1)}
    assert done.journals["cloud"].series("global") == {t: float(np.float64(mean)) for t, mean in means.items()}


def trained_alone(done: Federation, node: str, rounds: int = 2) -> edgebed.State:
    """What local training alone makes of the client's model."""
    learner = done.roles[node].learner
    w: edgebed.State = learner.initial()
    for t in range(1, rounds + 1):
        w = learner.train(w, done.params, t).weights
    return w


def equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
