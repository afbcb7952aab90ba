"""A run as one row, for a table of several runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.results.history import History
from orchestrator.results.summary import summary

Row = dict[str, Any]


def other_metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of a run's summary besides accuracy and loss."""
    metrics = summary.get("metrics") or {}
    return {name: value for name, value in metrics.items() if name != "loss"}


def overview(history: History, found: Row | None = None) -> Row:
    """The scenario, algorithm, driver, seed, verdict, rounds, seconds, and as far as the run has them last accuracies
    (fractions), other metrics and delivered bytes by class of links. ``found``: its summary, if known."""
    found = found or summary(history)
    plan = history.plan
    figures: dict[str, float | None] = {}
    for scope, accuracy in found["accuracy"].items():
        if isinstance(accuracy, float):
            figures[f"accuracy.{scope}"] = accuracy
    for name, value in other_metrics(found).items():
        figures[f"{name}.global"] = value
    for link_class, delivered in (found.get("bytes") or {}).items():
        figures[f"bytes.{link_class}"] = delivered
    return {
        "run": history.run,
        "name": plan["name"],
        "algorithm": plan["algorithm"]["name"],
        "driver": plan["driver"],
        "seed": plan["seed"],
        "verdict": found["verdict"],
        "ended": found["ended"],
        "rounds": found["rounds"],
        "seconds": found["seconds"],
        **figures,
    }
